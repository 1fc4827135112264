"""A user's torch optimizer as a compiled update, with hyperparameters as inputs: schedulers need no new trace."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

from ptpathways import core, frontend
from ptpathways.frontend import TensorSpec
from ptpathways.pipelines._branches import Branch, Name, Watched
from ptpathways.pipelines._numbers import REPLACED, NumbersAsTensors

Formula: TypeAlias = tuple[str, Name, Name | None]

_FORMULAS: dict[str, Callable[[float, float], float]] = {
    "a": lambda a, b: a,
    "-a": lambda a, b: -a,
    "1-a": lambda a, b: 1 - a,
    "a*b": lambda a, b: a * b,
    "-a*b": lambda a, b: -(a * b),
    "1-a*b": lambda a, b: 1 - a * b,
}
_SETTINGS = {"capturable": True, "foreach": False, "fused": None, "differentiable": False}
"""So that an optimizer counts its steps on the device, one parameter after the other."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What a compiled update takes as inputs."""

    names: frozenset[Name]
    """Hyperparameters that may differ at every step."""
    formulas: tuple[Formula, ...]
    """How each number input is computed from them."""
    first: tuple[int, ...] = ()
    """Which of them the first step uses, which makes the optimizer's state."""
    later: tuple[int, ...] = ()
    """Which of them a step with state uses."""

    def used(self, state: Sequence[Collection[Any]]) -> tuple[int, ...]:
        """By a step of parameters with that ``state``; some may have none yet."""
        if all(state):
            return self.later
        return tuple(sorted({*self.first, *self.later})) if any(state) else self.first


class OptimizerRule:
    """How one step of an optimizer changes parameters. ``optimizer`` holds the user's own parameters, which stay."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        """``names``: of the parameters, by their id."""
        self.optimizer = optimizer
        if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
            raise core.PipelineError(
                f"optimizer {type(optimizer).__name__} cannot be compiled: "
                + ("it computes the loss several times in a step" if isinstance(optimizer, torch.optim.LBFGS) else "")
                + ("its gradients are sparse" if isinstance(optimizer, torch.optim.SparseAdam) else "")
                + "; use one such as AdamW"
            )
        self.group_of: dict[str, int] = {}
        self.parameters: dict[str, Tensor] = {}
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                name = names.get(id(parameter))
                if name is None:
                    raise core.PipelineError(
                        f"optimizer {type(optimizer).__name__} got a tensor of shape {tuple(parameter.shape)} that is "
                        "no parameter of the model; make it of the parameters that optimizer= is called with"
                    )
                self.group_of[name] = number
                self.parameters[name] = parameter
        self._names = frozenset(
            (number, "lr", 0) for number, group in enumerate(optimizer.param_groups) if "lr" in group
        )
        self._pinned: frozenset[Name] = frozenset()  # of these: a value at which the step takes another branch
        self._branches: list[Branch] = []  # that compiled updates depend on
        self._constants = self.constants()
        self.state_sizes: dict[int, float] = {}
        """By group, elements of state for each element of a parameter; known after ``followed``."""

    def constants(self) -> Any:
        """What is part of the compiled update, in a form to compare."""
        inputs = self._names - self._pinned
        return tuple(item for item in self._values() if item[:3] not in inputs or not isinstance(item[3], float))

    def changed(self) -> bool:
        """Whether compiled updates are others now: a constant has changed, or an input so that its step branches.

        A constant that has changed is followed from now on, where that can be done.
        """
        now, values = self.constants(), self._floats()
        if now == self._constants and all(one.same(values) for one in self._branches):
            return False
        old = {item[:3]: item[3] for item in self._constants}
        self._names |= {
            item[:3] for item in now if isinstance(item[3], float) and old.get(item[:3], item[3]) != item[3]
        }
        self._pinned = frozenset()
        self._branches.clear()
        self._constants = self.constants()
        return True

    def followed(self, shapes: dict[int, TensorSpec]) -> Followed:
        """Which numbers an update needs. ``shapes``: of a parameter of each group."""
        values = self._floats()
        while names := (self._names & values.keys()) - self._pinned:
            met: list[Branch] = []
            try:
                found = self._explained(names, shapes, met)
            except TypeError:  # a number of times, or what else must be an integer
                found = None
            if found is None:
                rates = {one for one in names if one[1] == "lr"}
                self._pinned |= names - rates or names
            elif others := [one for one in met if not one.same(values)]:
                self._pinned |= frozenset().union(*(one.names for one in others)) & names
            else:
                self._branches += met
                return found
            self._constants = self.constants()
        return Followed(frozenset(), ())

    def try_out(self) -> None:
        """Records a step of one parameter of each group. Raises PipelineError if the state does not fit."""
        shapes: dict[int, TensorSpec] = {}
        for name, number in self.group_of.items():
            value = self.parameters[name]
            shapes.setdefault(number, TensorSpec(tuple(value.shape), frontend.dtype_name(value.dtype)))
        self._numbers_met({}, shapes)

    def numbers(self, formulas: Iterable[Formula]) -> list[float]:
        """The values of number inputs now."""
        values = self._floats()
        return [_FORMULAS[kind](values[a], values[b] if b else 0.0) for kind, a, b in formulas]

    def _marks(self, followed: Followed, state: Sequence[Collection[Any]]) -> list[float]:
        """Numbers that stand for the inputs while the update is traced; those that such a step uses."""
        values = {**self._floats(), **self._marked(followed.names, 0)}
        formulas = [followed.formulas[place] for place in followed.used(state)]
        return [_FORMULAS[kind](values[a], values[b] if b else 0.0) for kind, a, b in formulas]

    def update(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        state: Sequence[dict[str, Any]],
        followed: Followed,
        numbers: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """One step on placeholders; new parameters and their new state.

        Args:
            state: empty before the first step.
            numbers: scalars, one for each of the formulas that such a step uses.
        """
        inputs = dict(zip(self._marks(followed, state), numbers, strict=True))
        marked = self._marked(followed.names, 0)
        updated, after = self._step(names, parameters, gradients, state, marked, inputs)
        if isinstance(self.optimizer, torch.optim.Adam):
            updated = [
                self._unless_zero(marked.get((self.group_of[name], "lr", 0)), inputs, name, old, new)
                for name, old, new in zip(names, parameters, updated, strict=True)
            ]
        return updated, after

    def _unless_zero(
        self, mark: float | None, inputs: Mapping[float, Tensor], name: str, old: Tensor, new: Tensor
    ) -> Tensor:
        """What a parameter becomes: it stays as it is while its rate is 0, by which capturable Adam divides."""
        rate = inputs.get(mark) if mark is not None else None
        if rate is not None:
            return torch.where(rate == 0, old, new)
        group = self.optimizer.param_groups[self.group_of[name]]
        return old if float(group["lr"]) == 0 else new

    def _step(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        state: Sequence[dict[str, Any]],
        values: Mapping[Name, float],
        inputs: dict[float, Tensor],
    ) -> tuple[list[Tensor], list[dict[str, Any]]]:
        kind = type(self.optimizer)
        shadow: Any = object.__new__(kind)
        shadow.__dict__.update({key: value for key, value in vars(self.optimizer).items() if key != "step"})
        shadow._optimizer_step_pre_hooks = collections.OrderedDict()
        shadow._optimizer_step_post_hooks = collections.OrderedDict()
        fresh = [parameter.detach().clone() for parameter in parameters]
        for parameter, gradient in zip(fresh, gradients, strict=True):
            parameter.grad = gradient
        shadow.state = collections.defaultdict(dict)
        for parameter, held in zip(fresh, state, strict=True):
            if held:
                shadow.state[parameter] = {
                    key: value.clone() if isinstance(value, Tensor) else value for key, value in held.items()
                }
        shadow.param_groups = []
        for number, group in enumerate(self.optimizer.param_groups):
            mine = [one for one, name in zip(fresh, names, strict=True) if self.group_of[name] == number]
            made = {**group, **{key: value for key, value in _SETTINGS.items() if key in group}, "params": mine}
            if isinstance(self.optimizer, torch.optim.Adadelta):  # which never reads its count of steps
                made["capturable"] = False
            for key, value in group.items():
                if isinstance(value, tuple | list) and key != "params":
                    made[key] = type(value)(values.get((number, key, i), one) for i, one in enumerate(value))
                else:
                    made[key] = values.get((number, key, 0), made[key])
            shadow.param_groups.append(made)
        try:
            with NumbersAsTensors(inputs):
                kind.step(shadow)
        except KeyError as error:  # as in eager PyTorch
            have = sorted({key for held in state for key in held})
            raise core.PipelineError(
                f"optimizer {kind.__name__} needs {error}, which is neither in its options nor in its state, which has "
                f"{', '.join(have) or 'nothing'}: it was made with other settings, or by another kind of optimizer; "
                "change settings before the first step, or load a state that fits"
            ) from None
        after: list[dict[str, Any]] = [
            {key: value for key, value in shadow.state.get(parameter, {}).items() if value is not None}
            for parameter in fresh
        ]
        for held in after:
            for key, value in held.items():
                if not isinstance(value, Tensor):
                    raise core.PipelineError(
                        f"optimizer {kind.__name__} keeps {key!r} as a {type(value).__name__}, so each step would be "
                        "another program; use one that keeps tensors, such as torch's with capturable"
                    )
        for parameter in fresh:
            parameter.grad = None
        return fresh, after

    def _initial(self, name: str, like: Tensor) -> dict[str, Tensor]:
        """The state that a parameter has before the first step; most optimizers make it in that step."""
        group = self.optimizer.param_groups[self.group_of[name]]
        known: dict[str, Any] = next(
            (self.optimizer.state[one] for one in group["params"] if one in self.optimizer.state), {}
        )
        return {
            key: torch.zeros(value.shape if value.dim() == 0 else like.shape, dtype=value.dtype)
            for key, value in known.items()
            if isinstance(value, Tensor)
        }

    def _floats(self) -> dict[Name, float]:
        return {item[:3]: item[3] for item in self._values() if isinstance(item[3], float)}

    def _values(self) -> list[tuple[int, str, int, Any]]:
        found: list[tuple[int, str, int, Any]] = []
        for number, group in enumerate(self.optimizer.param_groups):
            for key, value in group.items():
                if key == "params" or key in _SCHEDULERS:
                    continue
                parts = value if isinstance(value, tuple | list) else (value,)
                for place, part in enumerate(parts):
                    if isinstance(part, Tensor):
                        with _disable_current_modes():  # not part of an update that is being traced
                            part = float(part)
                    if isinstance(part, int) and not isinstance(part, bool):
                        part = float(part)
                    found.append((number, key, place, part))
        return found

    def _marked(self, names: Iterable[Name], shift: int) -> dict[Name, float]:
        """Values that stand for the hyperparameters: unlike any that somebody would choose."""
        return {
            name: 0.0713 + 0.0191 * shift + 0.001137 * place + (0.7 if name[1] in _NEAR_ONE else 0.0)
            for place, name in enumerate(sorted(names))
        }

    def _explained(
        self, names: frozenset[Name], shapes: dict[int, TensorSpec], branches: list[Branch]
    ) -> Followed | None:
        """The formulas that explain all numbers that depend on ``names``; None if there are others.

        ``branches`` gets the decisions that the step took by them.
        """
        used: tuple[dict[Formula, None], dict[Formula, None]] = ({}, {})
        both = [
            self._numbers_met(
                {name: Watched.of(name, value, branches) for name, value in self._marked(names, shift).items()}, shapes
            )
            for shift in (0, 1)
        ]
        if len(both[0]) != len(both[1]):
            return None
        values = [{**self._floats(), **self._marked(names, shift)} for shift in (0, 1)]
        for (phase, operation, first), (_, _, second) in zip(*both, strict=True):
            if first == second:
                continue
            if operation not in REPLACED:
                return None
            for formula in self._candidates(names):
                kind, a, b = formula
                if all(
                    _close(_FORMULAS[kind](known[a], known[b] if b else 0.0), met)
                    for known, met in zip(values, (first, second), strict=True)
                ):
                    used[phase][formula] = None
                    break
            else:
                return None
        formulas = tuple({**used[0], **used[1]})
        first_step, later = (tuple(map(formulas.index, one)) for one in used)
        return Followed(names, formulas, first_step, later)

    def _candidates(self, names: frozenset[Name]) -> list[Formula]:
        found: list[Formula] = [(kind, name, None) for name in sorted(names) for kind in ("a", "-a", "1-a")]
        for number, group in enumerate(self.optimizer.param_groups):
            rate, decay = (number, "lr", 0), (number, "weight_decay", 0)
            if "weight_decay" in group and {rate, decay} & names:
                found += [(kind, rate, decay) for kind in ("a*b", "-a*b", "1-a*b")]
        return found

    def _numbers_met(self, values: Mapping[Name, float], shapes: dict[int, TensorSpec]) -> list[tuple[int, str, float]]:
        """Every Python number that meets a tensor in two steps of one parameter per group, with step and operation."""
        kept: list[tuple[int, str, float]] = []

        def call(tensors: list[Tensor], next_phase: Callable[[], None]) -> Sequence[Tensor]:
            count = len(names)
            state = [self._initial(name, parameter) for name, parameter in zip(names, tensors, strict=False)]
            parameters = list(tensors[:count])
            for number in range(2):
                if number:
                    next_phase()
                parameters, state = self._step(names, parameters, tensors[count:], state, values, {})
            for name, parameter, held in zip(names, parameters, state, strict=True):
                elements = sum(value.numel() for value in held.values())
                self.state_sizes[self.group_of[name]] = elements / max(parameter.numel(), 1)
            return parameters

        firsts = {number: name for name, number in reversed(self.group_of.items())}
        names = [firsts[number] for number in shapes]
        specs = list(shapes.values())
        try:
            recording = frontend.record(call, [*specs, *specs], name="optimizer")
        except frontend.DataDependent as reason:
            raise core.PipelineError(
                f"optimizer {type(self.optimizer).__name__} reads values of tensors in its step, or computes what has "
                f"no XLA form ({reason.operation}), which a compiled update cannot; use one that has capturable, such "
                "as AdamW"
            ) from None
        for step in recording.steps:
            for leaf in _pytree.tree_leaves((step.args, step.kwargs)):
                scalar = isinstance(leaf, Tensor) and leaf.dim() == 0 and leaf.is_floating_point()
                if isinstance(leaf, float) or scalar:
                    kept.append((step.phase, str(step.operation), float(leaf)))
        return kept


_SCHEDULERS = frozenset({"initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum", "param_names"})
"""What schedulers note in the groups for themselves; no step computes with it."""
_NEAR_ONE = frozenset({"betas", "momentum", "alpha", "rho"})


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
