"""What a rank of a pipeline does, one action after the other."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


class Kind(enum.StrEnum):
    """The letter is the one that pictures show."""

    FORWARD = "F"
    BACKWARD = "B"
    """Gradients of the stage's inputs and of its parameters, in one computation."""
    BACKWARD_INPUT = "I"
    """Only the gradients of the stage's inputs, which the stage before waits for."""
    BACKWARD_WEIGHT = "W"
    """Only the gradients of the parameters, after ``BACKWARD_INPUT``."""


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One computation: ``kind`` of microbatch ``microbatch`` through stage ``stage``, both counted from 0."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.microbatch}"


Order: TypeAlias = Sequence[Sequence[Action]]
"""For each rank the actions it runs, in this order."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a schedule is made for.

    ``ranks`` slices run ``ranks * chunks`` stages; stage ``s`` runs on rank ``s % ranks``.
    """

    ranks: int
    microbatches: int
    chunks: int = 1

    @property
    def stages(self) -> int:
        return self.ranks * self.chunks

    def rank_of(self, stage: int) -> int:
        return stage % self.ranks


def dependencies(action: Action, stages: int, split: bool) -> list[Action]:
    """What must have ended before ``action`` can start.

    ``split``: whether the backward pass is in two parts (``BACKWARD_INPUT`` and ``BACKWARD_WEIGHT``).
    """
    backward = Kind.BACKWARD_INPUT if split else Kind.BACKWARD
    stage, microbatch = action.stage, action.microbatch
    if action.kind is Kind.FORWARD:
        return [Action(Kind.FORWARD, stage - 1, microbatch)] if stage else []
    if action.kind is Kind.BACKWARD_WEIGHT:
        return [Action(Kind.BACKWARD_INPUT, stage, microbatch)]
    needed = [Action(Kind.FORWARD, stage, microbatch)]
    if stage + 1 < stages:
        needed.append(Action(backward, stage + 1, microbatch))
    return needed
