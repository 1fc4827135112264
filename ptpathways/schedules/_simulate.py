"""A schedule in time: each rank runs its actions in order, each as soon as what it needs has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptpathways.schedules._actions import Action, Kind, Order, Size, dependencies
from ptpathways.schedules._costs import Costs, cost_of
from ptpathways.schedules._verify import serial


@dataclass(frozen=True, slots=True)
class Span:
    """An action with its time."""

    action: Action
    rank: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the ranks of a pipeline did, or would do, when."""

    ranks: int
    spans: tuple[Span, ...]

    @property
    def start(self) -> float:
        return min((span.start for span in self.spans), default=0.0)

    @property
    def length(self) -> float:
        """From the first start to the last end."""
        return max((span.end for span in self.spans), default=0.0) - self.start

    @property
    def bubble(self) -> float:
        """The part of the ranks' time (0 to 1) in which they are idle."""
        whole = self.length * self.ranks
        return 1 - sum(span.end - span.start for span in self.spans) / whole if whole else 0.0

    def of_rank(self, rank: int) -> list[Span]:
        """In order of their start."""
        return sorted((span for span in self.spans if span.rank == rank), key=lambda span: span.start)


def simulate(order: Order, size: Size, costs: Sequence[Costs], *, split: bool) -> Timeline:
    """The timeline of a step. ``costs``: one per stage.

    Raises:
        PipelineError: the order deadlocks.
    """
    ended: dict[Action, float] = {}
    free = [0.0] * size.ranks
    spans: list[Span] = []
    for action in serial(order, size, split=split):
        rank = size.rank_of(action.stage)
        start = free[rank]
        for needed in dependencies(action, size.stages, split):
            far = size.rank_of(needed.stage) != rank
            start = max(start, ended[needed] + (costs[needed.stage].transfer if far else 0.0))
        free[rank] = ended[action] = start + cost_of(action, costs)
        spans.append(Span(action, rank, start, ended[action]))
    return Timeline(size.ranks, tuple(spans))


def activations(order: Order) -> list[int]:
    """For each rank, of how many forward passes it keeps the activations at most."""
    most: list[int] = []
    for actions in order:
        held = peak = 0
        for action in actions:
            if action.kind is Kind.FORWARD:
                held += 1
                peak = max(peak, held)
            elif action.kind is not Kind.BACKWARD_INPUT:
                held -= 1
        most.append(peak)
    return most
