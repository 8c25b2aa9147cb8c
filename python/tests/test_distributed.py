"""Several processes: DDP has the same λ everywhere, FSDP2 the numbers of one process."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import batch, network, train
from torch import nn

from bregman.torch import AdaBreg, LinBreg, Masks, sparse_init_, sparsity

STEPS = 30
OPTIMIZERS = {
    "elements": lambda model: AdaBreg(model, target=0.9),
    "rows": lambda model: LinBreg(model, target=0.7, lr=0.3, penalty="group_row"),
}


def start(seed: int = 0) -> nn.Module:
    model = sparse_init_(network(seed))
    model[1].eval()  # statistics of half a batch differ from those of all
    return model


def ddp(rank: int, same_batches: bool) -> tuple:
    """Trains on whole batches in each of two processes, or on half a batch in each."""
    model = start()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = AdaBreg(model, target=0.9)
    for step in range(STEPS):
        x, y = batch(step)
        half = slice(None) if same_batches else slice(rank * 8, rank * 8 + 8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(x[half]), y[half]).backward()
        optimizer.step()
    return model.state_dict(), optimizer.state_dict()["param_groups"], optimizer.report


def halves(seed: int = 0) -> nn.Module:
    """A model of which each of two processes has half."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(start(seed), mesh=init_device_mesh("cpu", (2,)))


def wholes(tensors: Any) -> list[torch.Tensor]:
    return [tensor.full_tensor().detach().clone() for tensor in tensors]


def fsdp(kind: str) -> tuple:
    """Trains half a model in each process."""
    model = halves()
    optimizer = OPTIMIZERS[kind](model)
    train(model, optimizer, range(STEPS))
    assert model[4].weight.to_local().shape[0] == 16 and model[0].weight.to_local().shape[0] == 8
    duals = wholes(optimizer.state[p]["dual"] for p in model.parameters())
    return wholes(model.parameters()), duals, optimizer.report


def with_whole_tensors(state: dict) -> dict:
    """A state as one process saves it."""
    arrays = state["state"].items()
    whole = {number: {array: values.full_tensor() for array, values in own.items()} for number, own in arrays}
    return {**state, "state": whole}


def through_torch(whole: bool) -> Callable[[nn.Module, AdaBreg], Callable[[nn.Module, AdaBreg], None]]:
    from torch.distributed.checkpoint import state_dict as checkpoint

    options = checkpoint.StateDictOptions(full_state_dict=whole)

    def save(model: nn.Module, optimizer: AdaBreg) -> Callable[[nn.Module, AdaBreg], None]:
        saved = copy.deepcopy(checkpoint.get_optimizer_state_dict(model, optimizer, options=options))
        return lambda model, optimizer: checkpoint.set_optimizer_state_dict(model, optimizer, saved, options=options)

    return save


def by(change: Callable[[dict], dict]) -> Callable[[nn.Module, AdaBreg], Callable[[nn.Module, AdaBreg], None]]:
    def save(_: nn.Module, optimizer: AdaBreg) -> Callable[[nn.Module, AdaBreg], None]:
        saved = change(copy.deepcopy(optimizer.state_dict()))
        return lambda _, optimizer: optimizer.load_state_dict(saved)

    return save


SAVED = {
    "parts by state_dict": by(lambda state: state),
    "whole tensors by state_dict": by(with_whole_tensors),
    "parts by torch's checkpoints": through_torch(whole=False),
    "whole tensors by torch's checkpoints": through_torch(whole=True),
}


def resumed() -> dict[str, tuple]:
    """Trains on, and from what was saved in the middle."""
    model = halves()
    optimizer = AdaBreg(model, target=0.9, period=10)
    train(model, optimizer, range(15))
    weights = copy.deepcopy(model.state_dict())
    load = {kind: save(model, optimizer) for kind, save in SAVED.items()}
    train(model, optimizer, range(15, STEPS))
    results = {"unbroken": (wholes(model.parameters()), optimizer.report)}
    for kind in SAVED:
        model = halves(seed=1)
        optimizer = AdaBreg(model, target=0.9, period=10)
        load[kind](model, optimizer)
        model.load_state_dict(copy.deepcopy(weights))
        train(model, optimizer, range(15, STEPS))
        results[kind] = (wholes(model.parameters()), optimizer.report)
    return results


def replicated() -> tuple:
    """Steps by gradients that every process has all of."""
    from torch.distributed.tensor import Replicate

    def trained(change: Callable[[Any], Any]) -> list[torch.Tensor]:
        model = halves()
        optimizer = AdaBreg(model, target=0.9)
        for step in range(5):
            x, y = batch(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            for parameter in model.parameters():
                parameter.grad = change(parameter.grad)
            optimizer.step()
        return wholes(model.parameters())

    return trained(lambda gradient: gradient), trained(lambda gradient: gradient.redistribute(placements=[Replicate()]))


def mistakes(rank: int) -> dict[str, str]:
    """What is raised in this process."""

    def raised(act: Callable[[], Any]) -> str:
        try:
            return str(act())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    model = halves()
    optimizer = AdaBreg(model, target=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if rank == 1:
        model[4].weight.grad.to_local()[0, 0] = torch.nan
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "nan": raised(optimizer.step),
        "sparse_init_": raised(lambda: sparse_init_(model)),
        "masks": raised(lambda: Masks(model, sgd, "rigl", target=0.9, steps=10)),
        "sparsity": raised(lambda: sparsity(halves())),
    }


def work(rank: int, folder: str) -> None:
    """One of two processes."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    results = {f"ddp {same}": ddp(rank, same) for same in (True, False)}
    results |= {f"fsdp {kind}": fsdp(kind) for kind in OPTIMIZERS}
    results |= {"resumed": resumed(), "replicated": replicated(), "mistakes": mistakes(rank)}
    torch.save(results, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What two processes found."""
    folder: Path = tmp_path_factory.mktemp("processes")
    mp.spawn(work, (str(folder),), nprocs=2)
    return [torch.load(folder / str(rank), weights_only=False) for rank in range(2)]


def alone(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = start()
    optimizer = OPTIMIZERS[kind](model)
    train(model, optimizer, range(STEPS))
    return model, optimizer


@pytest.mark.parametrize("same_batches", [True, False])
def test_two_processes_under_ddp_have_one_lambda_and_the_weights_of_one(both: list[dict], same_batches: bool) -> None:
    first, second = (results[f"ddp {same_batches}"] for results in both)
    assert str(first[1]) == str(second[1]) and first[2] == second[2]
    assert all(torch.equal(a, b) for a, b in zip(first[0].values(), second[0].values()))
    model, optimizer = alone("elements")
    for name, ours in model.state_dict().items():
        if same_batches:  # (g + g)/2 is g
            assert torch.equal(first[0][name], ours), name
        else:  # halves are averaged in another order
            torch.testing.assert_close(first[0][name], ours, atol=2e-3, rtol=1e-2)
    assert first[2].sparsity == pytest.approx(optimizer.report.sparsity, abs=1e-3)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_two_halves_under_fsdp2_are_steered_as_the_whole(both: list[dict], kind: str) -> None:
    first, second = (results[f"fsdp {kind}"] for results in both)
    assert first[2] == second[2]
    model, optimizer = alone(kind)
    for weights, duals, parameter in zip(first[0], first[1], model.parameters()):
        torch.testing.assert_close(weights, parameter.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(duals, optimizer.state[parameter]["dual"], atol=1e-5, rtol=1e-4)
    assert first[2].sparsity == pytest.approx(optimizer.report.sparsity, abs=1e-6)
    assert first[2].lambda_ == pytest.approx(optimizer.report.lambda_, rel=1e-4)


@pytest.mark.parametrize("kind", SAVED)
def test_a_run_resumed_under_fsdp2_equals_an_unbroken_one_to_the_bit(both: list[dict], kind: str) -> None:
    for results in both:
        (unbroken, report), (weights, its_report) = results["resumed"]["unbroken"], results["resumed"][kind]
        assert its_report == report
        assert all(torch.equal(a, b) for a, b in zip(weights, unbroken))


def test_gradients_that_are_placed_otherwise_give_the_same_steps(both: list[dict]) -> None:
    for own, replicated in (results["replicated"] for results in both):
        assert all(torch.equal(a, b) for a, b in zip(own, replicated))


def test_a_gradient_that_is_not_finite_in_one_process_is_the_same_error_in_both(both: list[dict]) -> None:
    first, second = (results["mistakes"]["nan"] for results in both)
    assert first == "FloatingPointError: parameter `4.weight`: the gradient of another process is not finite"
    assert second.startswith("FloatingPointError: parameter `4.weight`: gradient[0] is NaN")


def test_what_needs_whole_weights_refuses_halves_by_name_and_zeros_of_all_are_counted(both: list[dict]) -> None:
    for mistakes in (results["mistakes"] for results in both):
        refused = "ValueError: parameter `0.weight` is spread over processes: "
        assert mistakes["sparse_init_"] == f"{refused}call sparse_init_ before fully_shard"
        assert mistakes["masks"].startswith(refused)
        assert float(mistakes["sparsity"]) == sparsity(start())
