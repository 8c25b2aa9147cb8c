"""Where parameters are, and who computes the step there."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import warnings
from pathlib import Path

import torch

from .. import _bregman
from ._ops import TorchOps
from ._shards import Shards

Arrays = tuple["torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None"]
"""Dual, first and second moment; None for those that are not kept."""


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
        addresses: list[tuple[int, ...]],
        arrays: list[Arrays],
        shards: Shards,
    ) -> TorchOps | None:
        """Gives an optimizer its arrays. Returns what computes where it is torch."""
        add = shards.sum(self.device)
        if self.on_gpu:
            load_compiler()
            try:
                stepper.lend(addresses, self.device.index, None, add, shards.counts)
                return None
            except RuntimeError as problem:
                self.by_kernel = False
                warnings.warn(f"{problem}; torch's own operations compute the step, more slowly", stacklevel=5)
        ops = None if self.by_kernel else TorchOps(arrays)
        opaque = self.device.type == "mps"  # whose addresses are those of objects, not of memory
        stepper.lend(addresses, None, ops, add, shards.counts, opaque)
        return ops

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Makes the GPU torch's current one, where it is not."""
        if not self.on_gpu or torch.cuda.current_device() == self.device.index:
            return contextlib.nullcontext()
        return torch.cuda.device(self.device)

    def stream(self) -> int:
        """The handle of torch's current stream on the GPU, in which a step is computed."""
        return torch._C._cuda_getCurrentRawStream(self.device.index) if self.on_gpu else 0

    @property
    def on_gpu(self) -> bool:
        """Whether our kernel computes on a GPU."""
        return self.by_kernel and self.device.type == "cuda"

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""
        if self.device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            return False
        if not self.by_kernel:
            raise RuntimeError("only our kernel can be captured in a CUDA graph, and torch's operations compute here")
        return True


def has_kernel(device: torch.device) -> bool:
    """Whether the core may compute on this device; torch does on others."""
    return device.type == "cpu" or (device.type == "cuda" and torch.version.hip is None)


@functools.cache
def load_compiler() -> None:
    """Loads NVRTC from the packages that torch brings along, after which it is found by its name."""
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for library in Path(folder).glob("*/lib/libnvrtc.so.*"):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
