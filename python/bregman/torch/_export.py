"""Sparse networks as files for others: what the program makes of a network that it knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch
from torch import nn


def export(model: nn.Module, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Writes a speaker network as a model file or as ONNX, by the end of the file's name: ``.breg`` or ``.onnx``.

    model: a network that ``bregman export`` recognises by its names and shapes: WeSpeaker's ECAPA and ResNet34, or
    CAM++; a classifier in it is left out. A ``.breg`` keeps only weights that are not zero, and runs faster for it: see
    ``bregman.Model``. Zeros stay zeros in an ONNX file. Any other network goes to ONNX by ``torch.onnx.export``.
    Raises ValueError with the program's words for a network that it does not know.
    """
    path = Path(path)
    options = {".breg": "--out", ".onnx": "--onnx"}
    if path.suffix not in options:
        raise ValueError(f"{path} is to be written as {path.suffix or 'a file without an ending'}: .breg or .onnx")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / f"{path.stem}.pt"
        torch.save({name: values.detach().cpu() for name, values in model.state_dict().items()}, weights)
        command = [program(), "export", str(weights), options[path.suffix], str(path)]
        done = subprocess.run(command + ["--force"] * overwrite, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())


def program() -> str:
    """Where the program is that came with this package."""
    beside = Path(sysconfig.get_path("scripts")) / "bregman"
    found = str(beside) if beside.exists() else shutil.which("bregman")
    if found is None:
        raise FileNotFoundError("the program `bregman`, which comes with this package, is not on the PATH")
    return found
