"""Whether a saved state is of the parameters and the optimizer that it is loaded into."""

from __future__ import annotations

import json
from typing import Any

import torch


def check_state(
    state_dict: dict[str, Any], groups: list[dict[str, Any]], kept: list[str], optimizer: str
) -> None:
    """Raises ValueError, with the parameter's name, unless the state fits."""
    saved_groups = state_dict["param_groups"]
    if len(saved_groups) != len(groups):
        raise ValueError(f"the state has {len(saved_groups)} parameter groups, the optimizer {len(groups)}")
    for index, (group, saved) in enumerate(zip(groups, saved_groups)):
        names, numbers = group["param_names"], saved["params"]
        saved_names = saved.get("param_names", names)
        if len(numbers) != len(names):
            alone = [*names[len(numbers) :], *saved_names[len(names) :], "?"][0]
            raise ValueError(
                f"group {index} of the state has {len(numbers)} parameters, that of the optimizer {len(names)}; the "
                f"first without a counterpart is `{alone}`"
            )
        for number, name, saved_name, parameter in zip(numbers, names, saved_names, group["params"]):
            if saved_name != name:
                raise ValueError(f"the state of `{saved_name}` was saved where the optimizer has `{name}`")
            _check_arrays(name, parameter, state_dict["state"].get(number, {}), kept, optimizer)


def _check_arrays(
    name: str, parameter: torch.Tensor, arrays: dict[str, torch.Tensor], kept: list[str], optimizer: str
) -> None:
    for array, values in arrays.items():
        if array not in (*kept, "weight"):
            raise ValueError(f"parameter `{name}`: the state has `{array}`, which {optimizer} does not keep")
        if values.shape != parameter.shape:
            raise ValueError(
                f"parameter `{name}` has the shape {list(parameter.shape)}, its saved `{array}` {list(values.shape)}: "
                "is it the state of another model?"
            )
    missing = [array for array in kept if arrays and array not in arrays]
    if missing:
        raise ValueError(f"parameter `{name}`: the state lacks `{missing[0]}`")


def groups_with(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups with the settings of a state."""
    own = ("params", "param_names")
    pairs = zip(groups, state_dict["param_groups"])
    return [{**group, **saved, **{key: group[key] for key in own}} for group, saved in pairs]


def check_steering(saved: str, own: str) -> None:
    """Raises ValueError unless λ was steered, as it is here, by the same optimizer and by as many control loops.

    saved, own: what the core saved with the state, and what it saves at the optimizer's start.
    """
    theirs, ours = json.loads(saved), json.loads(own)
    rule = theirs.get("rule", ours["rule"])  # states that were saved before it was do not tell
    if rule != ours["rule"]:
        raise ValueError(f"the state is of {rule}, the optimizer is {ours['rule']}: its λ means something else")
    if len(theirs["loops"]) != len(ours["loops"]):
        raise ValueError(
            f"the state has {len(theirs['loops'])} control loops, the optimizer {len(ours['loops'])}: make it with the "
            "same `target` and `layers`"
        )
