"""Masks and pruning for any optimizer of torch: what Bregman training is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from .. import _bregman
from ._params import check, trained_weights_of
from ._storage import is_spread
from .control import Budget

Method = Literal["static", "set", "rigl", "granet", "mest", "gradual", "one_shot", "snip", "acdc"]
IN_EPOCHS = ("gradual", "one_shot", "acdc")
"""Methods that count in epochs."""

LONGEST_PERIOD = {"set": 100, "rigl": 100, "granet": 1000}
"""Steps between two exchanges of weights in a long run."""
LAYERS = {"static": Budget("erk"), "set": Budget("erk"), "rigl": Budget("erk"), "mest": Budget("uniform")}
"""How zeros are shared out between layers; the other methods compare all weights with each other."""


class Masks:
    """Keeps a share of a model's weights at zero while another optimizer trains it.

    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)               # doctest: +SKIP
    >>> masks = Masks(model, optimizer, "rigl", target=0.95, steps=epochs * len(loader))     # doctest: +SKIP

    That is all: it hooks into ``optimizer.step()``. Masked weights are zero, their gradients are zero when the
    optimizer sees them, and so are its moments; a weight that is grown starts at zero. Frozen weights have no mask.

    method: ``static`` (a random mask that stays), ``set`` (SET: the smallest weights in exchange for random ones),
    ``rigl`` (RigL: for those with the largest gradients), ``granet`` (GraNet: that, from ``start`` zeros to
    ``target``), ``mest`` (MEST), ``gradual`` (the smallest weights, epoch by epoch), ``one_shot`` (at once), ``snip``
    (SNIP: those with the smallest |θ·g| before the first step) or ``acdc`` (AC/DC: under a mask of the largest
    weights and dense in turns, at last under a mask).

    target: the share of weights that are zero. steps: of the whole run. steps_per_epoch: needed by ``gradual``,
    ``one_shot`` and ``acdc`` only. layers: how the zeros are shared out between layers; without, Erdős–Rényi-kernel
    with ``static``, ``set`` and ``rigl``, uniform with ``mest``, and with the others all weights are compared with each
    other. period: steps between exchanges, by default a fiftieth of the run, at most the published number. fraction:
    the share that is exchanged at first. until: the share of the run after which nothing is exchanged. start: of
    ``granet``. epochs: of ``gradual``, over which it prunes. at: of ``one_shot``, the epoch before which it prunes.
    loss: of ``snip``, called with the number of every round; it returns the model's loss on a batch, another in each
    round. rounds: of ``snip``; 1 is the SNIP of Lee et al. All defaults are those of the program's recipes.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: Method = "rigl",
        *,
        target: float,
        steps: int,
        steps_per_epoch: int | None = None,
        layers: Budget | None = None,
        period: int | None = None,
        fraction: float | None = None,
        until: float | None = None,
        start: float = 0.5,
        epochs: int = 10,
        at: int = 0,
        loss: Callable[[int], torch.Tensor] | None = None,
        rounds: int = 100,
        seed: int = 0,
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps is {steps}, expected those of the whole run")
        if method in IN_EPOCHS and not steps_per_epoch:
            raise ValueError(f"{method} counts in epochs: pass steps_per_epoch")
        if (method == "snip") != (loss is not None):
            raise ValueError("`loss` is required for snip, and only for snip: it needs gradients before the first step")
        self.weights = trained_weights_of(model)
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for name, parameter in self.weights.items():
            check(name, parameter)
            if is_spread(parameter):
                raise ValueError(
                    f"parameter `{name}` is spread over processes: masks compare all weights with each other, so train "
                    "with DDP"
                )
            if id(parameter) not in owned:
                raise ValueError(f"parameter `{name}` is not one of the optimizer's: a mask on it would not hold")
        self.optimizer, self.steps, self.steps_per_epoch = optimizer, steps, steps_per_epoch or steps
        if method == "acdc":
            epochs = -(-steps // self.steps_per_epoch)  # of the whole run
        policy = policy_settings(method, target, steps, period, fraction, until, start, epochs, at, rounds)
        layers = layers or LAYERS.get(method)
        pruning = {} if layers is None else {"layers": layers.settings()}
        shapes = [(name, list(parameter.shape)) for name, parameter in self.weights.items()]
        self._mover = _bregman.MaskMover(json.dumps(policy), json.dumps(pruning), shapes, seed)
        self.step = 0
        self.masks = {name: torch.ones_like(p, dtype=torch.bool) for name, p in self.weights.items()}
        self._gradients: dict[str, torch.Tensor] = {}
        if loss is None:
            self._start(0, {})
        else:
            self._score(model, loss, rounds)
        self._move()
        self._hooks = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]

    def _start(self, round: int, grads: dict[str, torch.Tensor]) -> None:
        """The masks before the first step, or those after a round that makes them."""
        theta, held = self._on_the_host(self.weights), self._on_the_host(grads)
        masks = self._mover.start(round, addresses(theta), addresses(held), self._as_bytes())
        if masks is not None:
            self._take(masks)

    def _score(self, model: nn.Module, loss: Callable[[int], torch.Tensor], rounds: int) -> None:
        """Masks by gradients, in rounds. After them the model's buffers and gradients are as they were before."""
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        for round in range(rounds):
            model.zero_grad(set_to_none=True)
            with torch.enable_grad():
                loss(round).backward()  # type: ignore[no-untyped-call, unused-ignore]
            self._start(round, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.weights.items()})
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]

    @property
    def sparsity(self) -> float:
        """The share of weights that are masked."""
        kept = sum(int(mask.sum()) for mask in self.masks.values())
        return 1 - kept / sum(mask.numel() for mask in self.masks.values())

    def remove(self) -> None:
        """Takes the hooks off the optimizer; the weights stay as they are."""
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs beside the model's and the optimizer's state."""
        return {"step": self.step, "masks": {name: mask.clone() for name, mask in self.masks.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where ``state_dict`` was taken. Load the model's and the optimizer's state too."""
        missing = self.masks.keys() ^ state["masks"].keys()
        if missing:
            raise ValueError(f"the state is of another model: {', '.join(sorted(missing))}")
        for name, mask in state["masks"].items():
            if mask.shape != self.masks[name].shape:
                shapes = f"{list(mask.shape)}, expected {list(self.masks[name].shape)}"
                raise ValueError(f"the mask of `{name}` has the shape {shapes}")
        self.step = state["step"]
        self.masks = {name: mask.to(self.weights[name].device, copy=True) for name, mask in state["masks"].items()}
        self._apply()

    def _clock(self, step: int) -> tuple[int, int, int, int]:
        return step, self.steps, step // self.steps_per_epoch, step % self.steps_per_epoch

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the optimizer's step, or after the closure in it that computes gradients."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            return self._look()

        def with_masks() -> Any:
            loss = closure()
            self._look()
            return loss

        return (optimizer, with_masks), {}

    @torch.no_grad()
    def _look(self) -> None:
        """What is masked has no gradient, and a policy that looks at it gets it now."""
        look = self._mover.needs_gradients and self._mover.is_due(self._clock(self.step))
        for name, parameter in self.weights.items():
            if parameter.grad is None:
                continue
            if look:
                self._gradients[name] = parameter.grad.detach().clone()
            parameter.grad.mul_(self.masks[name])

    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        """After it: masks change, by the gradients of this step or before the forward pass of the next."""
        if self._mover.needs_gradients and self._mover.is_due(self._clock(self.step)):
            grads = {name: self._gradients.get(name, torch.zeros_like(p)) for name, p in self.weights.items()}
            self._change(self.step, grads)
            self._gradients = {}
        self.step += 1
        self._apply()
        self._move()

    def _move(self) -> None:
        """The change before the next step, of policies that need no gradients."""
        if not self._mover.needs_gradients and self._mover.is_due(self._clock(self.step)):
            self._change(self.step, {})

    def _change(self, step: int, grads: dict[str, torch.Tensor]) -> None:
        theta, held = self._on_the_host(self.weights), self._on_the_host(grads)
        masks = self._mover.change(self._clock(step), addresses(theta), addresses(held), self._as_bytes())
        self._take(masks)

    def _as_bytes(self) -> list[bytes]:
        return [bytes(mask.to("cpu", torch.uint8).contiguous().numpy()) for mask in self.masks.values()]

    @staticmethod
    def _on_the_host(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        return [values.detach().to("cpu", torch.float32).contiguous() for values in tensors.values()]

    def _take(self, masks: list[bytes]) -> None:
        for (name, parameter), mask in zip(self.weights.items(), masks):
            flat = torch.frombuffer(bytearray(mask), dtype=torch.bool)
            self.masks[name] = flat.reshape(parameter.shape).to(parameter.device)
        self._apply()

    @torch.no_grad()
    def _apply(self) -> None:
        """Masked weights and their moments are zero."""
        for name, parameter in self.weights.items():
            mask = self.masks[name]
            parameter.mul_(mask)
            for moment in self.optimizer.state.get(parameter, {}).values():
                if isinstance(moment, torch.Tensor) and moment.shape == parameter.shape:
                    moment.mul_(mask)


def addresses(tensors: list[torch.Tensor]) -> list[int]:
    """Where tensors are."""
    return [values.data_ptr() for values in tensors]


def policy_settings(
    method: Method, target: float, steps: int, period: int | None, fraction: float | None, until: float | None,
    start: float, epochs: int, at: int, rounds: int,
) -> dict[str, Any]:  # fmt: skip
    """A policy in the words of the program's recipes, with their defaults."""

    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    policy: dict[str, Any] = {"kind": method, "target": target}
    if method in LONGEST_PERIOD:
        shortest = min(max(steps // 5, 1), 10)
        policy["period"] = given(period, min(max(steps // 50, shortest), LONGEST_PERIOD[method]))
    if method in ("set", "rigl"):
        policy |= {"fraction": given(fraction, 0.3), "until": given(until, 0.75)}
    elif method == "granet":
        policy |= {"from": start, "fraction": given(fraction, 0.5), "until": given(until, 110 / 160)}
    elif method == "mest":
        stages = [{"until": 0.5625, "fraction": 0.2}, {"until": 0.75, "fraction": 0.1}]
        policy |= {"period": given(period, max(steps // 32, 1)), "stages": stages, "gradient_weight": 0.0}
    elif method == "gradual":
        policy["ramp"] = {"shape": "exponential", "end": epochs}
    elif method == "one_shot":
        policy["at"] = at
    elif method == "snip":
        policy["rounds"] = rounds
    elif method == "acdc":
        policy["epochs"] = epochs
    return policy
