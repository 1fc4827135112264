"""Where parameters lie: strategies of ``prepare``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from ptpathways import core, frontend

Strategy: TypeAlias = Literal["ddp", "fsdp"] | Callable[[str, torch.Tensor], Any]

FSDP_LEAST = 256
"""Elements; a smaller parameter is copied: to gather it costs more than to hold it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where ``prepare`` puts a model: a slice, and how each tensor lies on it."""

    device: torch.device
    strategy: Strategy = "ddp"
    mesh: Any = None
    """Whose axes a rule names."""

    def tiling(self, name: str, tensor: torch.Tensor) -> frontend.Tiling:
        """How a parameter or buffer is to lie; as it was said to, unless a rule says something else.

        Raises:
            InvalidSharding: the rule's layout does not fit.
        """
        count = frontend.size_of(self.device)
        copied = frontend.copies(tensor.dim(), count)
        if count == 1 or tensor.dim() == 0:
            return copied
        if callable(self.strategy):
            given = self.strategy(name, tensor)
            if given is not None:
                return frontend.tiling_of(tensor.shape, given, self.device, self.mesh, name)
        if tensor.device == self.device:
            lies = frontend.said_of(tensor) or frontend.layout_of_tensor(tensor)
            if lies is not None and (math.prod(lies[0]) > 1 or self.strategy == "ddp"):
                return lies
        return cut_largest(tensor.shape, count) or copied if self.strategy == "fsdp" else copied


def check_strategy(strategy: Any) -> None:
    """Raises InvalidSharding unless this is a strategy."""
    known = isinstance(strategy, str) and strategy in ("ddp", "fsdp")
    if not known and (not callable(strategy) or isinstance(strategy, type)):
        raise core.InvalidSharding(
            "strategy is 'ddp' (a copy of each parameter on every device), 'fsdp' (each divided over all devices), or "
            f"a function (name, parameter) -> partition spec or None, got {strategy!r}"
        )


def cut_largest(shape: Sequence[int], count: int) -> frontend.Tiling | None:
    """A tensor whose largest dimension that divides is cut into a part per device; None: it is small, or none does."""
    dividing = [(size, -dimension) for dimension, size in enumerate(shape) if size % count == 0]
    if math.prod(shape) < max(FSDP_LEAST, count) or not dividing:
        return None
    cut = -max(dividing)[1]
    return tuple(count if dimension == cut else 1 for dimension in range(len(shape))), tuple(range(count))
