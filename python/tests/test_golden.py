"""The optimizers against the numbers of the published implementations, step by step, as the core's own test."""

from __future__ import annotations

import pytest
import torch
from conftest import golden
from torch import nn

from bregman.torch import AdaBreg, LinBreg, Multiplicative, ProxSGD

SETTINGS, TENSORS = golden("optimizers")
PENALTIES = {"l1": "l1", "l1l2conv": "group_kernel", "l1l2": "group_row"}
TOLERANCE = 3e-5


def parameters(names: list[str]) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(TENSORS[f"init.{name}"].reshape(SETTINGS["shapes"][name]).clone()) for name in names}


def set_gradients(params: dict[str, nn.Parameter], step: int) -> None:
    for name, parameter in params.items():
        parameter.grad = TENSORS[f"grad.{name}"].reshape(-1, *parameter.shape)[step - 1].clone()


def optimizer_of(name: str, params: dict[str, nn.Parameter], **settings):
    kind, _, momentum = name.partition("_m0")
    delta = settings.pop("delta", 1.0)
    if kind == "linbreg":
        momentum = float(f"0.{momentum}") if momentum else 0.0
        return LinBreg(params.items(), momentum=momentum, delta=delta, **{"variant": "plain", **settings})
    if kind == "adabreg":
        adam = SETTINGS["adabreg"]
        return AdaBreg(params.items(), betas=tuple(adam["betas"]), eps=adam["eps"], delta=delta, **settings)
    assert kind == "proxsgd"
    return ProxSGD(params.items(), **settings)


@pytest.mark.parametrize("run", SETTINGS["runs"])
def test_every_optimizer_follows_the_reference_step_by_step(run: str, engine: str) -> None:
    settings = SETTINGS["runs"][run]
    params = parameters(settings["tensors"])
    optimizer = optimizer_of(
        run.split(".")[0],
        params,
        lr=settings["lr"],
        delta=settings.get("delta", 1.0),
        lambda_=settings["lambda"],
        penalty=PENALTIES[settings["regularizer"]],
    )
    for step in range(1, SETTINGS["steps"] + 1):
        set_gradients(params, step)
        optimizer.step()
        if step not in SETTINGS["snapshots"]:
            continue
        for name, parameter in params.items():
            key = f"{run}.{name}.step{step}"
            expected = TENSORS[f"{key}.param"].reshape(parameter.shape)
            torch.testing.assert_close(parameter.data, expected, atol=TOLERANCE, rtol=0)
            assert torch.equal(parameter == 0, expected == 0), f"{key}: zero pattern"
            assert optimizer.zeros()[name] == (settings["zeros_after"][str(step)][name], parameter.numel())
            if f"{key}.subgrad" in TENSORS:
                dual = TENSORS[f"{key}.subgrad"].reshape(parameter.shape)
                torch.testing.assert_close(optimizer.state[parameter]["dual"], dual, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("run", SETTINGS["coupled"])
def test_optimizer_and_controller_together_follow_the_reference(run: str, engine: str) -> None:
    settings, steps = SETTINGS["coupled"][run], SETTINGS["steps"]
    params = parameters([name for name in SETTINGS["shapes"] if f"{run}.{name}.step{steps}.param" in TENSORS])
    optimizer = optimizer_of(
        run.split(".")[1],
        params,
        target=settings["target_sparsity"],
        lr=settings["lr"],
        delta=settings["delta"],
        variant="plain",
        lambda_=settings["initial_lambda"],
        law=Multiplicative(alpha=settings["alpha"], damping=None),
        period=1,
    )
    for step in range(1, steps + 1):
        set_gradients(params, step)
        optimizer.step()
        columns = ("lambda_used", "sparsity", "lambda_after")
        expected = {column: TENSORS[f"{run}.{column}"][step - 1].item() for column in columns}
        assert optimizer.report.lambda_ == pytest.approx(expected["lambda_used"], rel=1e-9)
        assert optimizer.sparsity == pytest.approx(expected["sparsity"], abs=1e-12)
        assert optimizer.lambda_ == pytest.approx(expected["lambda_after"], rel=1e-9)
    for name, parameter in params.items():
        expected = TENSORS[f"{run}.{name}.step{steps}.param"].reshape(parameter.shape)
        torch.testing.assert_close(parameter.data, expected, atol=TOLERANCE, rtol=0)
