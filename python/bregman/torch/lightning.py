"""λ and sparsity in Lightning's log."""

from __future__ import annotations

from typing import Any

from ._base import BregmanOptimizer

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment, no-redef, unused-ignore]


class SparsityLogger(Callback):  # type: ignore[misc, unused-ignore]
    """Logs ``sparsity``, ``lambda`` and, where one is set, ``target`` after every step of a Bregman optimizer.

    With several of them the names end in the number of the optimizer: ``sparsity/1``.
    """

    def __init__(self, prefix: str = "") -> None:
        """prefix: stands before every name."""
        self.prefix = prefix

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        found = [optimizer for optimizer in trainer.optimizers if isinstance(optimizer, BregmanOptimizer)]
        for number, optimizer in enumerate(found):
            if optimizer.report is None:
                continue
            suffix = f"/{number}" if len(found) > 1 else ""
            lambda_, sparsity, target = optimizer.report
            values = {"lambda": lambda_, "sparsity": sparsity, **({} if target is None else {"target": target})}
            for name, value in values.items():
                pl_module.log(f"{self.prefix}{name}{suffix}", value, on_step=True, on_epoch=False)
