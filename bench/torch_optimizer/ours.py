"""`bench/run torch_optimizer`: one step of `bregman.torch` over ECAPA C1024 with a 5994-class head, λ steered.

Against the step as published in PyTorch plus its count of zeros, and against torch's fused AdamW; on the CPU, and on a
GPU where there is one; or on the devices that are named.
"""

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "optimizer"))
from peer import Reference, fused_adamw_ms, median_ms, wait  # noqa: E402

import bregman.torch  # noqa: E402

ROUNDS = 3


def shapes():
    """Those of ECAPA-TDNN GLOB C1024 and of a classifier of 5994 × 192, from the golden list."""
    counts = json.loads((Path(__file__).resolve().parents[2] / "golden/fullsize_parameter_counts.json").read_text())
    (ecapa,) = (entry for name, entry in counts.items() if name.startswith("ECAPA"))
    return [parameter["shape"] for parameter in ecapa["parameters"].values()] + [[5994, 192]]


def optimizer_of(kind, sizes, device):
    """Zeros are counted at every step; λ moves every 50th step by the paper's law."""
    reference = Reference(sizes, 1.0, device)
    parameters = [torch.nn.Parameter(theta) for theta in reference.theta]
    for parameter, gradient in zip(parameters, reference.grad):
        parameter.grad = gradient
    optimizer = kind(parameters, target=0.95, law=bregman.torch.Multiplicative())
    optimizer.step()
    return optimizer


def in_a_row_ms(call, count=40):
    """As in a training: the host goes on while the GPU computes."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count * 1e3


def on_gpu(label, kind, sizes):
    """The step without a wait after each, and as a captured graph."""
    optimizer, graph = optimizer_of(kind, sizes, "cuda"), torch.cuda.CUDAGraph()
    row = min(in_a_row_ms(optimizer.step) for _ in range(ROUNDS))
    with torch.cuda.graph(graph):
        optimizer.step()
    waiting = min(median_ms(lambda: optimizer.replay(graph)) for _ in range(ROUNDS))
    replayed = min(in_a_row_ms(lambda: optimizer.replay(graph)) for _ in range(ROUNDS))
    print(f"{label:14} {row:6.3f}  in a row; in a graph {waiting:.3f}, in a row {replayed:.3f}")


def theirs_ms(name, sizes, device):
    reference = Reference(sizes, {"linbreg": 0.01, "adabreg": 1.0}[name], device)
    return median_ms(getattr(reference, name)), median_ms(reference.sparsity)


def main():
    sizes = shapes()
    devices = sys.argv[1:] or ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    count = sum(torch.Size(shape).numel() for shape in sizes)
    print(f"{count} parameters in {len(sizes)} tensors, best of {ROUNDS} medians, ms\n")
    print("step             ours  published + count  torch's fused AdamW")
    ratios = []
    for device in devices:
        for name, kind in (("linbreg", bregman.torch.LinBreg), ("adabreg", bregman.torch.AdaBreg)):
            rounds = [
                (
                    median_ms(optimizer_of(kind, sizes, device).step),
                    *theirs_ms(name, sizes, device),
                    fused_adamw_ms(sizes, device),
                )
                for _ in range(ROUNDS)
            ]
            ours, step, count, fused = (min(column) for column in zip(*rounds))
            label = f"{name}-{device}"
            print(f"{label:14} {ours:6.3f}  {step:9.3f} + {count:5.3f}  {fused:19.3f}")
            ratios.append((label, ours / (step + count)))
            ratios.append((f"{label}-vs-fused-adamw", ours / fused))
            if device == "cuda":
                on_gpu(label, kind, sizes)
    print()
    for label, ratio in ratios:
        print(f"ratio {label} {ratio:.4f}")


main()
