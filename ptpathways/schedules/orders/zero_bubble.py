"""Zero bubble (ZB-H1): gradients of weights, which nobody waits for, fill the gaps of 1F1B (Qi et al. 2024)."""

from __future__ import annotations

from ptpathways.core import PipelineError
from ptpathways.schedules._actions import Action, Kind, Order, Size
from ptpathways.schedules._costs import Costs

NAME = "zero-bubble"
SPLIT = True


def order(size: Size) -> Order:
    """As many activations as 1F1B; a rank puts off the weights' gradients of as many microbatches as ranks precede it.

    Raises:
        PipelineError: several stages per rank.
    """
    if size.chunks != 1:
        raise PipelineError(
            f"schedule {NAME!r} runs one stage per slice, got {size.stages} stages on {size.ranks} slices; "
            "give as many slices as stages"
        )
    return [_rank(rank, size) for rank in range(size.ranks)]


def _rank(rank: int, size: Size) -> list[Action]:
    count = size.microbatches
    ahead = min(count, size.ranks - 1 - rank)
    actions = [Action(Kind.FORWARD, rank, number) for number in range(ahead)]
    weights = 0
    for number in range(count):
        if number + ahead < count:
            actions.append(Action(Kind.FORWARD, rank, number + ahead))
        actions.append(Action(Kind.BACKWARD_INPUT, rank, number))
        draining = number + ahead >= count
        if number - weights >= (0 if draining else rank):
            actions.append(Action(Kind.BACKWARD_WEIGHT, rank, weights))
            weights += 1
    return [*actions, *(Action(Kind.BACKWARD_WEIGHT, rank, number) for number in range(weights, count))]


def bubble(size: Size, costs: Costs) -> float:
    """What the weights' gradients cannot fill: a forward and a backward pass, less one computation for weights."""
    wait = costs.forward + costs.backward_input + 2 * costs.transfer - costs.backward_weight
    return (size.ranks - 1) * max(wait, 0.0)
