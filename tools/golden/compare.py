#!/usr/bin/env python3
"""compare.py A B: what differs between two folders of golden numbers."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

ORIGIN = ("commits", "versions", "made_by")


def leaves(value, path=""):
    if isinstance(value, dict):
        return {key: leaf for name, inner in value.items() for key, leaf in leaves(inner, f"{path}.{name}").items()}
    if isinstance(value, (list, tuple)):
        return leaves({str(at): inner for at, inner in enumerate(value)}, path)
    return {path: value}


def numbers(file):
    if file.suffix == ".json":
        facts = json.loads(file.read_text())
        return leaves({key: value for key, value in facts.items() if key not in ORIGIN})
    return load_file(file) if file.suffix == ".safetensors" else torch.load(file)


def difference(a, b):
    if torch.is_tensor(a) and torch.is_tensor(b) and a.shape == b.shape and a.dtype == b.dtype:
        scale = max(float(b.double().abs().max()), 1e-300) if b.numel() else 1.0
        return float((a.double() - b.double()).abs().max()) / scale if b.numel() else 0.0
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) / max(abs(b), 1e-300)
    return 0.0 if not torch.is_tensor(a) and not torch.is_tensor(b) and a == b else float("inf")


def main():
    first, second = map(Path, sys.argv[1:])
    for file in sorted(first.iterdir()):
        if file.suffix not in (".json", ".safetensors", ".pt") or not (second / file.name).exists():
            print(f"{file.name}: not compared")
            continue
        a, b = numbers(file), numbers(second / file.name)
        off = {key: difference(a[key], b[key]) for key in a.keys() & b.keys()}
        differ = {key: value for key, value in off.items() if value > 0}
        worst = max(differ, key=differ.get, default=None)
        largest = f", at most by {differ[worst]:.1e} of its largest value ({worst})" if differ else ""
        missing = len(a.keys() ^ b.keys())
        print(
            f"{file.name}: {len(off)} values, {len(differ)} differ{largest}"
            + (f", {missing} in one only" if missing else "")
        )


if __name__ == "__main__":
    main()
