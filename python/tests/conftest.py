"""What the tests share: networks, batches, golden numbers, and both ways of computing a step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

# where a machine announces AMX and does not permit it, torch's bf16 products end the process
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# the networks are small, and threads that wait for each other in a loop take forever on a machine that is busy
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file
from torch import nn

import bregman.torch._place

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(os.environ.get("GOLDEN_DIR", ROOT / "golden"))


@pytest.fixture(params=["core", "torch operations"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who computes a step: the core, or torch's operations as on devices without a kernel of ours."""
    if request.param != "core":
        monkeypatch.setattr(bregman.torch._place, "has_kernel", lambda device: False)
    return request.param


def golden(name: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """Settings and tensors of a case."""
    return json.loads((GOLDEN / f"{name}.json").read_text()), load_file(GOLDEN / f"{name}.safetensors")


def network(seed: int = 0) -> nn.Sequential:
    """A convolution, a norm and two linear layers for batches of `batch`."""
    torch.manual_seed(seed)
    convolution = [nn.Conv1d(4, 16, 3, padding=1, bias=False), nn.BatchNorm1d(16), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(16 * 8, 32), nn.ReLU(), nn.Linear(32, 5))


def batch(seed: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Signals of four channels and eight positions, whose class is where the largest mean is."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 4, 8, generator=random)
    return x, x.mean(2).argmax(1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """One step per batch."""
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
