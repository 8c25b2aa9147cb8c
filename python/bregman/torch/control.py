"""How λ is steered: the laws, and what their target is.

The same as in the recipes of the program, where they are explained (docs/method.md). None of these knows another: any
law goes with any ramp and any budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union


@dataclass(frozen=True)
class Quantile:
    """The default: λ becomes the order statistic of the duals at which exactly the asked weights are zero."""

    def settings(self) -> dict[str, Any]:
        return {"kind": "quantile"}


@dataclass(frozen=True)
class Density:
    """λ ← λ·(a/a*)^κ, a being the count of non-zero weights: as precise at 99 % as at 75 %."""

    kappa: float = 0.5
    """Largest exponent, in (0, 1]."""

    def settings(self) -> dict[str, Any]:
        return {"kind": "density", "kappa": self.kappa}


@dataclass(frozen=True)
class Band:
    """Within ``zeta`` of the target the law acts ``gamma_f`` times less often and ``gamma_alpha`` times weaker."""

    zeta: float = 0.005
    gamma_f: int = 2
    gamma_alpha: float = 10.0

    def settings(self) -> dict[str, Any]:
        return {"kind": "band", "zeta": self.zeta, "gamma_f": self.gamma_f, "gamma_alpha": self.gamma_alpha}


@dataclass(frozen=True)
class Crossings:
    """The gain falls by ``gamma`` every time the sparsity crosses its target."""

    gamma: float = 0.95

    def settings(self) -> dict[str, Any]:
        return {"kind": "crossings", "gamma": self.gamma}


@dataclass(frozen=True)
class Multiplicative:
    """The paper's: λ ← λ·(1 + α|ε|)^sgn(ε), ε being the target less the sparsity."""

    alpha: float = 1.0
    """Gain, > 0."""
    damping: Band | Crossings | None = field(default_factory=Band)
    """What happens near the target; None for nothing."""

    def settings(self) -> dict[str, Any]:
        damping = {"kind": "off"} if self.damping is None else self.damping.settings()
        return {"kind": "multiplicative", "alpha": self.alpha, "damping": damping}


Law = Union[Quantile, Density, Multiplicative]


@dataclass(frozen=True)
class Ramp:
    """The target itself moves from ``start`` to its value between two steps."""

    end: int
    """Step at which it arrives."""
    shape: Literal["linear", "cubic", "exponential"] = "cubic"
    start: float = 0.0
    """Sparsity before it moves."""
    begin: int = 0
    """Step at which it begins to move."""

    def settings(self) -> dict[str, Any]:
        return {"shape": self.shape, "from": self.start, "begin": self.begin, "end": self.end}


@dataclass(frozen=True)
class LayerLimit:
    """Limits on the sparsity of the layers whose names match a glob (or, after ``re:``, a regular expression)."""

    pattern: str
    floor: float = 0.0
    ceiling: float = 1.0


@dataclass(frozen=True)
class Budget:
    """One λ per layer, each with its own target: the same everywhere, or Erdős–Rényi-kernel."""

    sharing: Literal["uniform", "erk"] = "uniform"
    limits: tuple[LayerLimit, ...] = ()

    def settings(self) -> dict[str, Any]:
        return {"sharing": self.sharing, "limits": [vars(limit) for limit in self.limits]}


def controller_settings(
    target: float, law: Law, period: int, warmup: int, ramp: Ramp | None, layers: Budget | None, lambda_: float | None
) -> dict[str, Any]:
    """The settings of a controller, as the core reads them."""
    return {
        "target": target,
        "law": law.settings(),
        "lambda": lambda_,
        "period": period,
        "warmup": warmup,
        "ramp": None if ramp is None else ramp.settings(),
        "layers": None if layers is None else layers.settings(),
    }
