"""Where weights and gradients are at a step: their addresses go to the core.

Before every step they are looked at again, since a model may be changed between steps. That is most of the time that a
step takes on the host, so there is a short way for models of which nothing needs to be copied.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import torch

from ._ops import TorchOps
from ._storage import Slot, address, is_spread


class Gathered(NamedTuple):
    """Addresses of weights and gradients, 0 for gradients that there are not."""

    theta: list[int] | None
    """None where they are those of the step before."""
    grads: list[int]
    held: list[torch.Tensor | None]
    """The gradients, some of them copies, which must live until the step was given to the device."""


class Plain(NamedTuple):
    """Parameters that are all stepped where they are, as they were at the first step."""

    parameters: list[torch.Tensor]
    theta: list[int]
    sizes: list[int]
    alignment: int


def plain_parameters(slots: list[Slot]) -> Plain | None:
    """The parameters, unless some are copied or spread over processes."""
    parameters = [slot.parameter for slot in slots]
    if any("weight" in slot.state or is_spread(slot.parameter) for slot in slots):
        return None
    sizes = [parameter.numel() for parameter in parameters]
    return Plain(parameters, [p.data_ptr() for p in parameters], sizes, slots[0].alignment)


def gather(slots: list[Slot], plain: Plain | None, ops: TorchOps | None) -> Gathered:
    """Addresses for a step. ``ops``, which computes with tensors, gets them too."""
    gathered = unchanged(plain) if plain is not None and ops is None else None
    if gathered is None:
        theta, grads = [slot.still_there() for slot in slots], [slot.gradient() for slot in slots]
        gathered = Gathered([w.data_ptr() for w in theta], [address(g) for g in grads], grads)
        if ops is not None:
            ops.theta, ops.grads = theta, grads
    return gathered


def unchanged(plain: Plain) -> Gathered | None:
    """The short way: all at once, for parameters where they were and gradients that are fine; None otherwise.

    A parameter of another type or on another device is at another address, and torch sees to it that gradients are on
    the device of their parameter and have its shape.
    """
    grads = [parameter.grad for parameter in plain.parameters]
    try:
        at = list(map(torch.Tensor.data_ptr, grads))  # type: ignore[arg-type]
        fine = all(map(torch.Tensor.is_contiguous, grads))  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # there is none, or it is sparse
        return None
    if (
        not fine
        or [gradient.dtype for gradient in grads].count(torch.float32) != len(grads)  # type: ignore[union-attr]
        or functools.reduce(operator.or_, at) % plain.alignment
        or list(map(torch.Tensor.data_ptr, plain.parameters)) != plain.theta
        or list(map(torch.Tensor.numel, plain.parameters)) != plain.sizes
    ):
        return None
    return Gathered(None, at, grads)
