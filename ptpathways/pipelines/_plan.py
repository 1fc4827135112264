"""What a step's schedule looks like in time: as planned from costs, or as it was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from ptpathways import core, frontend, programs, schedules
from ptpathways.frontend import RecordedStep, Recording, Ref
from ptpathways.pipelines._parts import Part, StageParts
from ptpathways.schedules import Action, Costs, Kind, Size

_PARTS = {
    "forward": Kind.FORWARD,
    "backward": Kind.BACKWARD,
    "backward_input": Kind.BACKWARD_INPUT,
    "backward_weight": Kind.BACKWARD_WEIGHT,
}
_NAME = re.compile(r"\b(forward|backward_input|backward_weight|backward)(\d+)\b")


@dataclass(frozen=True)
class Plan:
    """A schedule in time. ``print`` it, or write it with ``svg``; the colours mean the same in every plan."""

    schedule: str
    size: Size
    timeline: schedules.Timeline
    theory: float
    """The bubble of this schedule in theory, if all stages cost the same (0 to 1)."""
    unit: str
    """Of the timeline's numbers."""
    measured: bool = False

    @property
    def bubble(self) -> float:
        """The part of the slices' time (0 to 1) in which they are idle, from the first start to the last end."""
        return self.timeline.bubble

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        size = self.size
        return (
            f"{self.schedule}, {'measured' if self.measured else 'planned'}: {size.stages} stages on {size.ranks} "
            f"slices, {size.microbatches} microbatches; bubble {self.bubble:.1%}, in theory {self.theory:.1%}"
        )

    def text(self, width: int = 100) -> str:
        """A line per slice, ``width`` columns of time: F forward, B backward (I inputs, W weights), a dot is idle.

        Raises:
            TypeError, ValueError: ``width`` is no number of columns.
        """
        width = core.whole_number(width, "width", least=1)
        return f"{self.title}\n{schedules.text(self.timeline, width=width)}"

    def svg(self, path: str | Path | None = None) -> str:
        """The picture as an SVG document, which is also written to ``path`` if there is one."""
        target = None if path is None else Path(core.path_text(path))
        made = schedules.svg(self.timeline, self.title, unit=f" {self.unit}")
        if target is not None:
            target.write_text(made, encoding="utf-8")
        return made

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return self.svg()


def plan(
    schedule: str,
    *,
    stages: int,
    microbatches: int,
    slices: int | None = None,
    costs: Costs | Sequence[Costs] = schedules.Costs(),  # noqa: B008  (it is immutable)
    unit: str = "forward passes",
) -> Plan:
    """Plans a step without a model.

    Args:
        schedule: its name; an unknown one is an error that lists those that there are.
        slices: default: as many as stages.
        costs: of all stages, or one for each.
        unit: of the costs.

    Raises:
        PipelineError: the schedule is unknown or cannot do that size.
    """
    rule = schedules.find(schedule)
    core.check_text(unit, "unit")
    ranks = stages if slices is None else slices
    for name, value in (("stages", stages), ("microbatches", microbatches), ("slices", ranks)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise core.PipelineError(f"{name} must be an integer of at least 1, got {value!r}")
    if stages % ranks:
        raise core.PipelineError(f"stages must be a multiple of slices, got {stages} stages and {slices} slices")
    size = Size(ranks, microbatches, stages // ranks)
    each = costs_of_stages(costs, stages)
    timeline = schedules.simulate(rule.order(size), size, each, split=rule.split)
    return Plan(schedule, size, timeline, rule.bubble(size, each), unit)


def costs_of_stages(costs: Any, stages: int) -> Sequence[Costs]:
    """One per stage. Raises PipelineError."""
    each = [costs] * stages if isinstance(costs, Costs) else costs
    if not isinstance(each, list | tuple) or not all(isinstance(one, Costs) for one in each):
        raise core.PipelineError(
            f"costs must be pw.pipelines.Costs, of all stages or a list with one for each, got {costs!r}"
        )
    if len(each) != stages:
        raise core.PipelineError(f"costs must be of all {stages} stages, got {len(each)}")
    return each


def costs_of(parts: Sequence[StageParts]) -> list[Costs]:
    """By counting floating point operations, in forward passes of the most expensive stage."""
    counts = [
        (work_of(one.forward), work_of(one.backward), work_of(one.backward_input), work_of(one.backward_weight))
        for one in parts
    ]
    unit = max(forward for forward, *_ in counts) or 1.0
    found = []
    for forward, backward, first, second in counts:
        share = backward / (first + second) if first + second else 0.0  # views are made again in both parts
        found.append(Costs(forward / unit, first * share / unit, second * share / unit))
    return found


def work_of(part: Part) -> float:
    """Floating point operations of a part, and one for each element that it writes."""
    return sum(_work(step, part.recording) for step in part.steps)


_STANDS_FOR = {
    "aten::convolution_overrideable": torch.ops.aten.convolution,
    "aten::convolution_backward_overrideable": torch.ops.aten.convolution_backward,
}


def _work(step: RecordedStep, recording: Recording) -> float:
    name = step.operation._schema.name
    if name.endswith("_copy"):
        return 0.0
    results = [recording.specs[number] for number in step.results if number is not None]
    written = float(sum(torch.Size(spec.shape).numel() for spec in results))
    count = flop_registry.get(_STANDS_FOR.get(name, step.operation.overloadpacket))
    if count is None:
        return written

    def meta(leaf: object) -> object:
        if not isinstance(leaf, Ref):
            return leaf
        spec = recording.specs[leaf.number]
        return torch.empty(spec.shape, dtype=frontend.torch_dtype(spec.dtype), device="meta")

    args, kwargs = torch.utils._pytree.tree_map(meta, (step.args, step.kwargs))
    outputs = [  # some of an operation's results may not be there, such as a gradient that nobody needs
        None if number is None else torch.empty(recording.specs[number].shape, device="meta") for number in step.results
    ]
    return written + float(count(*args, **kwargs, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs)))


def measured(
    order: schedules.Order,
    size: Size,
    schedule: schedules.Schedule,
    theory: float,
    devices: Sequence[int],
    runs: Sequence[programs.TimedRun],
) -> Plan:
    """The last whole one of a step's runs.

    Args:
        devices: one of each rank's slice.
        runs: the oldest first.

    Raises:
        PipelineError: none is whole.
    """
    wanted = sum(map(len, order))
    for run in reversed(runs):
        found: list[tuple[Kind, int, programs.Computation]] = []
        for one in run.computations:
            match = _NAME.search(one.node)
            if match is not None and one.device == devices[size.rank_of(int(match[2]))]:
                found.append((_PARTS[match[1]], int(match[2]), one))
        if len(found) == wanted and not run.missing:
            break
    else:
        raise core.PipelineError(
            "no whole step of this pipeline is known: hosts note the last few steps, and forget them when a slice "
            "moves or the step is traced anew; a step that fails is never whole. Take a step with pipe.step(*batch), "
            "and call measured() again"
        )
    places: dict[tuple[Kind, int], list[int]] = {}
    for actions in order:
        for action in actions:
            places.setdefault((action.kind, action.stage), []).append(action.microbatch)
    first = min((one.start for *_, one in found), default=0.0)
    spans: list[schedules.Span] = []
    for kind, stage, one in sorted(found, key=lambda entry: entry[2].place):
        action = Action(kind, stage, places[kind, stage].pop(0))
        spans.append(schedules.Span(action, size.rank_of(stage), one.start - first, one.end - first))
    spans.sort(key=lambda span: (span.start, span.end))
    return Plan(schedule.name, size, schedules.Timeline(size.ranks, tuple(spans)), theory, "us", measured=True)
