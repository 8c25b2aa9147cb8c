"""The optimizers among PyTorch's own things: schedulers, closures, scalers, types, compilation, resuming."""

from __future__ import annotations

import copy
import io
import json

import pytest
import torch
from conftest import batch, network, train
from torch import nn

from bregman.torch import AdaBreg, Budget, Density, LayerLimit, LinBreg, Multiplicative, ProxSGD, Ramp
from bregman.torch import sparse_init_, sparsity

MAKE = {
    "linbreg": lambda model, **more: LinBreg(model, target=0.9, lr=0.5, **more),
    "linbreg with momentum": lambda model, **more: LinBreg(model, target=0.9, lr=0.5, momentum=0.9, **more),
    "adabreg": lambda model, **more: AdaBreg(model, target=0.9, weight_decay=0.01, **more),
    "proxsgd": lambda model, **more: ProxSGD(model, target=0.9, law=Density(), period=5, **more),
}
every_optimizer = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))


@pytest.mark.parametrize("target", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("kind", [LinBreg, AdaBreg])
def test_a_module_comes_to_the_sparsity_asked_for(kind: type, target: float, engine: str) -> None:
    model = sparse_init_(network())
    optimizer = kind(model, target=target)
    train(model, optimizer, range(200))
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    assert sparsity(model) == pytest.approx(target, abs=0.02)
    assert optimizer.sparsity == sparsity(model)
    zeros, lengths = zip(*(optimizer.zeros()[name] for name, p in model.named_parameters() if p.dim() > 1))
    assert sum(lengths) == weights and sum(zeros) == round(sparsity(model) * weights)


def test_torch_operations_take_the_steps_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(make, **more) -> nn.Module:
        model = sparse_init_(network(), 0.7)
        train(model, make(model, **more), range(30))
        return model

    for make in MAKE.values():
        for penalty in ("l1", "l1_non_negative", "group_kernel", "group_row"):
            core = trained(make, penalty=penalty)
            with monkeypatch.context() as patched:
                patched.setattr("bregman.torch._place.has_kernel", lambda device: False)
                other = trained(make, penalty=penalty)
            for a, b in zip(core.parameters(), other.parameters()):
                torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@every_optimizer
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(make, engine: str) -> None:
    unbroken = sparse_init_(network())
    optimizer = make(unbroken)
    train(unbroken, optimizer, range(40))
    file = io.BytesIO()
    torch.save({"model": unbroken.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(unbroken, optimizer, range(40, 80))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = network(seed=1)
    resumed.load_state_dict(saved["model"])
    again = make(resumed)
    again.load_state_dict(saved["optimizer"])
    assert again.lambda_ == pytest.approx(again.lambda_)
    train(resumed, again, range(40, 80))
    assert equal(resumed, unbroken)
    assert again.lambda_ == optimizer.lambda_ and again.report == optimizer.report


@every_optimizer
def test_copies_and_pickles_go_on_as_the_original(make) -> None:
    model = sparse_init_(network())
    optimizer = make(model)
    train(model, optimizer, range(10))
    twin, its_optimizer = copy.deepcopy((model, optimizer))
    train(model, optimizer, range(10, 20))
    train(twin, its_optimizer, range(10, 20))
    assert equal(model, twin) and optimizer.report == its_optimizer.report


def test_a_state_saved_before_the_first_step_is_a_start() -> None:
    model, other = network(), network()
    optimizer = AdaBreg(other, target=0.9)
    optimizer.load_state_dict(AdaBreg(model, target=0.9).state_dict())
    train(other, optimizer, range(3))
    assert optimizer.report is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_duals_stay_in_single_precision_whatever_the_weights_are(dtype: torch.dtype) -> None:
    def start() -> tuple[nn.Module, AdaBreg]:
        model = sparse_init_(network()).to(dtype)
        return model, AdaBreg(model, target=0.9)

    def go(model: nn.Module, optimizer: AdaBreg, steps: range) -> None:
        for step in steps:
            x, y = batch(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
            optimizer.step()

    model, optimizer = start()
    go(model, optimizer, range(30))
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    go(model, optimizer, range(30, 40))
    assert sparsity(model) == pytest.approx(0.9, abs=0.01)
    assert {p.dtype for p in model.parameters()} == {dtype}
    for state in optimizer.state.values():
        assert {array.dtype for array in state.values()} == {torch.float32}

    resumed, again = start()
    resumed.load_state_dict(weights)
    again.load_state_dict(saved)
    for state in again.state.values():
        assert {array.dtype for array in state.values()} == {torch.float32}
    go(resumed, again, range(30, 40))
    assert equal(resumed, model)


def test_weights_that_are_not_contiguous_are_trained_like_others() -> None:
    def trained(change) -> nn.Parameter:
        torch.manual_seed(0)
        weight = nn.Parameter(change(torch.randn(8, 4, 3, 3)))
        optimizer = LinBreg([weight], target=0.8, lr=0.1, penalty="group_kernel")
        for step in range(10):
            torch.manual_seed(step)
            weight.grad = change(torch.randn(8, 4, 3, 3))
            optimizer.step()
        return weight

    plain = trained(lambda x: x)
    last = trained(lambda x: x.to(memory_format=torch.channels_last))
    assert not last.is_contiguous() and torch.equal(plain, last)


def test_weights_that_are_elsewhere_for_a_step_are_stepped_where_they_are() -> None:
    model, other = sparse_init_(network(), 0.5), sparse_init_(network(), 0.5)
    optimizer, its_optimizer = AdaBreg(model, target=0.9), AdaBreg(other, target=0.9)
    homes = [parameter.data for parameter in other.parameters()]
    for step in range(6):
        for parameter, home in zip(other.parameters(), homes):
            away = parameter.data.clone() if step == 3 else home
            parameter.data = away.copy_(parameter.data)
        train(model, optimizer, range(step, step + 1))
        train(other, its_optimizer, range(step, step + 1))
        assert equal(model, other), step


def test_a_scheduler_and_a_tensor_set_the_rate() -> None:
    def trained(rates, **more) -> nn.Module:
        model = sparse_init_(network())
        optimizer = LinBreg(model, target=0.9, **more)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rates) if rates else None
        for step in range(20):
            if scheduler is None:
                for group in optimizer.param_groups:
                    group["lr"] = torch.tensor(0.2 * 0.9**step, dtype=torch.float64)
            train(model, optimizer, range(step, step + 1))
            if scheduler is not None:
                scheduler.step()
        return model

    assert equal(trained(lambda step: 0.9**step, lr=0.2), trained(None, lr=torch.tensor(0.2)))


def test_a_warm_up_may_begin_at_zero() -> None:
    model = sparse_init_(network())
    optimizer = LinBreg(model, target=0.9, lr=0.2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
    before = copy.deepcopy(model)
    train(model, optimizer, range(1))
    for a, b in zip(model.parameters(), before.parameters()):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    scheduler.step()
    train(model, optimizer, range(1, 40))
    assert optimizer.sparsity == pytest.approx(0.9, abs=0.02)


def test_a_closure_is_called_with_gradients_and_its_loss_returned() -> None:
    model, other = sparse_init_(network()), sparse_init_(network())
    optimizer = AdaBreg(model, target=0.9)
    x, y = batch(0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(3)]
    again = AdaBreg(other, target=0.9)
    for _ in range(3):
        train(other, again, range(1))
    assert equal(model, other) and losses[0] != losses[1]


def test_a_step_that_the_scaler_skips_moves_neither_duals_nor_lambda() -> None:
    model = sparse_init_(network())
    optimizer = AdaBreg(model, target=0.9, law=Multiplicative(), period=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)

    def scaled(step: int, spoil: bool) -> None:
        x, y = batch(step)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        if spoil:
            model[0].weight.grad[0, 0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()

    for step in range(5):
        scaled(step, spoil=False)
    before, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(list(model.parameters()))
    scale = scaler.get_scale()
    scaled(5, spoil=True)
    assert scaler.get_scale() < scale
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), weights))
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"], "λ, steps and control loops"
    for number, state in after["state"].items():
        assert all(torch.equal(state[array], before["state"][number][array]) for array in state)
    scaled(6, spoil=False)
    assert optimizer.lambda_ != AdaBreg(model, target=0.9).lambda_


def test_a_group_that_is_added_later_begins_with_the_present_lambda() -> None:
    for settings in ({"target": 0.9, "law": Multiplicative(), "period": 10}, {"target": 0.9}):
        model = sparse_init_(network())
        first, last = list(model[:5].named_parameters()), list(model[5:].named_parameters())
        optimizer = AdaBreg(first, **settings)
        train(model, optimizer, range(20))
        lambda_ = optimizer.lambda_
        assert lambda_ != 1.0, "it has moved"
        duals = {p: optimizer.state[p]["dual"].clone() for _, p in first}
        optimizer.add_param_group({"params": last, "lr": 0.02, "lambda_scale": 2.0})
        assert optimizer.lambda_ == lambda_
        assert all(torch.equal(optimizer.state[p]["dual"], dual) for p, dual in duals.items())
        weights = model[6].weight.detach().clone()
        optimizer.zero_grad()
        optimizer.step()
        if "law" in settings:  # whose λ does not move at this step
            expected = weights + 2.0 * lambda_ * weights.sign()
            torch.testing.assert_close(optimizer.state[model[6].weight]["dual"], expected)
    train(model, optimizer, range(20, 140))
    assert sparsity(model) == pytest.approx(0.9, abs=0.02)


def test_a_parameter_without_a_gradient_stays_where_it_is() -> None:
    for make in MAKE.values():
        model = sparse_init_(network(), 0.5)
        before = model[6].weight.detach().clone()
        optimizer = make(model)
        x, _ = batch(0)
        model[:6](x).square().mean().backward()
        assert model[6].weight.grad is None
        optimizer.step()
        moved = (model[6].weight != before).sum()
        assert optimizer.report is not None and moved < before.numel(), "only λ may move it"


def test_frozen_parameters_stay_and_do_not_count() -> None:
    model = network()
    model[4].requires_grad_(False)
    before = copy.deepcopy(model[4].state_dict())
    sparse_init_(model)
    optimizer = AdaBreg(model, target=0.9)
    assert optimizer.sparsity == sparsity(model) > 0.5
    train(model, optimizer, range(100))
    assert all(torch.equal(values, before[name]) for name, values in model[4].state_dict().items())
    assert optimizer.sparsity == sparsity(model) == pytest.approx(0.9, abs=0.02)
    assert "4.weight" not in optimizer.zeros()
    model.requires_grad_(False)
    trained = [model[0].weight, model[4].weight, model[6].weight]
    zeros = sum(int((weight == 0).sum()) for weight in trained)
    assert sparsity(model) == zeros / sum(weight.numel() for weight in trained), "in a frozen module all count"


def test_a_state_that_does_not_tell_its_optimizer_is_loaded() -> None:
    model, other = network(), network()
    optimizer, again = AdaBreg(model, target=0.9), AdaBreg(other, target=0.9)
    train(model, optimizer, range(3))
    state = optimizer.state_dict()
    steering = json.loads(state["param_groups"][0]["steering"])
    assert steering.pop("rule") == "AdaBreg"
    state["param_groups"][0]["steering"] = json.dumps(steering)
    again.load_state_dict(state)
    assert again.lambda_ == optimizer.lambda_


def test_groups_with_settings_of_their_own_are_trained_as_alone() -> None:
    first, last = nn.Linear(8, 16, bias=False), nn.Linear(6, 12, bias=False)
    nn.init.zeros_(first.weight), nn.init.zeros_(last.weight)
    alone = copy.deepcopy((first, last))
    own = [{"lr": 0.08, "penalty": "l1"}, {"lr": 0.05, "penalty": "group_row", "lambda_scale": 0.5}]
    named = [[("first", first.weight)], [("last", last.weight)]]
    together = LinBreg([{"params": params, **settings} for params, settings in zip(named, own)], lambda_=0.3)
    apart = [LinBreg([layer.weight], lambda_=0.3, **settings) for layer, settings in zip(alone, own)]
    torch.manual_seed(1)
    for _ in range(20):
        for layer, twin in zip((first, last), alone):
            layer.weight.grad = torch.randn_like(layer.weight)
            twin.weight.grad = layer.weight.grad.clone()
        together.step()
        for optimizer in apart:
            optimizer.step()
    for layer, twin in zip((first, last), alone):
        assert torch.equal(layer.weight, twin.weight) and 0 < (twin.weight == 0).sum() < twin.weight.numel()


def test_biases_norms_and_embeddings_are_trained_without_a_threshold() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.LayerNorm([3, 4]), nn.Flatten(), nn.Linear(12, 2))
    dense = AdaBreg(model, target=0.5, lambda_=10.0)
    torch.manual_seed(0)
    model(torch.randint(10, (8, 3))).square().mean().backward()
    dense.step()
    assert sparsity(model) > 0.4 and (model[0].weight != 0).all() and (model[1].weight != 0).all()
    assert dense.param_groups[0]["param_names"] == ["3.weight"]


def test_without_a_penalty_adabreg_is_adamw() -> None:
    model, other = network(), network()
    train(model, AdaBreg(model.named_parameters(), lr=1e-2, weight_decay=0.1, penalty="none"), range(10))
    train(other, torch.optim.AdamW(other.parameters(), lr=1e-2, weight_decay=0.1), range(10))
    for a, b in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_ramps_and_budgets_do_what_they_say() -> None:
    model = sparse_init_(network(), 0.5)
    limits = (LayerLimit("0.weight", ceiling=0.5),)
    optimizer = AdaBreg(model, target=0.9, ramp=Ramp(end=100, shape="linear"), layers=Budget("erk", limits))
    train(model, optimizer, range(50))
    assert optimizer.report.target == pytest.approx(0.45, abs=0.01)
    train(model, optimizer, range(50, 300))
    shares = {name: zeros / count for name, (zeros, count) in optimizer.zeros().items()}
    assert sparsity(model) == pytest.approx(0.9, abs=0.02)
    assert shares["0.weight"] == pytest.approx(0.5, abs=0.03)


def test_autograd_sees_that_weights_were_written() -> None:
    model = nn.Linear(3, 1)
    optimizer = LinBreg(model, target=0.5)
    x = torch.ones(1, 3, requires_grad=True)
    loss = model(x).square().sum()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_compiled_model_trains_the_same() -> None:
    model, other = sparse_init_(network()), sparse_init_(network())
    compiled = torch.compile(other, backend="eager")
    train(model, AdaBreg(model, target=0.9), range(10))
    train(compiled, AdaBreg(other, target=0.9), range(10))
    assert equal(model, other)


def test_the_same_seed_gives_the_same_start_and_another_does_not() -> None:
    masks = [network() for _ in range(3)]
    for mask, seed in zip(masks, (1, 1, 2)):
        sparse_init_(mask, 0.9, seed=seed, inputs=0)
    assert equal(masks[0], masks[1]) and not equal(masks[0], masks[2])
    assert sparsity(masks[0]) == pytest.approx(0.9, abs=0.02)
    assert (masks[0][1].weight == 1).all() and (masks[0][4].bias != 0).all()
    rescaled = sparse_init_(network(), 0.75, inputs=0, rescale=True)
    assert torch.equal(rescaled[4].weight[rescaled[4].weight != 0], 2 * network()[4].weight[rescaled[4].weight != 0])
