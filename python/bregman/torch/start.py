"""Sparse initialisation, and the count of zeros."""

from __future__ import annotations

import json
from typing import Literal

import torch
from torch import nn

from .. import _bregman
from ._params import check, is_weight, trained_weights_of, weights_of
from ._storage import Slot, is_spread, whole


@torch.no_grad()
def sparse_init_(
    model: nn.Module,
    sparsity: float = 0.99,
    *,
    inputs: float = 1.0,
    unit: Literal["element", "group"] = "element",
    penalty: str = "l1",
    rescale: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Sets a random share of every weight tensor to zero, as a Bregman run begins; returns the model.

    sparsity: the share, in [0, 1). inputs: every output keeps at least so many non-zero inputs on average, where
    ``sparsity`` would leave fewer. unit: what is drawn, single weights or the groups of ``penalty``. rescale: divide
    what is left by √(1 − s), which keeps the variance of a layer's output. The same seed gives the same mask, parameter
    by parameter, and the mask that the program draws for a parameter of that name. Frozen weights stay as they are.
    """
    weights = trained_weights_of(model)
    for name, parameter in weights.items():
        check(name, parameter)
        if is_spread(parameter):
            raise ValueError(f"parameter `{name}` is spread over processes: call sparse_init_ before fully_shard")
    for name, parameter in weights.items():
        values = parameter.detach().to("cpu", torch.float32, copy=True).contiguous()
        survivors = "rescale" if rescale else "keep"
        _bregman.sparse_init(
            name, list(parameter.shape), json.dumps(penalty), sparsity, inputs, json.dumps(unit),
            json.dumps(survivors), seed, values.data_ptr(),
        )  # fmt: skip
        parameter.copy_(values)
    return model


@torch.no_grad()
def sparsity(model: nn.Module) -> float:
    """The share of weights that are exactly zero. Biases, norms and embeddings do not count, nor do frozen weights
    where others are trained."""
    weights = list(weights_of(model).values())
    weights = [parameter for parameter in weights if parameter.requires_grad] or weights
    zeros = sum(int(whole((parameter == 0).sum())) for parameter in weights)
    return zeros / max(1, sum(parameter.numel() for parameter in weights))


def first_dual(rule: str, slot: Slot, lambda_: float, values: torch.Tensor) -> None:
    """Writes p⁰ = θ⁰/δ + λ·∂R(θ⁰), the dual with which an optimizer begins at weights θ⁰."""
    theta = slot.weights().cpu()
    dual = values if values.device.type == "cpu" else torch.empty_like(theta)
    if theta.numel() > 0:  # a shard may be empty
        _bregman.initial_dual(
            rule,
            slot.name,
            list(theta.shape) or [1],
            is_weight(slot.parameter),
            json.dumps(slot.group["penalty"]),
            slot.group["lambda_scale"],
            lambda_,
            theta.data_ptr(),
            dual.data_ptr(),
        )
    if dual is not values:
        values.copy_(dual)
