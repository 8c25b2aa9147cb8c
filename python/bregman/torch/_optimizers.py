"""LinBreg, AdaBreg and ProxSGD as ``torch.optim.Optimizer``s whose λ is steered to a target sparsity; and STR."""

from __future__ import annotations

from typing import Literal

from ._base import BregmanOptimizer, Report
from ._params import Params
from .control import Budget, Law, Multiplicative, Quantile, Ramp

__all__ = ["STR", "AdaBreg", "LinBreg", "Penalty", "ProxSGD", "Report", "Variant"]

Penalty = Literal["none", "l1", "l1_non_negative", "group_kernel", "group_row"]
"""Which weights become zero together: single ones, the kernel of an (out, in) pair, or the row of an output."""
Variant = Literal["steady", "plain", "subgradient_correction", "prox_rescaling"]
"""What happens to the duals when λ moves; see docs/method.md."""

_COMMON = """
    params: a module (its weights get the penalty; biases, norms and embeddings are trained without; what is frozen is
        left out), tensors, pairs (name, tensor), or groups. A group may set ``lr``, ``penalty`` and ``lambda_scale``
        (λ of the group = scale·λ). Parameters of one dimension never get a penalty.
    target: the share of zeros among the weights with a penalty, such as 0.95. None: λ stays at ``lambda_``.
    lr: the learning rate; a float, or a tensor of one element.
    penalty: the structure of the zeros.
    law: how λ is steered: {laws}.
    lambda_: λ at the start; None: {lambda_}.
    period: steps between two moves of λ. In short runs take the number of all steps / 150.
    warmup: steps before λ moves at all.
    ramp: lets the target move. layers: gives every layer its own λ and target.

    The optimizer begins at the weights that it finds at the first ``step``; ``sparse_init_(model)`` makes them sparse.
    After that θ follows from the duals: weights that are changed by hand are overwritten at the next step.
    A gradient that is not finite raises FloatingPointError with the parameter's name; the step is not counted, and
    what is finite has moved. Clip with ``torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)``, as the paper does.
"""


def _document(cls: type, laws: str, lambda_: str) -> None:
    assert cls.__doc__ is not None
    cls.__doc__ += _COMMON.format(laws=laws, lambda_=lambda_)


class LinBreg(BregmanOptimizer):
    """Linearised Bregman iterations: gradient descent on the dual, p ← p − τ·g, θ ← prox(p).

    Without a penalty this is SGD. momentum: μ in m ← μ·m + (1 − μ)·τ·g, p ← p − m. delta: elastic-net factor δ.
    """

    def __init__(
        self,
        params: Params,
        target: float | None = None,
        *,
        lr: float = 0.1,
        momentum: float = 0.0,
        delta: float = 1.0,
        variant: Variant = "steady",
        penalty: Penalty = "l1",
        lambda_scale: float = 1.0,
        law: Law = Quantile(),
        lambda_: float | None = None,
        period: int = 50,
        warmup: int = 0,
        ramp: Ramp | None = None,
        layers: Budget | None = None,
    ) -> None:
        super().__init__(
            params,
            {"kind": "linbreg", "momentum": momentum, "delta": delta, "variant": variant},
            {"dual": True, "momentum_buffer": momentum > 0.0},
            defaults={"lr": lr, "penalty": penalty, "lambda_scale": lambda_scale},
            control=(target, law, period, warmup, ramp, layers, lambda_),
        )


class AdaBreg(BregmanOptimizer):
    """Adam's step on the dual: p ← (1 − τ·w)·p − τ·m̂/(√v̂ + ε), θ ← prox(p).

    Without a penalty this is Adam, with weight_decay AdamW. betas, eps: as Adam's. delta: elastic-net factor δ.
    """

    def __init__(
        self,
        params: Params,
        target: float | None = None,
        *,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        delta: float = 1.0,
        variant: Variant = "steady",
        penalty: Penalty = "l1",
        lambda_scale: float = 1.0,
        law: Law = Quantile(),
        lambda_: float | None = None,
        period: int = 50,
        warmup: int = 0,
        ramp: Ramp | None = None,
        layers: Budget | None = None,
    ) -> None:
        rule = {"kind": "adabreg", "beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}
        super().__init__(
            params,
            {**rule, "delta": delta, "variant": variant},
            {"dual": True, "exp_avg": True, "exp_avg_sq": True},
            defaults={"lr": lr, "penalty": penalty, "lambda_scale": lambda_scale},
            control=(target, law, period, warmup, ramp, layers, lambda_),
        )


class ProxSGD(BregmanOptimizer):
    """Proximal SGD, the contrast to LinBreg: θ ← prox_{τλ}(θ − τ·g). It has no duals, so no quantile law."""

    def __init__(
        self,
        params: Params,
        target: float | None = None,
        *,
        lr: float = 0.1,
        penalty: Penalty = "l1",
        lambda_scale: float = 1.0,
        law: Law = Multiplicative(),
        lambda_: float | None = None,
        period: int = 50,
        warmup: int = 0,
        ramp: Ramp | None = None,
        layers: Budget | None = None,
    ) -> None:
        super().__init__(
            params,
            {"kind": "prox_sgd"},
            {},
            defaults={"lr": lr, "penalty": penalty, "lambda_scale": lambda_scale},
            control=(target, law, period, warmup, ramp, layers, lambda_),
        )


class STR(BregmanOptimizer):
    """STR (Kusupati et al., 2020), another way to sparse weights: SGD with a threshold per layer that is learnt too.

    It leads to some sparsity, which is known at the end: there is no target, and ``lambda_`` is the mean threshold.

    params: as of the others; ``penalty`` may be "l1" or "none". momentum, nesterov, weight_decay: of the weights.
    threshold: at the start, in (0, 1). threshold_decay: d, which raises thresholds against the pull of the loss. More
    gives more zeros: the program's recipe has 7 / (lr·steps).
    """

    def __init__(
        self,
        params: Params,
        *,
        lr: float = 0.1,
        momentum: float = 0.9,
        nesterov: bool = True,
        weight_decay: float = 1e-4,
        threshold: float = 1e-3,
        threshold_decay: float = 1e-3,
        penalty: Literal["none", "l1"] = "l1",
        lambda_scale: float = 1.0,
    ) -> None:
        rule = {"kind": "str", "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(
            params,
            {**rule, "threshold_decay": threshold_decay},
            {"dual": True, "momentum_buffer": momentum > 0.0},
            defaults={"lr": lr, "penalty": penalty, "lambda_scale": lambda_scale},
            control=(None, Quantile(), 1, 0, None, None, threshold),
        )


_document(LinBreg, "``Quantile()``, ``Density()``, ``Multiplicative()``", "0.01")
_document(AdaBreg, "``Quantile()``, ``Density()``, ``Multiplicative()``", "1.0")
_document(ProxSGD, "``Multiplicative()``, ``Density()``", "0.01")
