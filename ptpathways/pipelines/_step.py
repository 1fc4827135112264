"""One training step as one dataflow program: forward, backward, accumulation and update, in the schedule's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ptpathways import frontend, schedules
from ptpathways.pipelines._functions import (
    StageFunctions,
    Update,
    begin,
    clipping,
    total,
    whole_gradients,
    whole_loss,
)
from ptpathways.pipelines._layouts import SliceLayouts
from ptpathways.pipelines._optimizer import OptimizerRule
from ptpathways.pipelines._parts import StageParts
from ptpathways.pipelines._plan import costs_of
from ptpathways.schedules import Action, Kind


class StepProgram:
    """The program of a step for batches of one shape."""

    def __init__(
        self,
        parts: Sequence[StageParts],
        layouts: Sequence[SliceLayouts],
        size: schedules.Size,
        schedule: schedules.Schedule,
        rule: OptimizerRule,
        placements: Mapping[str, Any],
        reduction: str,
        *,
        clipped: bool,
    ) -> None:
        """
        Args:
            clipped: the gradients' norm is limited, by a number that ``numbers`` is given.
            layouts: one per rank.
            reduction: of the microbatches' losses.
            placements: of parameters, by the model's name; a copy on each device where there is none.
        """
        self.parts = parts
        self.costs = costs_of(parts)
        self._parts = parts
        self._size = size
        self._rule = rule
        self._placements = placements
        self.order = schedule.order(size)
        self.actions = schedules.serial(self.order, size, split=schedule.split)
        self._layouts = layouts
        self._functions = [
            StageFunctions(
                one,
                self._layout(one.stage.number),
                {name: placements.get(one.stage.graph.parameters[name]) for name in one.stage.parameters},
                schedule.split,
            )
            for one in parts
        ]
        self._random = [
            [one.stage.number for one in parts if one.forward.random and size.rank_of(one.stage.number) == rank]
            for rank in range(size.ranks)
        ]
        self._loss = whole_loss(self._layout(len(parts) - 1).slice, size.microbatches, reduction)
        self._weight = parts[-1].stage.graph.weight
        self._clip = clipping(self._layout(0).slice) if clipped else None
        self._wholes: dict[int, Any] = {}
        self._begins: dict[Any, Any] = {}
        self._totals: dict[Any, Any] = {}
        self._updates: dict[Any, Update] = {}
        self.trained = {  # the model's name: the stages and placeholders that give it a gradient
            name: [
                (one.stage.number, placeholder)
                for one in parts
                for placeholder in one.parameter_gradients
                if one.stage.graph.parameters[placeholder] == name
            ]
            for name in dict.fromkeys(
                one.stage.graph.parameters[placeholder] for one in parts for placeholder in one.parameter_gradients
            )
        }
        self.homes: dict[int, list[str]] = {}  # by stage, what is updated there: its first user
        for name, uses in self.trained.items():
            self.homes.setdefault(uses[0][0], []).append(name)
        self.ignoring: Any = None
        """Watches the batches' targets."""
        shapes = self._shapes()
        self.followed = rule.followed(shapes)
        exact = any(spec.dtype == "f64" for spec in shapes.values())
        self._numbers_type = torch.float64 if exact else torch.float32
        self._fixed: dict[str, tuple[Tensor, int, Any]] = {}  # buffers: on the CPU, with version, and on their slice
        self._sent: tuple[list[float] | None, list[frontend.Future]] = (None, [])
        self.program: frontend.Program = frontend.program(self._body, donate=(0, 1), name="step", kind="dataflow")

    def hold(self, placeholder: str, stage: int, tensor: Tensor) -> None:
        """Says which buffer or constant of the model a stage's ``placeholder`` is."""
        self._fixed[f"{stage}/{placeholder}"] = (tensor, -1, None)

    def buffers(self) -> dict[str, Any]:
        """Buffers and constants on their slices, by stage and placeholder; sent again if they were changed."""
        for key, (tensor, version, _) in self._fixed.items():
            if tensor._version != version:
                slice = self._layout(int(key.partition("/")[0])).slice
                self._fixed[key] = (tensor, tensor._version, frontend.put(tensor.detach(), slice))
        return {key: held for key, (_, _, held) in self._fixed.items()}

    def numbers(self, largest_norm: float | None) -> list[frontend.Future]:
        """The hyperparameters now, once for each rank; sent only if they have changed."""
        values = self._rule.numbers(self.followed.formulas)
        if largest_norm is not None:
            values.append(largest_norm)
        if values != self._sent[0]:
            vector = torch.tensor(values, dtype=self._numbers_type)
            self._sent = values, [frontend.put(vector, layout.slice) for layout in self._layouts]
        return self._sent[1]

    def forget_sent(self) -> None:
        """Buffers and hyperparameters on the slices may be lost: the next step sends them again."""
        self._fixed = {key: (tensor, -1, None) for key, (tensor, _, _) in self._fixed.items()}
        self._sent = (None, [])

    def seeds(self) -> list[torch.Tensor | None]:
        """For each rank a seed per microbatch of its stages that draw random numbers, out of torch's generator."""
        counts = [self._size.microbatches * len(stages) for stages in self._random]
        return [torch.empty(count, dtype=torch.int64).random_() if count else None for count in counts]

    def batch_of(self, rank: int) -> list[int]:
        """Which tensors of the batch the stages of a rank read."""
        return sorted(
            {
                one.stage.graph.batch[name]
                for one in self._parts
                for name in one.stage.batch
                if self._size.rank_of(one.stage.number) == rank
            }
        )

    def _layout(self, stage: int) -> SliceLayouts:
        return self._layouts[self._size.rank_of(stage)]

    def _shapes(self) -> dict[int, frontend.TensorSpec]:
        """The type of a parameter of each of the optimizer's groups."""
        found: dict[int, frontend.TensorSpec] = {}
        for name, uses in self.trained.items():
            stage, placeholder = uses[0]
            number = self._parts[stage].arguments[placeholder]
            found.setdefault(self._rule.group_of[name], self._parts[stage].recording.specs[number])
        return found

    def _body(self, trained: Any, state: Any, fixed: Any, buffers: Any, batch: Any, numbers: Any, seeds: Any) -> Any:
        """``batch``: by rank, the tensors that ``batch_of`` names as (microbatches, samples, ...)."""
        run = _Run(self, {**trained, **fixed}, buffers)
        for rank in range(self._size.ranks):
            run.begin(rank, numbers[rank], seeds[rank], batch[rank])
        for action in self.actions:
            run.act(action)
        loss, weight = self._loss(*run.losses, *run.weights)
        gradients, divisors, norms = run.whole_gradients([weight] if run.weights else [])
        fresh, after = run.update(state, gradients, divisors)
        return loss, fresh, after, norms


class _Run:
    """The values of one trace of the program."""

    def __init__(self, step: StepProgram, parameters: Any, buffers: Any) -> None:
        self._step = step
        self._parameters = parameters
        self._buffers = buffers
        self._pieces: dict[tuple[int, int], list[Any]] = {}  # by rank and tensor of the batch
        self._numbers: list[list[Any]] = []
        self._seeds: dict[int, list[Any]] = {}  # by stage
        self._values: dict[tuple[int, int], dict[int, Any]] = {}  # by stage and microbatch
        self._made: dict[tuple[str, int], Any] = {}  # what stages give, by name and microbatch
        self._gradients: dict[tuple[str, int], list[Any]] = {}
        self._sums: dict[int, list[Any]] = {}
        self.losses: list[Any] = []
        self.weights: list[Any] = []

    def begin(self, rank: int, numbers: Any, seeds: Any, batch: Sequence[Any]) -> None:
        step = self._step
        ranks = tuple(len(one.spec.shape) for one in batch)
        key = (rank, ranks)
        if key not in step._begins:
            step._begins[key] = begin(step._layouts[rank], step._size.microbatches, ranks)
        pieces, scalars, drawn = step._begins[key](numbers, seeds, *batch)
        for index, piece in zip(step.batch_of(rank), pieces, strict=True):
            self._pieces[rank, index] = piece
        self._numbers.append(scalars)
        for place, stage in enumerate(step._random[rank]):
            first = place * step._size.microbatches
            self._seeds[stage] = drawn[first : first + step._size.microbatches]

    def act(self, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        functions = self._step._functions[stage]
        parts = functions.parts
        if action.kind is Kind.FORWARD:
            values = self._arguments(parts, microbatch)
            self._values[stage, microbatch] = values
            seed = self._seeds[stage][microbatch] if stage in self._seeds else None
            _, made = functions.forward(None, [values[number] for number in functions.forward.part.inputs], seed)
            values.update(zip(functions.forward.others, made, strict=True))
            for name, number in parts.outputs.items():
                self._made[name, microbatch] = values[number]
            if stage == self._step._size.stages - 1:
                self.losses.append(self._made[parts.stage.graph.loss, microbatch])
                if self._step._weight is not None:
                    self.weights.append(self._made[self._step._weight, microbatch])
            return
        values = self._values[stage, microbatch]
        if action.kind is Kind.BACKWARD_WEIGHT:
            assert functions.weight is not None
            self._add_up(stage, functions.weight, values)
            del self._values[stage, microbatch]
            return
        for name, number in parts.tangents.items():
            values[number] = self._total(functions, name, number, microbatch)
        self._add_up(stage, functions.backward, values)
        for name, number in parts.input_gradients.items():
            self._gradients.setdefault((name, microbatch), []).append(values[number])
        if action.kind is Kind.BACKWARD:
            del self._values[stage, microbatch]

    def whole_gradients(self, weights: Sequence[Any]) -> tuple[dict[str, list[Any]], Sequence[Any], Sequence[Any]]:
        """What each parameter's gradient is the sum of, what that is to be divided by, and the norm if it is limited.

        Args:
            weights: of the whole loss, if it has one.
        """
        step = self._step
        parts = {
            name: [self._sums[stage][_place(step._parts[stage], placeholder)] for stage, placeholder in uses]
            for name, uses in step.trained.items()
        }
        if step._clip is None:
            return parts, weights, ()
        norms = []
        for number, names in step.homes.items():
            if number not in step._wholes:
                step._wholes[number] = whole_gradients(
                    [len(parts[name]) for name in names],
                    [step._placements.get(name) for name in names],
                    step._layout(number).slice,
                    f"gradients{number}",
                    divided=bool(weights),
                )
            norm, made = step._wholes[number](*weights, *(one for name in names for one in parts[name]))
            norms.append(norm)
            parts.update((name, [one]) for name, one in zip(names, made, strict=True))
        norm, divisor = step._clip(self._numbers[0][-1], *norms)
        return parts, (divisor,), (norm,)

    def update(
        self, state: Any, gradients: Mapping[str, list[Any]], divisors: Sequence[Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The optimizer's step on every slice. ``divisors``: what gradients are to be divided by, if there is one."""
        step = self._step
        fresh: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for number, names in step.homes.items():
            keys = tuple(
                tuple((key, len(value.spec.shape)) for key, value in state.get(name, {}).items()) for name in names
            )
            known = (number, keys)
            if known not in step._updates:
                step._updates[known] = Update(
                    step._rule,
                    step.followed,
                    names,
                    [len(gradients[name]) for name in names],
                    keys,
                    [step._placements.get(name) for name in names],
                    step._layout(number).slice,
                    f"update{number}",
                    divided=bool(divisors),
                )
            made, held = step._updates[known](
                self._numbers[step._size.rank_of(number)],
                divisors,
                [self._parameters[name] for name in names],
                [state[name][key] for name, mine in zip(names, keys, strict=True) for key, _ in mine],
                [one for name in names for one in gradients[name]],
            )
            fresh.update(zip(names, made, strict=True))
            after.update(zip(names, held, strict=True))
        return fresh, after

    def _arguments(self, parts: StageParts, microbatch: int) -> dict[int, Any]:
        stage, numbers = parts.stage, parts.arguments
        rank = self._step._size.rank_of(stage.number)
        values = {numbers[name]: self._parameters[stage.graph.parameters[name]] for name in stage.parameters}
        values |= {numbers[name]: self._buffers[f"{stage.number}/{name}"] for name in stage.buffers}
        values |= {numbers[name]: self._pieces[rank, stage.graph.batch[name]][microbatch] for name in stage.batch}
        values |= {numbers[name]: self._made[name, microbatch] for name in stage.inputs}
        return values

    def _add_up(self, stage: int, function: Any, values: dict[int, Any]) -> None:
        sums, made = function(
            self._sums.get(stage) if function.gradients else None,
            [values[number] for number in function.part.inputs],
        )
        if function.gradients:
            self._sums[stage] = sums
        values.update(zip(function.others, made, strict=True))

    def _total(self, functions: StageFunctions, name: str, number: int, microbatch: int) -> Any:
        found = self._gradients.pop((name, microbatch), [])
        if len(found) == 1:
            return found[0]
        step = self._step
        key = (functions.parts.stage.number, name)
        if key not in step._totals:
            spec = functions.parts.recording.specs[number]
            step._totals[key] = total(step._layout(functions.parts.stage.number), spec, functions.placement(number))
        return step._totals[key](*found)


def _place(parts: StageParts, placeholder: str) -> int:
    return list(parts.parameter_gradients).index(placeholder)
