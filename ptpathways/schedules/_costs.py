"""What actions cost. The unit is the caller's: seconds, or anything that is proportional to them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

from ptpathways.core import PipelineError
from ptpathways.schedules._actions import Action, Kind


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one stage for one microbatch. ``transfer``: of an activation or a gradient from rank to rank.

    Raises:
        PipelineError: one is no number of at least 0.
    """

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    transfer: float = 0.0

    def __post_init__(self) -> None:
        for name in ("forward", "backward_input", "backward_weight", "transfer"):
            value = getattr(self, name)
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not number or not 0 <= value < math.inf:
                raise PipelineError(f"costs: {name} must be a number of at least 0, got {value!r}")

    @property
    def backward(self) -> float:
        """Both parts together."""
        return self.backward_input + self.backward_weight

    def of(self, kind: Kind) -> float:
        match kind:
            case Kind.FORWARD:
                return self.forward
            case Kind.BACKWARD:
                return self.backward
            case Kind.BACKWARD_INPUT:
                return self.backward_input
            case Kind.BACKWARD_WEIGHT:
                return self.backward_weight


def largest(costs: Sequence[Costs]) -> Costs:
    """The costs of the slowest stage, which sets the pace of all."""
    return max(costs, key=lambda one: one.forward + one.backward)


def cost_of(action: Action, costs: Sequence[Costs]) -> float:
    """``costs``: one per stage."""
    return costs[action.stage].of(action.kind)
