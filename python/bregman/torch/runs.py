"""Exchange of a training with the program: a run of ``bregman train`` goes on in PyTorch, and back.

A checkpoint of a run is a folder: weights under WeSpeaker's names, the optimizer's arrays, λ and the control loops. The
module must have these names: WeSpeaker's ECAPA or ResNet34 with its classifier as ``projection``, which is how its own
training has them. Data, schedule and loss are each side's own.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ._base import SAVED, BregmanOptimizer

FORMAT = 1
"""The format of a run's files that is read and written here: ``RUN_FORMAT`` of the program."""
OF_PROGRAM = {"dual": "p", "momentum_buffer": "m", "exp_avg": "m", "exp_avg_sq": "v"}
"""What the program calls the arrays of an optimizer."""


def load_run(run: str | os.PathLike[str], model: nn.Module, optimizer: BregmanOptimizer) -> int:
    """Continues where a run of the program stands: loads weights, duals, moments, λ and control loops.

    run: the folder of a run, or of one of its checkpoints. The optimizer must be of the run's kind, over the module's
    own parameters, with the run's settings (target, law and so on, which stand in the run's ``config.toml``).
    Returns the number of steps taken. Raises ValueError, with the parameter's name, for a run of another network.
    """
    folder = checkpoint_of(Path(run))
    state = read_state(folder)
    weights, arrays = read_tensors(folder / "model.safetensors"), read_tensors(folder / "optimizer.safetensors")
    own = model.state_dict()
    check_names(folder, own.keys(), weights.keys())
    numbers = [number for group in optimizer.state_dict()["param_groups"] for number in group["params"]]
    names = names_of(optimizer)
    saved = {
        number: {array: arrays_of(folder, arrays, name, OF_PROGRAM[array], own) for array in optimizer._arrays}
        for number, name in zip(numbers, names)
    }
    for number, name in zip(numbers, names):
        if own[name].dtype is not torch.float32:
            saved[number]["weight"] = weights[name]  # the run's weights are not rounded
    check_order(folder, names, state.get("parameters") or names)
    groups = optimizer.state_dict()["param_groups"]
    groups[0][SAVED] = json.dumps(
        {"step": state["step"], "lambda": lambdas_for(names, state), "loops": loops_for(optimizer, state)}
    )
    model.load_state_dict(weights)
    optimizer.load_state_dict({"state": saved, "param_groups": groups})
    return int(state["step"])


def save_run(
    run: str | os.PathLike[str], model: nn.Module, optimizer: BregmanOptimizer, *, epoch: int | None = None
) -> None:
    """Makes a run of the program go on from here: ``bregman train … --out RUN --resume``.

    run: the folder of a run that has a checkpoint; for a training that began in PyTorch, start the program with the
    recipe and stop it by Ctrl-C after its first step. epoch: the one that the program begins with then, from 0; without
    it goes on with the batch before which it stopped. The number of steps, which the learning rate and the optimizer
    go by, is that of the optimizer.
    Raises ValueError where the run has a better epoch of more steps (``best/``), from which the program would go on.
    """
    folder = settled(Path(run) / "last")
    state, weights = read_state(folder), model.state_dict()
    check_names(folder, weights.keys(), read_tensors(folder / "model.safetensors").keys())
    saved = json.loads(optimizer._save() or "null")
    if saved is None:
        raise ValueError("the optimizer has taken no step: there is nothing to go on from")
    names = names_of(optimizer)
    lambdas = dict(zip(names, saved["lambda"]))
    order = state.get("parameters") or names
    check_order(folder, names, order)
    refuse_behind(Path(run) / "best", saved["step"])
    state |= {"step": saved["step"], "parameters": order, "lambda": [lambdas[name] for name in order]}
    state |= {"loops": saved["loops"] and loops_in_order(optimizer, saved["loops"], order), "finished": False}
    if optimizer.report is not None:
        state["sparsity"] = optimizer.sparsity
    if epoch is not None:
        state |= {"position": {"epoch": epoch, "batch": 0}, "sums": {"loss": 0.0, "correct": 0, "cuts": 0}}
    arrays = {
        f"{name}.{OF_PROGRAM[array]}": plain(values).flatten()
        for name, slot in zip(names, optimizer._slots())
        for array, values in slot.state.items()
        if array in OF_PROGRAM
    }
    weights |= {name: slot.weights() for name, slot in zip(names, optimizer._slots())}
    replace(folder, {name: plain(values) for name, values in weights.items()}, arrays, state)


def plain(values: torch.Tensor) -> torch.Tensor:
    """As the program keeps it: in single precision, but for counters."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values).contiguous().clone()


def replace(folder: Path, weights: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> None:
    """Puts another checkpoint into the place of one, as a whole, under the names and in the order of the program: it is
    written and synced as `last.new`, then `last` becomes `last.old`, then `last.new` becomes `last`. Wherever that is
    interrupted, `whole`, `settled` and ``--resume`` find a whole one."""
    from safetensors.torch import save_file

    metadata = {"bregman_run_format": str(FORMAT)}
    fresh, before = beside(folder)
    fresh.mkdir()
    try:
        shutil.copy(folder / "config.toml", fresh)
        save_file(weights, fresh / "model.safetensors", metadata=metadata)
        save_file(arrays, fresh / "optimizer.safetensors", metadata=metadata)
        (fresh / "state.json").write_text(json.dumps(state, indent=2) + "\n")
        for path in (*fresh.iterdir(), fresh):
            sync(path)
        folder.rename(before)
        fresh.rename(folder)
        sync(folder.parent)
    finally:
        settled(folder)


def settled(folder: Path) -> Path:
    """The checkpoint, put in order if a process was killed while it replaced it."""
    fresh, before = beside(folder)
    if not folder.exists() and before.exists():
        before.rename(folder)
    for left in (before, fresh):
        if left.exists():
            shutil.rmtree(left)
    return folder


def whole(folder: Path) -> Path:
    """The checkpoint, or where it is being replaced, the old one."""
    return folder if folder.exists() else beside(folder)[1]


def beside(folder: Path) -> tuple[Path, Path]:
    """What a checkpoint is called before it takes its place, and after another has taken it."""
    return folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def checkpoint_of(path: Path) -> Path:
    """The checkpoint at a path, or the last one of the run there."""
    folder = path if (path / "state.json").exists() else whole(path / "last")
    if not (folder / "state.json").exists():
        raise FileNotFoundError(f"{path} is neither a run with a checkpoint nor a checkpoint: it has no state.json")
    return folder


def read_state(folder: Path) -> dict[str, Any]:
    """Where the run stands."""
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    if state.get("format", FORMAT) > FORMAT:
        raise ValueError(f"{folder}/state.json is of format {state['format']}, newer than {FORMAT}: update bregman")
    return state


def read_tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise ImportError("runs are exchanged as safetensors files: pip install safetensors") from None
    return load_file(file)


def names_of(optimizer: BregmanOptimizer) -> list[str]:
    """The optimizer's parameters, in its order."""
    return [name for group in optimizer.param_groups for name in group["param_names"]]


def check_names(folder: Path, own: Any, theirs: Any) -> None:
    alone = [f"the module has `{name}`, which it lacks" for name in own if name not in theirs]
    alone += [f"it has `{name}`, which the module lacks" for name in theirs if name not in own]
    if alone:
        raise ValueError(f"{folder} is of another network: {alone[0]}")


def check_order(folder: Path, own: list[str], theirs: list[str]) -> None:
    alone = [f"the run trains `{name}`, which the optimizer lacks: is it frozen?" for name in theirs if name not in own]
    alone += [f"the optimizer has `{name}`, which the run does not train" for name in own if name not in theirs]
    if alone:
        raise ValueError(f"{folder}: {alone[0]}")


def refuse_behind(best: Path, step: int) -> None:
    """The program goes on from the checkpoint that is furthest."""
    reached = read_state(best)["step"] if (best / "state.json").exists() else 0
    if reached > step:
        raise ValueError(
            f"{best} has {reached} steps, the optimizer {step}: the program would go on from there, so move it away"
        )


def arrays_of(
    folder: Path, arrays: dict[str, torch.Tensor], name: str, array: str, weights: dict[str, torch.Tensor]
) -> torch.Tensor:
    """An array of a parameter in the shape of its weights."""
    if f"{name}.{array}" not in arrays:
        raise ValueError(f"{folder} has no `{array}` of `{name}`: is it of another optimizer, or of another network?")
    values = arrays[f"{name}.{array}"]
    if values.numel() != weights[name].numel():
        raise ValueError(f"{folder}: `{array}` of `{name}` has {values.numel()} values, not {weights[name].numel()}")
    return values.reshape(weights[name].shape)


def lambdas_for(names: list[str], state: dict[str, Any]) -> list[float]:
    """λ of the optimizer's parameters."""
    if not state.get("parameters"):
        raise ValueError("the run does not name its parameters: let `bregman train --resume` of today save it once")
    by_name = dict(zip(state["parameters"], state["lambda"]))
    return [by_name[name] for name in names]


def loops_for(optimizer: BregmanOptimizer, state: dict[str, Any]) -> list[Any]:
    """The control loops: one of all weights, or one per layer in the optimizer's order."""
    return reordered(state["loops"], steered(optimizer, state["parameters"]), steered(optimizer, names_of(optimizer)))


def loops_in_order(optimizer: BregmanOptimizer, loops: list[Any], order: list[str]) -> list[Any]:
    """The same in the order of the program."""
    return reordered(loops, steered(optimizer, names_of(optimizer)), steered(optimizer, order))


def steered(optimizer: BregmanOptimizer, order: list[str]) -> list[str]:
    """The parameters whose λ is steered, in this order."""
    penalised = {
        name
        for group in optimizer.param_groups
        for name, parameter in zip(group["param_names"], group["params"])
        if group["penalty"] != "none" and parameter.dim() >= 2
    }
    return [name for name in order if name in penalised]


def reordered(loops: list[Any], before: list[str], after: list[str]) -> list[Any]:
    if len(loops) != len(before):
        return loops
    by_name = dict(zip(before, loops))
    return [by_name[name] for name in after]
