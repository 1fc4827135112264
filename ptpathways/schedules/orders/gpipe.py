"""GPipe: all forward passes, then all backward passes (Huang et al. 2019)."""

from __future__ import annotations

from ptpathways.schedules._actions import Action, Kind, Order, Size
from ptpathways.schedules._costs import Costs

NAME = "gpipe"
SPLIT = False


def order(size: Size) -> Order:
    """Every rank keeps the activations of all microbatches."""
    chunks = [range(rank, size.stages, size.ranks) for rank in range(size.ranks)]
    microbatches = range(size.microbatches)
    return [
        [Action(Kind.FORWARD, stage, number) for stage in stages for number in microbatches]
        + [Action(Kind.BACKWARD, stage, number) for stage in reversed(stages) for number in microbatches]
        for stages in chunks
    ]


def bubble(size: Size, costs: Costs) -> float:
    """The first microbatch's way through the other ranks, forwards and backwards."""
    return (size.ranks - 1) * (costs.forward + costs.backward + 2 * costs.transfer)
