"""STR against its definition, which autograd differentiates."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import batch, network, train
from torch import nn

from bregman.torch import STR, sparsity


def test_weights_and_thresholds_follow_the_definition(engine: str) -> None:
    torch.manual_seed(0)
    start = [0.2 * torch.randn(6, 5), 0.2 * torch.randn(3, 6)]
    x, y = torch.randn(40, 5), torch.randn(40, 3)
    lr, mu, decay, threshold_decay, threshold = 0.05, 0.9, 1e-3, 0.5, 0.05

    ours = [nn.Parameter(weight.clone()) for weight in start]
    optimizer = STR(
        ours, lr=lr, momentum=mu, weight_decay=decay, threshold=threshold, threshold_decay=threshold_decay
    )
    # w stands behind the threshold, where the weights θ begin as they were given
    w = [nn.Parameter((weight + threshold * weight.sign()).double()) for weight in start]
    s = [nn.Parameter(torch.tensor(threshold, dtype=torch.float64).logit()) for _ in start]
    of_weights = torch.optim.SGD(w, lr=lr, weight_decay=decay, momentum=mu, nesterov=True)
    of_thresholds = torch.optim.SGD(s, lr=lr, weight_decay=threshold_decay)

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return ((x.to(a) @ a.T).tanh() @ b.T - y.to(a)).square().mean()

    for _ in range(40):
        optimizer.zero_grad()
        loss(*ours).backward()
        optimizer.step()
        of_weights.zero_grad()
        of_thresholds.zero_grad()
        theta = [value.sign() * (value.abs() - level.sigmoid()).relu() for value, level in zip(w, s)]
        loss(*theta).backward()
        of_weights.step()
        of_thresholds.step()
        for weight, value, level in zip(ours, w, s):
            expected = (value.sign() * (value.abs() - level.sigmoid()).relu()).detach()
            torch.testing.assert_close(weight.detach().double(), expected, atol=1e-5, rtol=1e-4)
    levels = optimizer._stepper.lambdas()
    assert levels == pytest.approx([level.sigmoid().item() for level in s], rel=1e-4)
    assert levels[0] != levels[1] and optimizer.lambda_ == pytest.approx(sum(levels) / 2)


def test_more_decay_of_the_threshold_gives_more_zeros_and_a_target_is_refused() -> None:
    found = []
    for threshold_decay in (0.001, 0.2, 0.4):
        model = network()
        train(model, STR(model, lr=0.2, threshold_decay=threshold_decay), range(150))
        found.append(sparsity(model))
    assert found == sorted(found) and found[0] < 0.2 and found[-1] > 0.5
    with pytest.raises(TypeError, match="target"):
        STR(network(), target=0.9)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="λ"):
        STR(network(), threshold=2.0)


def test_a_resumed_run_equals_an_unbroken_one_and_tensors_without_a_gradient_rest(engine: str) -> None:
    model = network()
    optimizer = STR(model, lr=0.2, threshold_decay=0.1)
    train(model, optimizer, range(20))
    twin = copy.deepcopy(model)
    its_optimizer = STR(twin, lr=0.2, threshold_decay=0.1)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, range(20, 40))
    train(twin, its_optimizer, range(20, 40))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))

    before = model[0].weight.detach().clone()
    x, y = batch(40)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    model[0].weight.grad = None
    optimizer.step()
    assert (model[0].weight == 0)[before == 0].all(), "its threshold rises by its decay alone"
