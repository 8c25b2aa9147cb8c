"""Writes golden numbers: tensors as safetensors, everything else as json, both with where they come from."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

PACKAGES = (
    "torch",
    "torchaudio",
    "numpy",
    "scipy",
    "safetensors",
    "speechbrain",
    "kaldi-native-fbank",
    "kaldiio",
    "scikit-learn",
    "torchmetrics",
)


class Store:
    def __init__(self, folder, commits, seed):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.origin = {"commits": commits, "versions": versions(), "seed": seed}

    def save(self, name, made_by, facts, tensors=None):
        """`name.json`, and `name.safetensors` where there are tensors."""
        if tensors is not None:
            save_file(
                {key: tensor.contiguous() for key, tensor in tensors.items()}, str(self.folder / f"{name}.safetensors")
            )
        text = lines({"made_by": made_by} | self.origin | facts, depth=2)
        (self.folder / f"{name}.json").write_text(text + "\n")


def versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            pass
    return found


def lines(value, depth):
    """JSON with line breaks in the outer levels only: small, and still readable in a diff."""
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, separators=(",", ":"))
    entries = [f"{json.dumps(key)}: {lines(inner, depth - 1)}" for key, inner in value.items()]
    return "{\n" + ",\n".join(entries) + "\n}"


def f32(values):
    return torch.from_numpy(np.ascontiguousarray(np.asarray(values, dtype=np.float32)))


def f64(values):
    return torch.from_numpy(np.ascontiguousarray(np.asarray(values, dtype=np.float64)))


def largest_difference(a, b):
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def relative_difference(a, exact):
    """The largest difference over the largest exact value."""
    difference, scale = largest_difference(a, exact), float(exact.double().abs().max())
    return difference / scale if scale > 0 else difference
