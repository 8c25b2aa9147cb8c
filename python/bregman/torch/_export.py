"""Sparse networks as files for others: what the program makes of a network that it knows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn


def export(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    front_end: str | Mapping[str, object] | None = None,
    threshold: float | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a speaker network as a model file or as ONNX, by the end of the file's name: ``.breg`` or ``.onnx``.

    model: a network that ``bregman export`` recognises by its names and shapes: WeSpeaker's ECAPA and ResNet34, CAM++,
        or SpeechBrain's ECAPA; a classifier in it is left out. A ``.breg`` keeps only weights that are not zero, and
        runs faster for it: see ``bregman.Model``. Zeros stay zeros in an ONNX file. Any other network goes to ONNX by
        ``torch.onnx.export``.
    front_end: the features on which the network was trained. ``"wespeaker"`` (and ``"pyannote"``): Kaldi's filterbank,
        Hamming window, samples × 32768; ``"3d-speaker"``: Povey window, samples in ±1; ``"speechbrain"``; or a mapping
        with the settings of a recipe's ``data.features``, such as ``{"window": "povey", "bins": 40}``. The mean of each
        bin over the utterance is taken off in all of them. Where it is left out, the program assumes what networks of
        this kind usually have, and a ``UserWarning`` says what.
    threshold: cosines above it are of one speaker; for ``bregman.Model.verify``. Only in a ``.breg``.

    Raises ValueError with the program's words for a network that it does not know, and for a CAM++ without a front end,
    if nothing in it tells whose it is.
    """
    path = Path(path)
    options = {".breg": "--out", ".onnx": "--onnx"}
    if path.suffix not in options:
        raise ValueError(f"{path} is to be written as {path.suffix or 'a file without an ending'}: .breg or .onnx")
    if threshold is not None and path.suffix != ".breg":
        raise ValueError(f"{path} cannot hold a threshold: a .breg can")
    settings: list[str] = []
    if front_end is not None:
        named = front_end if isinstance(front_end, str) else json.dumps(dict(front_end))
        settings.append(f"--front-end={named}")
    if threshold is not None:
        settings.append(f"--threshold={threshold}")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / f"{path.stem}.pt"
        torch.save({name: values.detach().cpu() for name, values in model.state_dict().items()}, weights)
        command = [program(), "export", str(weights), options[path.suffix], str(path)]
        done = subprocess.run(command + settings + ["--force"] * overwrite, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    if done.stderr:
        warnings.warn(f"{path}: {done.stderr.strip()}", stacklevel=2)


def program() -> str:
    """Where the program is that came with this package."""
    beside = Path(sysconfig.get_path("scripts")) / "bregman"
    found = str(beside) if beside.exists() else shutil.which("bregman")
    if found is None:
        raise FileNotFoundError("the program `bregman`, which comes with this package, is not on the PATH")
    return found
