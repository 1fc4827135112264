"""1F1B: once the pipeline is full, each rank alternates one forward and one backward pass (Narayanan et al. 2019)."""

from __future__ import annotations

from ptpathways.core import PipelineError
from ptpathways.schedules._actions import Action, Kind, Order, Size
from ptpathways.schedules._costs import Costs

NAME = "1f1b"
SPLIT = False


def order(size: Size) -> Order:
    """Rank r keeps the activations of at most ``ranks - r`` microbatches.

    Raises:
        PipelineError: several stages per rank, which is the schedule ``interleaved``.
    """
    if size.chunks != 1:
        raise PipelineError(
            f"schedule {NAME!r} runs one stage per slice, got {size.stages} stages on {size.ranks} slices; "
            'give as many slices as stages, or use schedule="interleaved"'
        )
    return [_rank(rank, size) for rank in range(size.ranks)]


def _rank(rank: int, size: Size) -> list[Action]:
    ahead = min(size.microbatches, size.ranks - 1 - rank)
    actions = [Action(Kind.FORWARD, rank, number) for number in range(ahead)]
    for number in range(size.microbatches):
        if number + ahead < size.microbatches:
            actions.append(Action(Kind.FORWARD, rank, number + ahead))
        actions.append(Action(Kind.BACKWARD, rank, number))
    return actions


def bubble(size: Size, costs: Costs) -> float:
    """As long as GPipe's: 1F1B saves memory and no time."""
    return (size.ranks - 1) * (costs.forward + costs.backward + 2 * costs.transfer)
