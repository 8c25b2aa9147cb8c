"""On an NVIDIA GPU: our kernel takes the steps of the CPU, in the order of torch's streams, and in CUDA graphs."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import network
from test_torch import MAKE
from torch import nn

import bregman.torch._place
from bregman.torch import STR, AdaBreg, LinBreg, Multiplicative, sparse_init_
from bregman.torch._base import SAVED

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def steps_on(device: str, make, count: int = 40) -> tuple[list[torch.Tensor], list[bregman.torch.Report], bool]:
    """Steps by gradients that are the same everywhere: the weights, what each step did, and whether by our kernel."""
    model = sparse_init_(network(), 0.7).to(device)
    optimizer, reports = make(model), []
    for step in range(count):
        random = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = 0.1 * torch.randn(parameter.shape, generator=random).to(device)
        optimizer.step()
        reports.append(optimizer.report)
    return [p.detach().cpu() for p in model.parameters()], reports, optimizer._ops is None


@pytest.mark.parametrize("penalty", ["l1", "l1_non_negative", "group_kernel", "group_row"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
def test_the_kernel_takes_the_steps_of_the_cpu(make, penalty: str) -> None:
    weights, reports, _ = steps_on("cpu", lambda model: make(model, penalty=penalty))
    on_gpu, its_reports, by_kernel = steps_on("cuda", lambda model: make(model, penalty=penalty))
    assert by_kernel
    for ours, theirs in zip(weights, on_gpu):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(reports, its_reports):
        assert theirs.lambda_ == pytest.approx(ours.lambda_, rel=1e-5)
        assert theirs.sparsity == pytest.approx(ours.sparsity, abs=1e-3)


def test_learnt_thresholds_are_those_of_the_cpu() -> None:
    weights, reports, _ = steps_on("cpu", lambda model: STR(model, threshold_decay=0.2))
    on_gpu, its_reports, by_kernel = steps_on("cuda", lambda model: STR(model, threshold_decay=0.2))
    assert by_kernel and reports[-1].lambda_ > 2 * reports[0].lambda_
    for ours, theirs in zip(weights, on_gpu):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)
    assert [report.lambda_ for report in its_reports] == pytest.approx([report.lambda_ for report in reports], rel=1e-4)


def test_a_step_waits_for_the_stream_that_computes_gradients() -> None:
    parameter = nn.Parameter(torch.zeros(256, 256, device="cuda"))
    optimizer = LinBreg([parameter], lr=1.0, lambda_=0.5)
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # a tenth of a second
        parameter.grad.fill_(-1.0)
        optimizer.step()
        after = parameter.sum()
    torch.cuda.synchronize()
    assert after.item() == 0.5 * 256 * 256


def test_weights_that_are_not_aligned_or_not_float32_are_copied() -> None:
    memory = torch.zeros(1 + 64 * 32, device="cuda")
    shifted = nn.Parameter(memory[1:].view(64, 32))
    half = nn.Parameter(torch.zeros(64, 32, device="cuda", dtype=torch.bfloat16))
    plain = nn.Parameter(torch.zeros(64, 32, device="cuda"))
    optimizer = AdaBreg([shifted, half, plain], target=0.5, law=Multiplicative())
    torch.manual_seed(0)
    gradient = torch.randn(64, 32, device="cuda").bfloat16()
    for _ in range(150):
        shifted.grad, half.grad, plain.grad = gradient.float(), gradient.clone(), gradient.float()
        optimizer.step()
    assert optimizer._ops is None and (plain != 0).any()
    assert torch.equal(shifted, plain) and torch.equal(half, plain.bfloat16())


def test_a_resumed_run_on_the_gpu_equals_an_unbroken_one_to_the_bit() -> None:
    def go(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            random = torch.Generator("cuda").manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=random, device="cuda")
            optimizer.step()

    model = sparse_init_(network()).cuda()
    optimizer = AdaBreg(model, target=0.9)
    go(model, optimizer, range(20))
    twin = copy.deepcopy(model)
    its_optimizer = AdaBreg(twin, target=0.9)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    go(model, optimizer, range(20, 40))
    go(twin, its_optimizer, range(20, 40))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))


def test_a_gradient_that_is_not_finite_is_named_when_the_step_is_over() -> None:
    model = network().cuda()
    optimizer = AdaBreg(model, target=0.9, law=Multiplicative())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model[4].weight.grad[1, 2] = torch.nan
    for when in (optimizer.step, lambda: optimizer.report, optimizer.state_dict):
        optimizer.step()
        with pytest.raises(FloatingPointError, match=r"`4.weight`: gradient\[130\] is NaN"):
            when()
    assert optimizer.report is None
    model[4].weight.grad[1, 2] = 0.0
    optimizer.step()
    assert optimizer.report is not None


def test_steps_do_not_wait_for_the_gpu() -> None:
    parameter = nn.Parameter(torch.zeros(256, 256, device="cuda"))
    optimizer = AdaBreg([parameter], target=0.5, law=Multiplicative())
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)  # a fifth of a second
    optimizer.step()
    done = torch.cuda.Event()
    done.record()
    assert not done.query(), "the step was under way when it returned"
    assert optimizer.report is not None


GRAPHED = {
    **MAKE,
    "adabreg by the paper's law": lambda model: AdaBreg(model, target=0.9, law=Multiplicative(), period=5),
    "adabreg with λ at rest": lambda model: AdaBreg(model, lambda_=0.1),
}


@pytest.mark.parametrize("make", GRAPHED.values(), ids=GRAPHED.keys())
def test_a_captured_step_is_a_step_to_the_bit(make) -> None:
    """The learning rate changes between replays, and λ moves by its law."""

    def steps(captured: bool) -> tuple[list[torch.Tensor], list[bregman.torch.Report | None], str]:
        model = sparse_init_(network(), 0.7).cuda()
        optimizer, reports, graph = make(model), [], torch.cuda.CUDAGraph()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        if captured:
            with torch.cuda.graph(graph):
                optimizer.step()
        for step in range(140):
            random = torch.Generator("cuda").manual_seed(step)
            for parameter in model.parameters():
                parameter.grad.copy_(0.1 * torch.randn(parameter.shape, generator=random, device="cuda"))
            for group in optimizer.param_groups:
                group["lr"] *= 0.99
            optimizer.replay(graph) if captured else optimizer.step()
            if step % 7 == 0:
                reports.append(optimizer.report)
        saved = optimizer.state_dict()["param_groups"][0][SAVED]
        return [p.detach().cpu() for p in model.parameters()], reports, saved

    eager, replayed = steps(False), steps(True)
    assert eager[1:] == replayed[1:]
    assert all(torch.equal(a, b) for a, b in zip(eager[0], replayed[0]))


def test_a_whole_iteration_in_one_graph_trains_to_the_target() -> None:
    model = sparse_init_(network(), 0.7).cuda()
    optimizer = AdaBreg(model, target=0.9)
    x = torch.randn(16, 4, 8, device="cuda")
    y = x.mean(2).argmax(1)

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            iteration()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        iteration()
    for step in range(200):
        x.copy_(torch.randn(x.shape, generator=torch.Generator("cuda").manual_seed(step), device="cuda"))
        y.copy_(x.mean(2).argmax(1))
        optimizer.replay(graph)
    assert optimizer.sparsity == pytest.approx(0.9, abs=0.02)
    assert optimizer.sparsity == bregman.torch.sparsity(model)


def test_mistakes_with_graphs_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = nn.Parameter(torch.zeros(8, 8, device="cuda"))
    parameter.grad = torch.ones_like(parameter)
    optimizer = LinBreg([parameter], target=0.5)
    with pytest.raises(RuntimeError, match="no step of this optimizer was captured"):
        optimizer.replay(torch.cuda.CUDAGraph())
    with pytest.raises(RuntimeError, match="take a step before the capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    torch.cuda.synchronize()
    learnt = STR([parameter])
    learnt.step()
    with pytest.raises(RuntimeError, match="STR cannot be captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        learnt.step()
    torch.cuda.synchronize()
    monkeypatch.setattr(bregman.torch._place, "has_kernel", lambda device: False)
    by_torch = LinBreg([parameter], target=0.5)
    by_torch.step()
    with pytest.raises(RuntimeError, match="torch's operations compute"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        by_torch.step()
    torch.cuda.synchronize()


def test_a_model_that_is_moved_after_a_state_was_loaded_trains_on_and_a_half_of_it_is_refused_by_name() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.01)
        optimizer.step()

    model = network()
    optimizer = AdaBreg(model, target=0.9)
    step(model, optimizer)
    moved, halved = copy.deepcopy(model), copy.deepcopy(model)
    its_optimizer, of_halved = AdaBreg(moved, target=0.9), AdaBreg(halved, target=0.9)
    for loaded in (its_optimizer, of_halved):
        loaded.load_state_dict(optimizer.state_dict())
    moved.cuda()
    step(model, optimizer)
    step(moved, its_optimizer)
    for ours, theirs in zip(model.parameters(), moved.parameters()):
        torch.testing.assert_close(theirs.cpu(), ours, atol=1e-6, rtol=1e-5)
    halved[4].cuda()
    with pytest.raises(ValueError, match="`4.weight` is on cuda:0, the others are on cpu"):
        step(halved, of_halved)


def test_a_model_that_is_moved_after_the_first_step_is_refused_by_name() -> None:
    model = network()
    optimizer = AdaBreg(model, target=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    model.cuda()
    with pytest.raises(RuntimeError, match="`0.weight` is of torch.float32 on cuda:0 now"):
        optimizer.step()
