"""Sparse initialisation, and the count of zeros."""

from __future__ import annotations

import json
from typing import Literal

import torch
from torch import nn

from .. import _bregman
from ._params import weights_of


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
    by parameter, and the mask that the program draws for a parameter of that name.
    """
    for name, parameter in weights_of(model).items():
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
    """The share of weights that are exactly zero. Biases, norms and embeddings do not count."""
    weights = weights_of(model).values()
    zeros = sum(int((parameter == 0).sum()) for parameter in weights)
    return zeros / max(1, sum(parameter.numel() for parameter in weights))
