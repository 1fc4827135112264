"""A stage's computation, recorded forwards and backwards, divided into the parts that a schedule orders.

What the backward pass needs of the forward pass becomes results of the forward part. Views are not kept but made again
from what they look at; parameters and inputs are on the slice anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ptpathways import core, frontend
from ptpathways.frontend import RecordedStep, Recording
from ptpathways.pipelines._model import spec_of, value_of
from ptpathways.pipelines._stages import StageGraph

_VIEWS = frozenset(
    f"aten::{name}_copy"
    for name in ("alias", "detach", "expand", "permute", "squeeze", "t", "transpose", "unsqueeze", "view")
) | {"aten::_unsafe_view"}


@dataclass(frozen=True, slots=True)
class Part:
    """One function of a stage: some steps of its recording."""

    recording: Recording
    steps: tuple[RecordedStep, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """None of them is an input."""

    def run(self, values: Sequence[Tensor]) -> list[Tensor]:
        """``values`` of ``inputs``; gives those of ``outputs``."""
        known = dict(zip(self.inputs, values, strict=True))
        return frontend.play(self.recording, self.steps, known, self.outputs)

    @property
    def random(self) -> bool:
        return any(step.random for step in self.steps)


@dataclass(frozen=True, slots=True)
class StageParts:
    """A stage, ready to be compiled. Numbers are those of its recording's values."""

    stage: StageGraph
    recording: Recording
    arguments: dict[str, int]
    """Parameters, buffers, batch and inputs by the name of their placeholder or node."""
    outputs: dict[str, int]
    tangents: dict[str, int]
    """Arguments of the backward pass: the gradient of each output that needs one."""
    input_gradients: dict[str, int]
    """By input; those of them that need one."""
    parameter_gradients: dict[str, int]
    """By placeholder; those of the parameters that get one."""
    forward: Part
    backward: Part
    backward_input: Part
    """With ``backward_weight`` the same as ``backward``."""
    backward_weight: Part


def record_stages(
    stages: Sequence[StageGraph], frozen: Collection[str], scale: float, *, recompute: bool = False
) -> list[StageParts]:
    """Records all stages. Values behind which there is no gradient, such as those that are detached, get none.

    Args:
        frozen: placeholders of parameters that need no gradient.
        scale: the gradient of the loss.
        recompute: keep a stage's inputs and random draws only, and run its forward pass again.

    Raises:
        ModelCannotBeCut: an operation needs values, or the loss depends on no parameter that is trained.
    """
    differentiable: set[str] = set()
    parts = [_Recorder(stage, frozen, differentiable, scale).run(recompute) for stage in stages]
    if stages[-1].graph.loss not in differentiable or not any(one.parameter_gradients for one in parts):
        raise core.ModelCannotBeCut(
            "the loss requires no gradient: it depends on no parameter that is trained, or is detached from all; check "
            "detach(), no_grad, requires_grad, and the parameters that the optimizer was given"
        )
    reached: set[str] = set()
    for place in reversed(range(len(parts))):
        if not set(parts[place].tangents) <= reached:  # no later stage gives it a gradient: None in eager PyTorch
            parts[place] = _Recorder(stages[place], frozen, differentiable, scale, reached).run(recompute)
        reached.update(parts[place].input_gradients)
    return parts


class _Recorder:
    def __init__(
        self,
        stage: StageGraph,
        frozen: Collection[str],
        differentiable: set[str],
        scale: float,
        reached: Collection[str] | None = None,
    ) -> None:
        """``reached``: values that get a gradient from a later stage; None: not known yet, so all may."""
        self._stage = stage
        self._reached = reached
        self._differentiable = differentiable
        self._scale = scale
        placeholders = {node.name: node for node in stage.graph.module.graph.nodes}
        self._names = (*stage.parameters, *stage.buffers, *stage.batch, *stage.inputs)
        self._specs = [spec_of(value_of(placeholders[name])) for name in self._names]
        self._wanting = [name for name in stage.parameters if name not in frozen]
        self._wanting += [name for name in stage.inputs if name in differentiable]
        self._last = stage.graph.loss in stage.outputs
        # A gradient may come for every output; which ones do is known after the forward pass.
        self._tangents = [] if self._last else list(stage.outputs)
        self._specs += [spec_of(value_of(placeholders[name])) for name in self._tangents]
        self._given: list[str] = []
        self._graded: list[str] = []

    def run(self, recompute: bool) -> StageParts:
        stage = self._stage
        try:
            recording = frontend.record(self._call, self._specs, name=f"stage {stage.number}")
        except frontend.DataDependent as reason:
            raise core.ModelCannotBeCut(
                f"stage {stage.number} cannot be compiled: {reason.operation} depends on the values of its arguments, "
                "or has no XLA form; rewrite it with operations of known output size"
            ) from None
        arguments = {name: number for number, name in enumerate(self._names)}
        tangents = {name: len(self._names) + place for place, name in enumerate(self._tangents)}
        results = recording.results
        outputs = {name: _number(results[place]) for place, name in enumerate(stage.outputs)}
        gradients = dict(zip(self._wanting, results[len(stage.outputs) :], strict=True))
        self._differentiable.update(self._graded)
        return divide(
            stage,
            recording,
            arguments,
            outputs,
            {name: tangents[name] for name in self._graded if name in tangents},
            {name: number for name in stage.inputs if (number := gradients.get(name)) is not None},
            {name: number for name in stage.parameters if (number := gradients.get(name)) is not None},
            recompute=recompute,
        )

    def _call(self, placeholders: list[Tensor], next_phase: object) -> list[Tensor | None]:
        assert callable(next_phase)
        values = dict(zip(self._names, placeholders, strict=False))
        tangents = dict(zip(self._tangents, placeholders[len(self._names) :], strict=True))
        with torch.enable_grad():
            for name in self._wanting:
                values[name] = values[name].detach().requires_grad_()
            mutates = any(
                isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
                for node in self._stage.nodes
            )
            run_on = {name: value.clone() for name, value in values.items()} if mutates else values
            outputs = self._stage.run(run_on, torch.device("xla", 0))
            self._graded = [
                name for name, value in zip(self._stage.outputs, outputs, strict=True) if value.requires_grad
            ]
            next_phase()
            wanting = [values[name] for name in self._wanting]
            if self._reached is not None and not self._last:
                self._graded = [name for name in self._graded if name in self._reached]
            ends = [value for name, value in zip(self._stage.outputs, outputs, strict=True) if name in self._graded]
            if not wanting or not ends:
                return [*outputs, *(None for _ in wanting)]
            given = [torch.full_like(ends[0], self._scale)] if self._last else [tangents[name] for name in self._graded]
            found = torch.autograd.grad(ends, wanting, given, allow_unused=True)
        return [*outputs, *found]


def _number(number: int | None) -> int:
    assert number is not None
    return number


def divide(
    stage: StageGraph,
    recording: Recording,
    arguments: dict[str, int],
    outputs: dict[str, int],
    tangents: dict[str, int],
    input_gradients: dict[str, int],
    parameter_gradients: dict[str, int],
    *,
    recompute: bool = False,
) -> StageParts:
    """Divides a recording whose phase 0 is the forward pass and whose phase 1 is the backward pass."""
    producer = {number: step for step in recording.steps for number in step.results if number is not None}
    backwards = [step for step in recording.steps if step.phase == 1]
    gradients = {*input_gradients.values(), *parameter_gradients.values()}
    backwards = _needed(backwards, gradients)
    keep = _Keeper(recording, producer, {id(step) for step in backwards}, recompute)
    backward = keep.part(backwards, gradients)
    weights = _weights(backwards, set(input_gradients.values()), set(parameter_gradients.values()))
    inner = [step for step in backwards if id(step) not in weights]
    outer = [step for step in backwards if id(step) in weights]
    late = _Keeper(recording, producer, {id(step) for step in outer}, recompute)
    backward_weight = late.part(outer, set(parameter_gradients.values()))
    made = {number for step in inner for number in step.results if number is not None}
    handed = [number for number in backward_weight.inputs if number in made]
    backward_input = keep.part(inner, {*input_gradients.values(), *handed})
    used = {*backward.inputs, *backward_input.inputs, *backward_weight.inputs} - made
    forwards = [step for step in recording.steps if step.phase == 0]
    results = dict.fromkeys([*outputs.values(), *sorted(used)])
    wanted = [number for number in results if number >= recording.arguments]
    steps = _needed(forwards, set(wanted))
    taken = dict.fromkeys(number for step in steps for number in step.inputs if number < recording.arguments)
    forward = Part(recording, tuple(steps), tuple(taken), tuple(wanted))
    return StageParts(
        stage,
        recording,
        arguments,
        outputs,
        tangents,
        input_gradients,
        parameter_gradients,
        forward,
        backward,
        backward_input,
        backward_weight,
    )


class _Keeper:
    """Finds what a part needs from before: kept values, and steps that are cheap enough to be run again."""

    def __init__(self, recording: Recording, producer: dict[int, RecordedStep], own: set[int], recompute: bool) -> None:
        self._recording = recording
        self._producer = producer
        self._own = own
        self._recompute = recompute
        self._place = {id(step): place for place, step in enumerate(recording.steps)}

    def part(self, steps: Sequence[RecordedStep], outputs: Collection[int]) -> Part:
        """The part that runs ``steps``, which are in order, and gives ``outputs``."""
        inside = {id(step) for step in steps}
        again: dict[int, RecordedStep] = {}
        kept: dict[int, None] = {}

        waiting = [*outputs, *(number for step in steps for number in step.inputs)]
        while waiting:
            number = waiting.pop()
            step = self._producer.get(number)
            if step is None:
                kept[number] = None
            elif id(step) in inside or id(step) in again:
                continue
            elif self._cheap(step):
                again[id(step)] = step
                waiting += step.inputs
            else:
                kept[number] = None
        whole = sorted([*steps, *again.values()], key=lambda step: self._place[id(step)])
        made = {number for step in whole for number in step.results}
        return Part(
            self._recording,
            tuple(whole),
            tuple(sorted(kept)),
            tuple(number for number in sorted(set(outputs)) if number in made and number not in kept),
        )

    def _cheap(self, step: RecordedStep) -> bool:
        if step.random:
            return False
        if self._recompute and step.phase == 0:
            return True
        return not step.inputs or step.operation._schema.name in _VIEWS


def _needed(steps: Sequence[RecordedStep], wanted: set[int]) -> list[RecordedStep]:
    """Those of ``steps`` that lead to ``wanted``, in order."""
    found: list[RecordedStep] = []
    needed = set(wanted)
    for step in reversed(steps):
        if not needed.isdisjoint(step.results):
            found.append(step)
            needed.update(step.inputs)
    return found[::-1]


def _weights(steps: Sequence[RecordedStep], inputs: set[int], parameters: set[int]) -> set[int]:
    """Steps (their ids) that lead to the gradient of one parameter and to nothing else."""
    leads: dict[int, set[int]] = {}
    found: set[int] = set()
    for step in reversed(steps):
        ends: set[int] = set()
        for number in step.results:
            if number is None:
                continue
            ends |= leads.get(number, set())
            if number in inputs:
                ends.add(-1)
            if number in parameters:
                ends.add(number)
        if len(ends) == 1 and -1 not in ends:
            found.add(id(step))
        for number in step.inputs:
            leads.setdefault(number, set()).update(ends)
    return found
