"""Bregman optimizers for PyTorch: train any ``nn.Module`` to the sparsity you ask for.

>>> model = nn.Sequential(...)                                        # doctest: +SKIP
>>> bregman.torch.sparse_init_(model)                                 # doctest: +SKIP
>>> optimizer = bregman.torch.AdaBreg(model, target=0.95)             # doctest: +SKIP
>>> for x, y in batches:                                              # doctest: +SKIP
...     loss(model(x), y).backward()
...     optimizer.step()
...     optimizer.zero_grad()
>>> bregman.torch.sparsity(model)                                     # doctest: +SKIP
0.95
"""

from ._export import export
from ._optimizers import STR, AdaBreg, LinBreg, ProxSGD, Report
from .control import (
    Band,
    Budget,
    Crossings,
    Density,
    LayerLimit,
    Law,
    Multiplicative,
    Quantile,
    Ramp,
)
from .masks import Masks
from .runs import load_run, save_run
from .start import sparse_init_, sparsity

__all__ = [
    "STR",
    "AdaBreg",
    "Band",
    "Budget",
    "Crossings",
    "Density",
    "LayerLimit",
    "Law",
    "LinBreg",
    "Masks",
    "Multiplicative",
    "ProxSGD",
    "Quantile",
    "Ramp",
    "Report",
    "export",
    "load_run",
    "save_run",
    "sparse_init_",
    "sparsity",
]
