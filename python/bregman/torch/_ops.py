"""A step computed by torch's own operations, on devices for which there is no kernel of ours.

``run_pass``, ``correct``, ``histogram`` and ``live_at`` are called by the core, which works out all numbers and decides
what happens when; they do what ``crates/bregman/src/optimizer`` does on slices.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Structure = tuple[str, int]
"""Kind of a penalty, and how many consecutive weights are zero together."""
Counted = tuple[int, float, "tuple[int, float] | None"]
"""Zeros, sum of squares, and place and value of the first gradient that is not finite."""


class TorchOps:
    """The tensors of a step."""

    def __init__(self, arrays: list[tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]]) -> None:
        self.arrays = arrays
        """Dual and moments of every parameter; None for those that are not kept."""
        self.theta: list[torch.Tensor] = []
        self.grads: list[torch.Tensor | None] = []

    def run_pass(self, steps: list[tuple[tuple[int, list[float]], Structure, float, float]]) -> list[Counted]:
        """Updates the dual (or the weight) by the gradient, then θ ← scale·prox of it."""
        counts = []
        for theta, gradient, arrays, step in zip(self.theta, self.grads, self.arrays, steps):
            (update, coefficients), structure, threshold, scale = step
            dual, first, second = arrays
            x = theta if dual is None else dual
            finite = None
            if update != 0:
                assert gradient is not None, "the core asks for no update without a gradient"
                finite = torch.isfinite(gradient)
                usable = torch.where(finite, gradient, 0.0)
                UPDATES[update](x, usable, first, second, *coefficients)
            theta.copy_(prox(x, structure, threshold).mul_(scale))
            bad = theta.new_zeros(()) if finite is None else (~finite).sum()
            counts.append(torch.stack([(theta == 0).sum().float(), theta.square().sum(), bad.float()]))
        # one wait for the device; zeros again as integers, which a float of 24 bits may not hold
        squares = [count.tolist()[1:] for count in torch.stack(counts).cpu()]
        zeros = torch.stack([(theta == 0).sum() for theta in self.theta]).tolist()
        counted: list[Counted] = []
        for zeros_of, (squares_of, bad_of), gradient in zip(zeros, squares, self.grads):
            offender = None
            if bad_of and gradient is not None:
                flat = gradient.reshape(-1)
                index = int(torch.nonzero(~torch.isfinite(flat))[0])
                offender = (index, float(flat[index]))
            counted.append((zeros_of, squares_of, offender))
        return counted

    def correct(self, corrections: list[tuple[Structure, float, float, float] | None]) -> None:
        """Moves duals along with λ: see ``crates/bregman/src/optimizer/correction.rs``."""
        for theta, (dual, _, _), correction in zip(self.theta, self.arrays, corrections):
            if correction is None or dual is None:
                continue
            (kind, group), ratio, delta, bound = correction
            p, weights = dual.view(-1, group), theta.view(-1, group)
            moved = ratio * p + (1.0 - ratio) * weights / delta
            if kind == "Group":
                norm = p.square().sum(1, keepdim=True).sqrt()
                kept = torch.where(norm > bound, p * (bound / norm), p)
            else:
                kept = p.clamp(max=bound) if kind == "SoftNonNegative" else p.clamp(-bound, bound)
            p.copy_(torch.where((weights != 0).any(1, keepdim=True), moved, kept))

    def pull(self, theta: int) -> float:
        """Σ g·sgn(θ) of the weights at this address: how their gradient pulls at a threshold that is learnt."""
        (weights, gradient), *_ = [(w, g) for w, g in zip(self.theta, self.grads) if w.data_ptr() == theta]
        assert gradient is not None, "the core asks for no pull without a gradient"
        usable = torch.where(torch.isfinite(gradient), gradient, 0.0)
        return float((usable * weights.sign()).sum(dtype=None if weights.device.type == "mps" else torch.float64))

    def histogram(self, keys: list[tuple[int, Structure, float]], prefix: int, shift: int, width: int) -> list[int]:
        """How many weights have a key with this prefix, by the next ``width`` bits of it."""
        bins = torch.zeros(1 << width, dtype=torch.int64)
        for tensor, (kind, group), weight in keys:
            bits = key_of(self._magnitudes(tensor, kind, group), weight).view(torch.int32).to(torch.int64)
            chosen = bits[(bits >> (shift + width)) == prefix]
            digits = (chosen >> shift) & ((1 << width) - 1)
            bins += group * torch.bincount(digits, minlength=1 << width).cpu()
        return bins.tolist()

    def live_at(self, keys: list[tuple[int, Structure, float]], lambda_: float) -> int:
        """How many weights would be non-zero at this λ."""
        live = 0
        for tensor, (kind, group), weight in keys:
            threshold = torch.tensor(lambda_ * weight, dtype=torch.float64).float().item()
            live += group * int((self._magnitudes(tensor, kind, group) > threshold).sum())
        return live

    def _magnitudes(self, tensor: int, kind: str, group: int) -> torch.Tensor:
        """What a threshold is compared with, one for every group."""
        dual = self.arrays[tensor][0]
        assert dual is not None, "only optimizers with duals are asked"
        if dual.device.type == "mps":  # has no float64
            dual = dual.cpu()
        if kind == "Group":
            return dual.view(-1, group).square().sum(1).sqrt()
        return (dual.clamp(min=0.0) if kind == "SoftNonNegative" else dual.abs()).reshape(-1)


def key_of(magnitude: torch.Tensor, weight: float) -> torch.Tensor:
    """The smallest λ in single precision whose threshold, λ·weight rounded once, reaches a magnitude."""
    if weight == 1.0:
        return magnitude

    def reaches(lambda_: torch.Tensor) -> torch.Tensor:
        return (lambda_.double() * weight).float() >= magnitude

    key = (magnitude.double() / weight).float()
    up, down = torch.full_like(key, torch.inf), torch.zeros_like(key)
    while not bool(reaches(key).all()):
        key = torch.where(reaches(key), key, torch.nextafter(key, up))
    while True:
        lower = torch.nextafter(key, down)
        still = (key > 0) & reaches(lower)
        if not bool(still.any()):
            return key
        key = torch.where(still, lower, key)


def prox(x: torch.Tensor, structure: Structure, threshold: float) -> torch.Tensor:
    """The shrinkage of a penalty; zeros are exactly +0."""
    kind, group = structure
    if kind == "Identity":
        return x.clone()
    if kind == "Soft":
        return torch.where(x.abs() > threshold, x - x.sign() * threshold, 0.0)
    if kind == "SoftNonNegative":
        return torch.where(x > threshold, x - threshold, 0.0)
    groups = x.reshape(-1, group)
    norm = groups.square().sum(1, keepdim=True).sqrt()
    return torch.where(norm > threshold, groups * ((norm - threshold) / norm), 0.0).view_as(x)


def _linbreg(x, g, m, _v, mu, fresh):  # type: ignore[no-untyped-def]
    if m is None:
        x.sub_(g, alpha=fresh)
    else:
        x.sub_(m.mul_(mu).add_(g, alpha=fresh))


def _adam(x, g, m, v, beta1, beta2, fresh1, fresh2, eps, per_root, rate, keep):  # type: ignore[no-untyped-def]
    m.mul_(beta1).add_(g, alpha=fresh1)
    v.mul_(beta2).addcmul_(g, g, value=fresh2)
    x.mul_(keep).sub_(m / v.sqrt().mul_(per_root).add_(eps), alpha=rate)


def _sgd(x, g, m, _v, tau, mu, decay, of_g, of_m):  # type: ignore[no-untyped-def]
    g = g.add(x, alpha=decay)
    momentum = g if m is None else m.mul_(mu).add_(g)
    x.sub_(g * of_g + momentum * of_m, alpha=tau)


def _str(x, g, m, v, tau, mu, decay, of_g, of_m, threshold):  # type: ignore[no-untyped-def]
    gated = torch.where(x.abs() > threshold, g, 0.0)
    _sgd(x, gated, m, v, tau, mu, decay, of_g, of_m)  # type: ignore[no-untyped-call]


UPDATES: dict[int, Callable[..., None]] = {1: _linbreg, 2: _adam, 3: _sgd, 4: _str}
"""By the core's numbers (``Update::code``); 0 is no update."""
