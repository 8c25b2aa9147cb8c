"""λ, sparsity and target in Lightning's log, and masks in its loop, which computes gradients in a closure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from conftest import batch, network
from torch import nn

from bregman.torch import AdaBreg, LinBreg, Masks, sparse_init_, sparsity
from bregman.torch.lightning import SparsityLogger

pytestmark = pytest.mark.filterwarnings("ignore:::lightning", "ignore::FutureWarning", "ignore::DeprecationWarning")


class Classifier(lightning.LightningModule):
    """Trains a network by these optimizers; by several, each in turn."""

    def __init__(self, make: Callable[[nn.Module], list[torch.optim.Optimizer]], by_hand: bool = False) -> None:
        super().__init__()
        self.network, self.make, self.automatic_optimization = sparse_init_(network()), make, not by_hand

    def training_step(self, index: torch.Tensor, _: int) -> torch.Tensor:
        x, y = batch(int(index))
        loss = nn.functional.cross_entropy(self.network(x), y)
        if not self.automatic_optimization:
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()
        return loss

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return self.make(self.network)


class Recorder(lightning.Callback):
    """What was logged after every step, and what the optimizers report."""

    def __init__(self) -> None:
        self.steps: list[tuple[dict[str, float], list[Any]]] = []

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
        self.steps.append((logged, [optimizer.report for optimizer in trainer.optimizers]))


def fit(module: Classifier, *callbacks: lightning.Callback) -> None:
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=list(callbacks), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(torch.arange(60), batch_size=1))


def test_every_step_is_logged_as_the_optimizer_reports_it() -> None:
    recorder = Recorder()
    fit(Classifier(lambda model: [AdaBreg(model, target=0.9, period=10)]), SparsityLogger(), recorder)
    assert len(recorder.steps) == 60
    for logged, (report,) in recorder.steps:
        expected = {"lambda": report.lambda_, "sparsity": report.sparsity, "target": 0.9}
        assert logged == pytest.approx(expected, rel=1e-6)
    assert len({logged["lambda"] for logged, _ in recorder.steps}) > 3, "λ has moved"


def test_several_optimizers_are_told_apart_and_without_a_target_none_is_logged() -> None:
    def two(model: nn.Module) -> list[torch.optim.Optimizer]:
        first, last = list(model[0].named_parameters()), list(model[4:].named_parameters())
        return [AdaBreg(first, target=0.5), LinBreg(last, lambda_=0.02)]

    recorder = Recorder()
    fit(Classifier(two, by_hand=True), SparsityLogger(prefix="zeros/"), recorder)
    logged, (first, last) = recorder.steps[-1]
    expected = {
        "zeros/lambda/0": first.lambda_, "zeros/sparsity/0": first.sparsity, "zeros/target/0": 0.5,
        "zeros/lambda/1": last.lambda_, "zeros/sparsity/1": last.sparsity,
    }  # fmt: skip
    assert logged == pytest.approx(expected, rel=1e-6)


def test_masks_hold_in_its_loop() -> None:
    masks: list[Masks] = []

    def masked(model: nn.Module) -> list[torch.optim.Optimizer]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        masks.append(Masks(model, optimizer, "rigl", target=0.8, steps=60, period=10))
        return [optimizer]

    module = Classifier(masked)
    fit(module)
    assert masks[0].step == 60 and masks[0].sparsity == pytest.approx(0.8, abs=1e-3)
    assert sparsity(module.network) >= masks[0].sparsity - 1e-9
