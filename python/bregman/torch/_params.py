"""Which parameters there are, what they are called, and which of them are weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import torch
from torch import nn

Params = Union[nn.Module, Iterable[torch.Tensor], Iterable[tuple[str, torch.Tensor]], Iterable[dict[str, Any]]]

DENSE_MODULES = (nn.Embedding, nn.EmbeddingBag, nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
"""Modules whose parameters are never thresholded, whatever their shape."""


def is_weight(parameter: torch.Tensor) -> bool:
    """Whether a parameter may have a penalty; biases and scales, of one dimension, may not."""
    return parameter.dim() >= 2


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a module by name: all parameters of two dimensions or more but those of DENSE_MODULES."""
    dense = {id(p) for m in module.modules() if isinstance(m, DENSE_MODULES) for p in m.parameters(recurse=False)}
    named = module.named_parameters()
    return {name: parameter for name, parameter in named if is_weight(parameter) and id(parameter) not in dense}


def trained_weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Those of them that are not frozen. Refuses a module without any."""
    weights = {name: parameter for name, parameter in weights_of(module).items() if parameter.requires_grad}
    if not weights:
        kind = type(module).__name__
        raise ValueError(
            f"{kind} has no parameter of two dimensions or more that is trained (requires_grad): nothing to make sparse"
        )
    return weights


def groups_of(params: Params) -> list[dict[str, Any]]:
    """Parameter groups, as ``torch.optim.Optimizer`` takes them.

    A module becomes two groups: its weights, and the rest without a penalty. Frozen parameters are in neither.
    """
    if isinstance(params, nn.Module):
        weights = trained_weights_of(params)
        trained = ((name, parameter) for name, parameter in params.named_parameters() if parameter.requires_grad)
        rest = [(name, parameter) for name, parameter in trained if name not in weights]
        groups: list[dict[str, Any]] = [{"params": list(weights.items())}]
        return groups + ([{"params": rest, "penalty": "none"}] if rest else [])
    if isinstance(params, torch.Tensor):
        raise TypeError("params is one tensor, expected a module, a list of tensors or a list of groups")
    listed: list[Any] = list(params)
    return listed if listed and isinstance(listed[0], dict) else [{"params": listed}]


def take_names(group: dict[str, Any], index: int) -> dict[str, Any]:
    """The group with its parameters and their names apart: given as pairs, in ``param_names``, or made up."""
    params = group["params"]
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    if not params:
        raise ValueError(f"parameter group {index} is empty")
    names = group.get("param_names") or [f"{index}.{i}" for i in range(len(params))]
    if all(isinstance(each, tuple) for each in params):
        names, params = [name for name, _ in params], [parameter for _, parameter in params]
    if len(names) != len(params):
        raise ValueError(f"parameter group {index} has {len(params)} parameters and {len(names)} names")
    return {**group, "params": params, "param_names": list(names)}


def check_names(group: dict[str, Any], others: list[dict[str, Any]]) -> None:
    """Refuses a name that two parameters have."""
    seen: dict[str, tuple[int, Any]] = {}
    for index, each in enumerate([*others, group]):
        for name, parameter in zip(each["param_names"], each["params"]):
            first, known = seen.setdefault(name, (index, parameter))
            if known is not parameter:
                where = f"in group {index}" if first == index else f"in the groups {first} and {index}"
                raise ValueError(
                    f"parameter name `{name}` occurs twice {where}: make them differ, as by pairs "
                    f'("encoder.{name}", parameter)'
                )


def check(name: str, parameter: Any) -> None:
    """Refuses what cannot be trained."""
    if not isinstance(parameter, torch.Tensor):
        raise TypeError(f"parameter `{name}` is a {type(parameter).__name__}, expected a tensor")
    if parameter.is_complex():
        raise TypeError(f"parameter `{name}` is complex: split it into its real and imaginary part")
    if not parameter.is_floating_point():
        raise TypeError(f"parameter `{name}` is of {parameter.dtype}, expected floating point")
    if parameter.layout != torch.strided:
        raise TypeError(f"parameter `{name}` has the layout {parameter.layout}, expected a dense tensor")
    if parameter.numel() == 0:
        raise ValueError(f"parameter `{name}` is empty (shape {list(parameter.shape)})")


def check_device(name: str, parameter: torch.Tensor, device: torch.device | None) -> torch.device:
    """Refuses another device than that of the others, and returns it."""
    if device is not None and parameter.device != device:
        raise ValueError(
            f"parameter `{name}` is on {parameter.device}, the others are on {device}: an optimizer steers one λ over "
            "all of them, so move them to one device"
        )
    return parameter.device
