"""Magnitude pruning of several tensors at once, and the gradual schedule."""

import numpy as np
import torch
from torch.nn.utils import prune

from store import f32, f64

SHAPES = {"a": ([32, 20], 1.0), "b": ([24, 10, 5], 0.5), "c": ([10, 8, 3, 3], 0.25)}
AMOUNTS, FINAL, ITERATIONS = [0.5, 0.9, 0.99], [0.75, 0.9, 0.95, 0.99], 10


def make(references, store, rng):
    weights = distinct(rng)
    count = sum(weight.numel() for weight in weights.values())
    tensors, masks, schedules = {f"weight.{name}": weight for name, weight in weights.items()}, {}, {}
    for amount in AMOUNTS:
        layers = {name: torch.nn.Module() for name in weights}
        for name, layer in layers.items():
            layer.weight = torch.nn.Parameter(weights[name].clone())
        chosen = [(layer, "weight") for layer in layers.values()]
        prune.global_unstructured(chosen, pruning_method=prune.L1Unstructured, amount=amount)
        tensors |= {f"mask{amount:g}.{name}": layer.weight_mask.to(torch.uint8) for name, layer in layers.items()}
        zeros = {name: int((layer.weight_mask == 0).sum()) for name, layer in layers.items()}
        gone = [weights[name].abs()[layer.weight_mask == 0] for name, layer in layers.items() if zeros[name]]
        masks[f"{amount:g}"] = {
            "pruned_total": sum(zeros.values()),
            "elements": count,
            "pruned": zeros,
            "sparsity_per_tensor": {name: zeros[name] / weights[name].numel() for name in weights},
            "largest_pruned_magnitude": float(max(magnitudes.max() for magnitudes in gone)),
        }
    for final in FINAL:
        formula = [1 - (1 - final) ** (at / ITERATIONS) for at in range(ITERATIONS + 1)]
        scheduler = references.pruning.PruningScheduler("constant", final, ITERATIONS, 0.0)
        theirs = [scheduler.get_target_sparsity(epoch) for epoch in range(ITERATIONS)]
        tensors[f"schedule.{final:g}"] = f64(formula)
        schedules[f"{final:g}"] = {
            "formula_i0_to_iN": formula,
            "authors_epoch0_to_epochN-1": theirs,
            "max_abs_authors[e]-formula[e+1]": max(abs(a - b) for a, b in zip(theirs, formula[1:])),
        }
    store.save(
        "pruning",
        "Masks by torch.nn.utils.prune.global_unstructured(L1Unstructured); schedule s_i = "
        "1-(1-s)^(i/N), checked against "
        "PruningScheduler('constant') of ahmad-aloradi/adversarial-robustness-for-sr.",
        {"masks": masks, "schedule": schedules, "iterations": ITERATIONS},
        tensors,
    )


def distinct(rng):
    """Weights without two equal magnitudes: what is pruned is then a matter of size alone."""
    while True:
        weights = {name: f32(rng.normal(0, scale, shape)) for name, (shape, scale) in SHAPES.items()}
        magnitudes = np.abs(np.concatenate([weight.numpy().reshape(-1) for weight in weights.values()]))
        if len(np.unique(magnitudes)) == len(magnitudes):
            return weights
