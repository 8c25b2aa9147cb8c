"""Several processes: DDP has the same λ everywhere, FSDP2 the numbers of one process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import batch, network, train
from torch import nn

from bregman.torch import AdaBreg, LinBreg, sparse_init_

STEPS = 30
OPTIMIZERS = {
    "elements": lambda model: AdaBreg(model, target=0.9),
    "rows": lambda model: LinBreg(model, target=0.7, lr=0.3, penalty="group_row"),
}


def start() -> nn.Module:
    model = sparse_init_(network())
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


def fsdp(kind: str) -> tuple:
    """Trains a model of which each of two processes has half."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = start()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = OPTIMIZERS[kind](model)
    train(model, optimizer, range(STEPS))
    assert model[4].weight.to_local().shape[0] == 16 and model[0].weight.to_local().shape[0] == 8
    duals = [optimizer.state[p]["dual"].full_tensor() for p in model.parameters()]
    weights = [p.full_tensor().detach() for p in model.parameters()]
    return weights, duals, optimizer.report


def work(rank: int, folder: str) -> None:
    """One of two processes."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    results = {f"ddp {same}": ddp(rank, same) for same in (True, False)}
    results |= {f"fsdp {kind}": fsdp(kind) for kind in OPTIMIZERS}
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
