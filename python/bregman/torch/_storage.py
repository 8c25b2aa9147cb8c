"""A parameter as the core sees it: contiguous 32-bit floats at an address, with arrays beside them.

A contiguous float32 parameter is used where it is. Any other (bfloat16, float16, float64, channels last, a view) gets a
float32 copy in ``state["weight"]``, which the optimizer steps and from which the parameter is written after every step.
Of a DTensor it is the local shard.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


class Slot:
    """One parameter, its group and its state."""

    __slots__ = ("alignment", "device", "group", "name", "parameter", "size", "state")

    def __init__(self, name: str, parameter: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        self.name, self.parameter, self.group, self.state = name, parameter, group, state
        self.alignment, self.device, self.size = 4, parameter.device, local(parameter).numel()

    def weights(self) -> torch.Tensor:
        """What the optimizer steps."""
        return local(self.state.get("weight", self.parameter))

    def still_there(self) -> torch.Tensor:
        """The weights, if they are as they were when the optimizer began: their address goes to the core."""
        own = self.weights()
        if (
            own.dtype is not torch.float32
            or own.device != self.device
            or self.parameter.device != self.device
            or own.numel() != self.size
            or not usable(own, self.alignment)
        ):
            raise RuntimeError(
                f"parameter `{self.name}` is of {self.parameter.dtype} on {self.parameter.device} now, and was not at "
                "the first step: change a model (`model.to(...)`) before, or load the state into a new optimizer"
            )
        return own

    def gradient(self) -> torch.Tensor | None:
        """The gradient as contiguous float32, a copy if it is not."""
        gradient = self.parameter.grad
        if gradient is None:
            return None
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"parameter `{self.name}` has a sparse gradient: make it dense (nn.Embedding with sparse=False)"
            )
        gradient = part_of(self.parameter, gradient)
        if gradient.numel() != self.size:
            raise RuntimeError(
                f"parameter `{self.name}`: the gradient has {gradient.numel()} values in this process, its weights "
                f"{self.size}"
            )
        if usable(gradient, self.alignment):
            return gradient
        return gradient.to(torch.float32, copy=True, memory_format=torch.contiguous_format)

    def follow(self) -> None:
        """Brings arrays to the device of a parameter that was moved before the first step."""
        for array, values in self.state.items():
            if values.device != self.device:
                self.state[array] = values.to(self.device)

    def prepare(self, alignment: int) -> None:
        """Makes the float32 copy for a parameter that cannot be stepped in place."""
        self.alignment, own = alignment, local(self.parameter)
        if not usable(own, alignment) and "weight" not in self.state:
            copy = own.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            self.state["weight"] = alike(self.parameter, copy)

    def publish(self) -> None:
        """Writes the parameter from its copy, if it has one."""
        if "weight" in self.state:
            local(self.parameter).copy_(local(self.state["weight"]))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process has."""
    return getattr(tensor, "_local_tensor", tensor)


def is_spread(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, of which processes have parts."""
    return hasattr(tensor, "_local_tensor")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor, of whatever processes have of it."""
    return tensor.full_tensor() if is_spread(tensor) else tensor  # type: ignore[attr-defined]


def part_of(parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The part of values that belongs to the part of the parameter which this process has, however they are spread."""
    own, theirs = (getattr(tensor, "placements", None) for tensor in (parameter, values))
    if own is None:
        return whole(values)
    mesh = parameter.device_mesh  # type: ignore[attr-defined]
    if theirs is None or values.device_mesh != mesh:  # type: ignore[attr-defined]
        from torch.distributed.tensor import distribute_tensor

        return local(distribute_tensor(whole(values).to(parameter.device), mesh, own))
    return local(values if theirs == own else values.redistribute(mesh, own))  # type: ignore[attr-defined]


def address(tensor: torch.Tensor | None) -> int:
    """Where a tensor is; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()


def usable(tensor: torch.Tensor, alignment: int) -> bool:
    """Whether the core can compute in a tensor where it is."""
    return tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.data_ptr() % alignment == 0


def mark_written(slots: list[Slot]) -> None:
    """Tells autograd that parameters were written, so that it refuses graphs that need the values before."""
    parameters = [slot.parameter for slot in slots]
    if takes_many():
        torch.autograd.graph.increment_version(parameters)
    else:
        for parameter in parameters:
            torch.autograd.graph.increment_version(parameter)


@functools.cache
def takes_many() -> bool:
    """Whether this torch marks many tensors in one call."""
    try:
        torch.autograd.graph.increment_version([])
    except (TypeError, RuntimeError):
        return False
    return True


def alike(parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values for the local part of a parameter, spread over processes as it is."""
    if not is_spread(parameter):
        return values
    from torch.distributed.tensor import DTensor

    whole: Any = parameter
    mesh, placements = whole.device_mesh, whole.placements
    return DTensor.from_local(
        values, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )
