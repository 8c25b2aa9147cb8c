"""Masks around torch's own optimizers."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from conftest import batch, network, train
from torch import nn

from bregman.torch import Budget, Masks, sparsity

METHODS = ["static", "set", "rigl", "granet", "mest", "gradual", "one_shot", "snip", "acdc"]
every_method = pytest.mark.parametrize("method", METHODS)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def masks_of(model: nn.Module, optimizer: torch.optim.Optimizer, method: Any, **more: Any) -> Masks:
    if method == "snip":
        more = {"loss": lambda round: loss_of(model, round), "rounds": 4, **more}
    return Masks(model, optimizer, method, **{"target": 0.8, "steps": 100, "steps_per_epoch": 5, **more})


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    x, y = batch(seed)
    return nn.functional.cross_entropy(model(x), y)


@every_method
@pytest.mark.parametrize("make", [sgd, adamw])
def test_masked_weights_stay_zero_and_the_count_is_exact(method: str, make: Any) -> None:
    model = network()
    optimizer = make(model)
    masks = masks_of(model, optimizer, method)
    weights = sum(parameter.numel() for parameter in masks.weights.values())
    for step in range(100):
        train(model, optimizer, range(step, step + 1))
        for name, parameter in masks.weights.items():
            hidden = ~masks.masks[name]
            assert not parameter[hidden].any()
            moments = [m for m in optimizer.state[parameter].values() if m.shape == parameter.shape]
            assert moments and not any(moment[hidden].any() for moment in moments)
    assert abs(masks.sparsity - 0.8) * weights <= len(masks.weights)
    assert sparsity(model) >= masks.sparsity - 1e-9


@every_method
def test_masks_move_when_the_method_says(method: str) -> None:
    model = network()
    optimizer = sgd(model)
    masks = masks_of(model, optimizer, method, steps_per_epoch=10, epochs=10, at=3)
    seen, changed = [masks.sparsity], []
    for step in range(100):
        before = {name: mask.clone() for name, mask in masks.masks.items()}
        train(model, optimizer, range(step, step + 1))
        seen.append(masks.sparsity)
        if any(not torch.equal(before[name], mask) for name, mask in masks.masks.items()):
            changed.append(step + 1)
    if method in ("static", "snip"):
        assert changed == []
    elif method == "acdc":  # of ten epochs: dense, sparse and dense in turns, the last two sparse
        sparse = [seen[10 * epoch + 1] > 0 for epoch in range(10)]
        assert sparse == [False, True, False, True, False, True, False, False, True, True]
        assert changed == [10, 20, 30, 40, 50, 60, 80]
    elif method == "one_shot":
        assert changed == [30] and seen[29] == 0.0
    elif method == "gradual":
        assert changed == list(range(10, 100, 10))
        assert seen[0] == pytest.approx(1 - 0.2 ** (1 / 10), abs=1e-3)
        assert seen[50] == pytest.approx(1 - 0.2 ** (6 / 10), abs=1e-3)
    elif method == "granet":
        assert seen[0] == pytest.approx(0.5, abs=1e-3) and seen == sorted(seen)
    else:
        assert changed and max(changed) <= 76, "every ten steps until three quarters of the run"
        assert seen == [seen[0]] * 101


def test_rigl_drops_the_smallest_and_grows_the_steepest() -> None:
    model = network()
    optimizer = sgd(model)
    masks = masks_of(model, optimizer, "rigl", period=10, fraction=0.4, layers=Budget("uniform"))
    train(model, optimizer, range(10))
    before = {name: mask.clone() for name, mask in masks.masks.items()}
    x, y = batch(10)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    twin = copy.deepcopy(model)  # takes this step with the masks as they are
    plain = sgd(twin)
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for name, parameter in twin.named_parameters():
        parameter.grad = gradients[name] * before[name] if name in before else gradients[name]
    plain.step()
    values = {name: parameter.detach() for name, parameter in twin.named_parameters()}
    optimizer.step()

    share = 0.5 * 0.4 * (1 + torch.cos(torch.tensor(torch.pi * 10 / 75, dtype=torch.float64)).item())
    for name, mask in masks.masks.items():
        live = int(before[name].sum())
        grown = round(share * live)
        kept = values[name].abs().where(before[name], torch.tensor(-1.0)).flatten().topk(live - grown).indices
        expected = torch.zeros(mask.numel(), dtype=torch.bool)
        expected[kept] = True
        steepness = gradients[name].abs().flatten().where(~expected, torch.tensor(-1.0))
        expected[steepness.topk(grown).indices] = True
        assert torch.equal(mask.flatten(), expected), name
        assert not masks.weights[name].detach()[mask & ~before[name]].any(), "grown weights start at zero"


@pytest.mark.parametrize("rounds", [1, 3])
def test_snip_keeps_the_weights_with_the_largest_products_with_their_gradients(rounds: int) -> None:
    model, twin = network(), network()
    running = {name: buffer.clone() for name, buffer in model.named_buffers()}
    masks = masks_of(model, sgd(model), "snip", rounds=rounds)
    weights = {name: twin.get_parameter(name) for name in masks.weights}
    total = sum(weight.numel() for weight in weights.values())
    expected = torch.ones(total, dtype=torch.bool)
    for round in range(1, rounds + 1):
        twin.zero_grad()
        loss_of(twin, round - 1).backward()
        scores = torch.cat([(weight * weight.grad).abs().flatten() for weight in weights.values()])
        sparsity_now = 0.8 if round == rounds else 1 - 0.2 ** (round / rounds)
        kept = scores.where(expected, torch.tensor(-1.0)).topk(total - round_half_away(sparsity_now * total)).indices
        expected = torch.zeros(total, dtype=torch.bool)
        expected[kept] = True
        with torch.no_grad():
            for weight, mask in zip(weights.values(), expected.split([weight.numel() for weight in weights.values()])):
                weight.mul_(mask.view(weight.shape))
    assert torch.equal(torch.cat([mask.flatten() for mask in masks.masks.values()]), expected)
    assert all(torch.equal(buffer, running[name]) for name, buffer in model.named_buffers()), "norms have seen nothing"
    assert all(parameter.grad is None for parameter in model.parameters())


def round_half_away(x: float) -> int:
    return int(x + 0.5)


@every_method
def test_a_resumed_run_equals_an_unbroken_one(method: str) -> None:
    unbroken = network()
    optimizer = sgd(unbroken)
    masks = masks_of(unbroken, optimizer, method)
    train(unbroken, optimizer, range(33))
    file = io.BytesIO()
    torch.save([unbroken.state_dict(), optimizer.state_dict(), masks.state_dict()], file)
    train(unbroken, optimizer, range(33, 80))

    file.seek(0)
    model_state, optimizer_state, masks_state = torch.load(file, weights_only=True)
    resumed = network(seed=1)
    again = sgd(resumed)
    masks_again = masks_of(resumed, again, method)
    resumed.load_state_dict(model_state)
    again.load_state_dict(optimizer_state)
    masks_again.load_state_dict(masks_state)
    train(resumed, again, range(33, 80))
    assert all(torch.equal(a, b) for a, b in zip(resumed.state_dict().values(), unbroken.state_dict().values()))


@pytest.mark.parametrize("method", ["set", "rigl"])
def test_gradients_of_a_closure_are_masked_and_looked_at_like_others(method: str) -> None:
    model, other = network(), network()
    optimizer, its_optimizer = sgd(model), sgd(other)
    masks, its_masks = masks_of(model, optimizer, method, period=5), masks_of(other, its_optimizer, method, period=5)
    for step in range(30):
        train(model, optimizer, range(step, step + 1))

        def closure(step: int = step) -> torch.Tensor:
            its_optimizer.zero_grad()
            loss = loss_of(other, step)
            loss.backward()
            return loss

        loss = its_optimizer.step(closure) if step % 2 else its_optimizer.step(closure=closure)
        assert loss is not None
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))
    assert all(torch.equal(mask, its_masks.masks[name]) for name, mask in masks.masks.items())


def test_frozen_weights_have_no_mask() -> None:
    model = network()
    model[4].requires_grad_(False)
    before = model[4].weight.clone()
    masks = masks_of(model, sgd(model), "static")
    assert masks.masks.keys() == {"0.weight", "6.weight"} and torch.equal(model[4].weight, before)


def test_without_its_hooks_the_optimizer_is_as_before() -> None:
    model = network()
    optimizer = sgd(model)
    masks = masks_of(model, optimizer, "static")
    masks.remove()
    train(model, optimizer, range(3))
    assert sparsity(model) < 0.1


def test_mistakes_name_what_is_wrong() -> None:
    model = network()
    optimizer = sgd(model)
    with pytest.raises(ValueError, match="gradual counts in epochs: pass steps_per_epoch"):
        Masks(model, optimizer, "gradual", target=0.9, steps=10)
    with pytest.raises(ValueError, match="acdc counts in epochs: pass steps_per_epoch"):
        Masks(model, optimizer, "acdc", target=0.9, steps=10)
    with pytest.raises(ValueError, match="`loss` is required for snip"):
        Masks(model, optimizer, "snip", target=0.9, steps=10)
    with pytest.raises(ValueError, match="target"):
        masks_of(model, optimizer, "rigl", target=1.5)
    with pytest.raises(ValueError, match="steps is 0"):
        masks_of(model, optimizer, "rigl", steps=0)
    name, first = next(iter(model.named_parameters()))
    some = torch.optim.SGD([p for p in model.parameters() if p is not first], lr=0.1)
    with pytest.raises(ValueError, match=f"`{name}` is not one of the optimizer's"):
        masks_of(model, some, "rigl")
    masks = masks_of(model, optimizer, "static")
    other = masks.state_dict()
    other["masks"].pop(name)
    with pytest.raises(ValueError, match=f"another model: {name}"):
        masks.load_state_dict(other)
    with torch.no_grad():
        first.fill_(float("nan"))
    with pytest.raises((ValueError, FloatingPointError), match=name):
        masks_of(model, sgd(model), "one_shot")
