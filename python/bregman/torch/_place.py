"""Where parameters are, and who computes the step there."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import warnings
from pathlib import Path

import torch

from .. import _bregman
from ._ops import TorchOps
from ._shards import Shards

Arrays = tuple["torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None"]
"""Dual, first and second moment; None for those that are not kept."""


CUDA_KERNEL = "BREGMAN_CUDA_KERNEL"
"""Environment variable: 1 lets our kernel compute on NVIDIA GPUs. Not the default before it was tested on one."""


class Place:
    """A device: the CPU has a kernel of ours, and so have NVIDIA GPUs; on others torch's own operations compute."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.alignment = 16 if device.type == "cuda" else 4
        """Addresses must be a multiple of this."""
        self.by_kernel = has_kernel(device)

    def lend(
        self,
        stepper: _bregman.Stepper,
        addresses: list[tuple[int, int, int, int]],
        arrays: list[Arrays],
        shards: Shards,
    ) -> TorchOps | None:
        """Gives an optimizer its arrays. Returns what computes where it is torch."""
        add = shards.sum(self.device)
        if self.by_kernel and self.device.type == "cuda":
            load_compiler()
            try:
                stepper.lend(addresses, self.device.index or 0, None, add, shards.counts)
                return None
            except RuntimeError as problem:
                self.by_kernel = False
                warnings.warn(f"{problem}; torch's own operations compute the step, more slowly", stacklevel=5)
        ops = None if self.by_kernel else TorchOps(arrays)
        stepper.lend(addresses, None, ops, add, shards.counts)
        return ops

    def stream(self) -> int:
        """What the step has to wait for: the handle of torch's current stream on a GPU."""
        if not self.by_kernel or self.device.type != "cuda":
            return 0
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a Bregman optimizer cannot be captured in a CUDA graph: step outside of the capture")
        return torch.cuda.current_stream(self.device).cuda_stream


def has_kernel(device: torch.device) -> bool:
    """Whether the core may compute on this device; torch does on others."""
    return device.type == "cpu" or (device.type == "cuda" and os.environ.get(CUDA_KERNEL) == "1")


@functools.cache
def load_compiler() -> None:
    """Loads NVRTC from the packages that torch brings along, after which it is found by its name."""
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for library in Path(folder).glob("*/lib/libnvrtc.so.*"):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
