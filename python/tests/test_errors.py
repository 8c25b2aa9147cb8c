"""Mistakes as users make them: the exception names the parameter, and nothing is broken after it."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import network, train
from torch import nn

from bregman.torch import AdaBreg, Budget, LinBreg, Masks, Multiplicative, ProxSGD, Quantile, sparse_init_


def named(*tensors: tuple[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    return list(tensors)


def weight(*shape: int, **more) -> nn.Parameter:
    return nn.Parameter(torch.ones(*(shape or (3, 4)), **more))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_is_named_and_the_state_stays_finite(value: float, engine: str) -> None:
    model = network()
    optimizer = AdaBreg(model, target=0.9)
    train(model, optimizer, range(3))
    saved = optimizer.state_dict()["param_groups"][0]["steering"]
    model[4].weight.grad[1, 2] = value
    with pytest.raises(FloatingPointError, match=r"`4.weight`: gradient\[130\] is "):
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert all(torch.isfinite(array).all() for state in optimizer.state.values() for array in state.values())
    assert optimizer.state_dict()["param_groups"][0]["steering"] == saved, "neither steps nor λ"
    train(model, optimizer, range(3, 6))


def test_weights_that_are_not_finite_are_named() -> None:
    parameter = weight()
    with torch.no_grad():
        parameter[0, 1] = torch.nan
    optimizer = LinBreg(named(("layer.weight", parameter)), target=0.5)
    parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(FloatingPointError, match=r"`layer.weight`: weight\[1\] is NaN"):
        optimizer.step()


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ([], ValueError, "empty parameter list|is empty"),
        ([{"params": [weight()]}, {"params": []}], ValueError, "group 1 is empty"),
        (named(("z", weight(dtype=torch.complex64))), TypeError, "`z` is complex"),
        (named(("n", torch.ones(3, 4, dtype=torch.int32))), TypeError, "`n` is of torch.int32"),
        (named(("s", torch.eye(3).to_sparse())), TypeError, "`s` has the layout torch.sparse_coo"),
        (named(("e", weight(0, 4))), ValueError, "`e` is empty"),
        (named(("a", weight()), ("b", weight(device="meta"))), ValueError, "`b` is on meta, the others are on cpu"),
        (named(("a", weight()), ("a", weight())), ValueError, "`a` occurs twice in group 0"),
        (
            [{"params": nn.Linear(3, 4).named_parameters()}, {"params": nn.Linear(4, 2).named_parameters()}],
            ValueError,
            r"`weight` occurs twice in the groups 0 and 1: make them differ, as by pairs \(\"encoder.weight\", ",
        ),
        (nn.Linear(3, 4).requires_grad_(False), ValueError, "Linear has no parameter .* that is trained"),
        ([{"params": [weight()], "penalty": "l3"}], ValueError, "l3"),
        ([{"params": [weight()], "lambda_scale": -1.0}], ValueError, "lambda_scale"),
        (weight(), TypeError, "one tensor"),
        (nn.BatchNorm1d(3), ValueError, "BatchNorm1d has no parameter of two dimensions"),
        (named(("bias", weight(3))), ValueError, "nothing to control"),
    ],
)
def test_parameters_that_cannot_be_trained_are_refused_by_name(params, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        AdaBreg(params, target=0.9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: AdaBreg(p, target=1.5), "`target` is 1.5"),
        (lambda p: AdaBreg(p, target=95), "`target` is 95"),
        (lambda p: AdaBreg(p, target=0.9, betas=(0.9, 1.0)), "beta2"),
        (lambda p: LinBreg(p, target=0.9, momentum=1.0), "momentum"),
        (lambda p: LinBreg(p, target=0.9, period=0), "`period` is 0"),
        (lambda p: LinBreg(p, lambda_=0.0), "λ"),
        (lambda p: LinBreg(p, target=0.9, law=Multiplicative(alpha=-1.0)), "alpha"),
        (lambda p: AdaBreg(p, variant="nosuch"), "nosuch"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make([weight()])


def test_proxsgd_has_no_duals_for_the_quantile_law() -> None:
    parameter = weight()
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(ValueError, match="needs the duals of LinBreg or AdaBreg"):
        ProxSGD([parameter], target=0.9, law=Quantile()).step()


def test_a_rate_that_is_no_number_is_named() -> None:
    parameter = weight()
    parameter.grad = torch.ones_like(parameter)
    optimizer = LinBreg(named(("layer", parameter)), target=0.5)
    for rate in (-0.1, float("nan")):
        optimizer.param_groups[0]["lr"] = rate
        with pytest.raises(ValueError, match="learning rate of `layer`"):
            optimizer.step()


def test_a_model_that_is_changed_after_the_first_step_is_refused_by_name() -> None:
    for change in (lambda model: model.bfloat16(), lambda model: model.double()):
        model = network()
        optimizer = AdaBreg(model, target=0.9)
        train(model, optimizer, range(2))
        change(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with pytest.raises(RuntimeError, match="`0.weight` is of .* now, and was not at the first step"):
            optimizer.step()


@pytest.mark.parametrize("loaded", [False, True])
def test_a_parameter_that_is_elsewhere_at_the_first_step_is_refused_by_name(loaded: bool) -> None:
    model = network()
    optimizer = AdaBreg(model, target=0.9)
    if loaded:
        other = network()
        trained = AdaBreg(other, target=0.9)
        train(other, trained, range(2))
        optimizer.load_state_dict(trained.state_dict())
    before, model[4].weight = model[4].weight, nn.Parameter(model[4].weight.to("meta"))
    optimizer.param_groups[0]["params"][1] = model[4].weight
    optimizer.state[model[4].weight] = optimizer.state.pop(before, {})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(ValueError, match="`4.weight` is on meta, the others are on cpu"):
        optimizer.step()


def test_complex_weights_are_refused_by_name_and_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, dtype=torch.complex64))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(TypeError, match="`1.weight` is complex"):
        sparse_init_(model)
    with pytest.raises(TypeError, match="`1.weight` is complex"):
        Masks(model, torch.optim.SGD(model.parameters(), lr=0.1), "static", target=0.5, steps=10)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_sparse_gradients_are_refused_by_name() -> None:
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = AdaBreg(named(("table", model.weight)), target=0.5)
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="`table` has a sparse gradient"):
        optimizer.step()


def test_parameters_over_one_storage_are_refused_by_name(engine: str) -> None:
    memory = torch.ones(8, 4)
    a, b = nn.Parameter(memory[:5]), nn.Parameter(memory[3:])
    optimizer = LinBreg(named(("upper", a), ("lower", b)), target=0.5)
    a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    with pytest.raises(RuntimeError, match="`upper` and `lower` share memory"):
        optimizer.step()


def test_the_state_of_another_model_is_refused_by_name_and_changes_nothing() -> None:
    model = network()
    optimizer = AdaBreg(model, target=0.9)
    train(model, optimizer, range(5))
    wider = network()
    wider[6] = nn.Linear(32, 7)
    other_names = nn.Sequential(*(nn.Sequential(layer) for layer in network()))
    shorter = network()[:5]
    for other, words in [
        (wider, r"`6.weight` has the shape \[7, 32\], its saved `dual` \[5, 32\]"),
        (other_names, "the state of `0.weight` was saved where the optimizer has `0.0.weight`"),
        (shorter, "first without a counterpart is `6.weight`"),
    ]:
        its_optimizer = AdaBreg(other, target=0.9)
        before = copy.deepcopy(its_optimizer.state_dict())
        with pytest.raises(ValueError, match=words):
            its_optimizer.load_state_dict(optimizer.state_dict())
        assert str(its_optimizer.state_dict()) == str(before)
    with pytest.raises(ValueError, match="`0.weight`: the state has `exp_avg`, which LinBreg does not keep"):
        LinBreg(network(), target=0.9).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    ("save", "load", "words"),
    [
        (
            lambda model: ProxSGD(model, target=0.9),
            lambda model: AdaBreg(model, target=0.9),
            "the state is of ProxSGD, the optimizer is AdaBreg",
        ),
        (
            lambda model: AdaBreg(model, target=0.9, layers=Budget()),
            lambda model: AdaBreg(model, target=0.9),
            "the state has 3 control loops, the optimizer 1",
        ),
        (
            lambda model: AdaBreg(model, target=0.9),
            lambda model: AdaBreg(model, target=0.9, layers=Budget()),
            "the state has 1 control loops, the optimizer 3",
        ),
    ],
)
def test_a_state_whose_lambda_means_something_else_is_refused_and_changes_nothing(save, load, words: str) -> None:
    model, other = network(), network()
    optimizer = save(model)
    train(model, optimizer, range(2))
    its_optimizer = load(other)
    before = copy.deepcopy(its_optimizer.state_dict())
    with pytest.raises(ValueError, match=words):
        its_optimizer.load_state_dict(optimizer.state_dict())
    assert str(its_optimizer.state_dict()) == str(before)
