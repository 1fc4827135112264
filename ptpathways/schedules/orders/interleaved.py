"""Interleaved 1F1B: several stages per rank, so that the pipeline fills faster (Narayanan et al. 2021)."""

from __future__ import annotations

from ptpathways.core import PipelineError
from ptpathways.schedules._actions import Action, Kind, Order, Size
from ptpathways.schedules._costs import Costs

NAME = "interleaved"
SPLIT = False


def order(size: Size) -> Order:
    """Microbatches go in groups of ``ranks`` through a rank's first stage, then through its second, and so on.

    Raises:
        PipelineError: ``microbatches`` is not a multiple of ``ranks``.
    """
    if size.microbatches % size.ranks:
        raise PipelineError(
            f"schedule {NAME!r} needs a number of microbatches that {size.ranks} slices divide, got "
            f"{size.microbatches}; use {size.microbatches // size.ranks * size.ranks or size.ranks} or "
            f"{(size.microbatches // size.ranks + 1) * size.ranks}"
        )
    return [_rank(rank, size) for rank in range(size.ranks)]


def _rank(rank: int, size: Size) -> list[Action]:
    total = size.microbatches * size.chunks
    ahead = min(total, (size.ranks - 1 - rank) * 2 + (size.chunks - 1) * size.ranks)
    forwards = [Action(Kind.FORWARD, *_place(rank, number, size, False)) for number in range(total)]
    backwards = [Action(Kind.BACKWARD, *_place(rank, number, size, True)) for number in range(total)]
    actions = forwards[:ahead]
    for number, backward in enumerate(backwards):
        actions += [*forwards[number + ahead : number + ahead + 1], backward]
    return actions


def _place(rank: int, number: int, size: Size, backward: bool) -> tuple[int, int]:
    """Stage and microbatch of a rank's ``number``-th forward or backward pass."""
    group, within = divmod(number, size.ranks * size.chunks)
    chunk, microbatch = divmod(within, size.ranks)
    if backward:
        chunk = size.chunks - 1 - chunk
    return chunk * size.ranks + rank, group * size.ranks + microbatch


def bubble(size: Size, costs: Costs) -> float:
    """The costs are those of one stage, of which a rank has ``chunks``: so the bubble shrinks by their number."""
    return (size.ranks - 1) * (costs.forward + costs.backward + 2 * costs.transfer)
