"""What the optimizers share: PyTorch's side of a step. All arithmetic and the control of λ are in the core."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .. import _bregman
from ._gather import Gathered, Plain, gather, plain_parameters
from ._ops import TorchOps
from ._params import Params, check, check_device, check_names, groups_of, is_weight, take_names
from ._place import Place
from ._saved import check_state, check_steering, groups_with
from ._shards import Shards
from ._storage import Slot, address, alike, local, mark_written, part_of
from .control import Budget, Law, Ramp, controller_settings
from .start import first_dual

Control = tuple["float | None", Law, int, int, "Ramp | None", "Budget | None", "float | None"]
"""target, law, period, warmup, ramp, layers, λ₀."""

SAVED = "steering"
"""The key of the first group of a ``state_dict`` under which λ, the steps and the control loops are kept."""


class Report(NamedTuple):
    """What the last step did."""

    lambda_: float
    """λ of this step's threshold (the mean over layers where each has its own)."""
    sparsity: float
    """Share of zeros among the weights with a penalty, after the step."""
    target: float | None
    """The sparsity asked for at this step; None where λ stays."""


class BregmanOptimizer(torch.optim.Optimizer):
    """The base of LinBreg, AdaBreg and ProxSGD."""

    _stepper: _bregman.Stepper | None
    _ops: TorchOps | None
    _place: Place
    _ready_slots: list[Slot]
    _copied: list[Slot]
    _plain: Plain | None
    _captured: Gathered | None
    _report: Report | None
    _under_way: bool
    _saved: str | None

    def __init__(
        self,
        params: Params,
        rule: dict[str, Any],
        arrays: dict[str, bool],
        *,
        defaults: dict[str, Any],
        control: Control,
    ) -> None:
        target, law, period, warmup, ramp, layers, lambda_ = control
        self._rule = rule
        self._arrays = [name for name, kept in arrays.items() if kept]
        self._lambda = lambda_
        self._controller = (
            None if target is None else controller_settings(target, law, period, warmup, ramp, layers, lambda_)
        )
        self._forget()
        self._saved = None
        super().__init__(groups_of(params), defaults)
        _bregman.Stepper(self._settings())  # refuses settings out of range

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group. If steps were taken already, its parameters begin with the present λ."""
        if "params" not in param_group:
            raise ValueError("a parameter group needs `params`")
        group = take_names(param_group, len(self.param_groups))
        first = self.param_groups[0]["params"][0] if self.param_groups else None
        device = None if first is None else first.device
        for name, parameter in zip(group["param_names"], group["params"]):
            check(name, parameter)
            device = check_device(name, parameter, device)
        check_names(group, self.param_groups)
        self._saved = self._save()
        super().add_param_group(group)
        self._forget()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override, unused-ignore]
        """One step of all weights, then of λ where it is due. Returns what ``closure`` returns.

        On a GPU the step is under way when this returns. While a CUDA graph is captured, the step becomes a part of it:
        see :meth:`replay`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._place.is_capturing():
            self._capture()
            return loss
        stepper, slots = self._ready()
        step = gather(slots, self._plain, self._ops)
        if self._plain is not None and step.theta is not None and step.theta != self._plain.theta:
            self._plain = plain_parameters(slots)
        try:
            with self._place.current():
                self._take(stepper.step(step.theta, step.grads, self._rates(), self._place.stream()))
        finally:
            self._published(slots)
        return loss

    @torch.no_grad()
    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """Replays a CUDA graph in which ``step()`` was captured: call it in place of ``graph.replay()``.

        Learning rates and λ may change between replays. They, and all that depends on the number of steps, are given to
        the GPU before the replay, and λ moves after it where that is due: weights, λ and report are those of steps
        without a graph.
        """
        if self._captured is None or self._stepper is None:
            raise RuntimeError("no step of this optimizer was captured: call step() under torch.cuda.graph(graph)")
        with self._place.current():
            self._stepper.prepare(
                self._captured.theta, self._captured.grads, self._rates(), self._place.stream()
            )
            graph.replay()
            self._take(self._stepper.replayed())
        mark_written(self._ready_slots)

    def _capture(self) -> None:
        """The step as a part of the graph that is being captured."""
        assert self._stepper is not None, "a place that captures was made ready"
        self._captured = gather(self._ready_slots, None, None)
        with self._place.current():
            self._stepper.capture(self._place.stream())
        self._published(self._ready_slots)

    def _rates(self) -> list[tuple[float, int]]:
        """Learning rates, and for how many parameters each is."""
        return [(float(group["lr"]), len(group["params"])) for group in self.param_groups]

    def _published(self, slots: list[Slot]) -> None:
        """What the optimizer steps becomes what the model computes with."""
        if self._ops is not None:
            self._ops.theta, self._ops.grads = [], []
        for slot in self._copied:
            slot.publish()
        mark_written(slots)

    def _take(self, report: tuple[float, float, float | None] | None) -> None:
        """The report of a step, or nothing while a GPU computes it."""
        self._report, self._under_way = None if report is None else Report(*report), report is None

    def _settle(self) -> None:
        """Waits for a step that a GPU still computes."""
        if self._under_way and self._stepper is not None:
            self._under_way = False
            self._take(self._stepper.settle())

    @property
    def lambda_(self) -> float:
        """λ of the next step (the mean over layers where each has its own)."""
        stepper = self._stepper or _bregman.Stepper(self._settings(), self._saved)
        lambdas = stepper.lambdas()
        steered = [lambdas[tensor] for tensor in stepper.controlled()] or lambdas
        return steered[0] if len(set(steered)) == 1 else sum(steered) / len(steered)

    @property
    def sparsity(self) -> float:
        """Share of zeros among the weights with a penalty: after the last step, or as they are before the first."""
        if self.report is not None:
            return self.report.sparsity
        slots, shards = self._slots(), Shards(self._slots())
        steered = _bregman.Stepper(self._settings(), self._saved).controlled()
        zeros = sum(float((slots[t].weights() == 0).sum()) for t in steered if shards.counts[t])
        add = shards.sum(slots[0].parameter.device)
        zeros = zeros if add is None else add([zeros])[0]
        return zeros / max(1, sum(slots[t].parameter.numel() for t in steered))

    @property
    def report(self) -> Report | None:
        """What the last step did; None before the first. On a GPU this waits for its end."""
        self._settle()
        return self._report

    def zeros(self) -> dict[str, tuple[int, int]]:
        """Zeros and number of weights of every parameter after the last step, by name."""
        stepper, slots = self._ready()
        if self.report is None:
            raise RuntimeError("no step was taken yet: bregman.torch.sparsity counts in a module as it is")
        return {slot.name: (zeros, length) for slot, (length, zeros) in zip(slots, stepper.zeros())}

    def state_dict(self) -> dict[str, Any]:
        """As every optimizer's; λ and the control loops are in the first group, under ``steering``."""
        saved = self._save()
        if saved is not None:
            self.param_groups[0][SAVED] = saved
        try:
            return super().state_dict()
        finally:
            self.param_groups[0].pop(SAVED, None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues to the same bits, together with the weights saved at the same time. Duals and moments stay float32
        whatever the parameters are. A state of another model is refused, and then nothing has changed."""
        check_state(state_dict, self.param_groups, self._arrays, type(self).__name__)
        saved = state_dict["param_groups"][0].get(SAVED)
        if saved is not None:
            settings = self._settings(groups_with(state_dict, self.param_groups))
            check_steering(saved, _bregman.Stepper(settings).save())
            _bregman.Stepper(settings, saved)  # refuses what it would refuse at the next step
        super().load_state_dict(state_dict)
        self.param_groups[0].pop(SAVED, None)
        # torch casts states to the type of their parameter: back to what was saved
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number, slot in zip(numbers, self._slots()):
            for key, value in state_dict["state"].get(number, {}).items():
                part = part_of(slot.parameter, value).to(slot.parameter.device, torch.float32, copy=True).contiguous()
                self.state[slot.parameter][key] = alike(slot.parameter, part)
        self._saved = saved
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        own = {key: self.__dict__[key] for key in ("_rule", "_arrays", "_lambda", "_controller")}
        return {**super().__getstate__(), **own, "_saved": self._save()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def _forget(self) -> None:
        """What follows from groups and states is made again at the next step."""
        self._stepper = self._ops = self._report = self._captured = self._plain = None
        self._under_way = False
        self._place = Place(torch.device("cpu"))
        self._ready_slots, self._copied = [], []

    def _save(self) -> str | None:
        if self.__dict__.get("_stepper") is not None:
            self._settle()
        return self._stepper.save() if self._stepper is not None else self.__dict__.get("_saved")

    def _slots(self) -> list[Slot]:
        return [
            Slot(name, parameter, group, self.state[parameter])
            for group in self.param_groups
            for name, parameter in zip(group["param_names"], group["params"])
        ]

    def _settings(self, groups: list[dict[str, Any]] | None = None) -> str:
        """Everything but the arrays, in the words of the core; with these groups instead of the optimizer's own."""
        params = [
            {
                "name": name,
                "shape": list(parameter.shape) or [1],
                "weight": is_weight(parameter),
                "penalty": group["penalty"],
                "lambda_scale": group["lambda_scale"],
            }
            for group in groups or self.param_groups
            for name, parameter in zip(group["param_names"], group["params"])
        ]
        settings = {"rule": self._rule, "controller": self._controller, "lambda": self._lambda, "params": params}
        return json.dumps(settings)

    def _ready(self) -> tuple[_bregman.Stepper, list[Slot]]:
        """The core's optimizer over all arrays, made at the first step and when groups or states change."""
        if self._stepper is not None:
            return self._stepper, self._ready_slots
        slots = self._slots()
        stepper = _bregman.Stepper(self._settings(), self._saved)
        place = Place(slots[0].parameter.device)
        if place.is_capturing():
            raise RuntimeError("take a step before the capture, as torch asks for: it makes the optimizer's state")
        for slot in slots:
            check_device(slot.name, slot.parameter, place.device)
            slot.follow()
        for slot, lambda_ in zip(slots, stepper.lambdas()):
            slot.prepare(place.alignment)
            for array in self._arrays:
                if array not in slot.state:
                    values = torch.zeros_like(slot.weights())
                    if array == "dual":
                        first_dual(json.dumps(self._rule), slot, lambda_, values)
                    slot.state[array] = alike(slot.parameter, values)
        placed = [self._placed(slot) for slot in slots]
        addresses = [
            (weights.data_ptr(), *[address(array) for array in arrays], weights.numel(), slot.parameter.numel())
            for slot, weights, arrays in zip(slots, map(Slot.weights, slots), placed)
        ]
        shards = Shards(slots)
        self._ops = place.lend(stepper, addresses, placed, shards)
        self._stepper, self._place, self._ready_slots = stepper, place, slots
        self._copied = [slot for slot in slots if "weight" in slot.state]
        self._plain = plain_parameters(slots)
        return stepper, slots

    def _placed(self, slot: Slot) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Dual, first and second moment, in the core's order; None where the rule keeps none."""
        dual = local(slot.state["dual"]) if "dual" in self._arrays else None
        moments = [local(slot.state[array]) for array in self._arrays if array != "dual"]
        first, second = (*moments, None, None)[:2]
        return dual, first, second
