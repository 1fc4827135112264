"""The schedules by name: every file in ``orders``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptpathways.core import PipelineError
from ptpathways.schedules import orders
from ptpathways.schedules._actions import Order, Size
from ptpathways.schedules._costs import Costs, largest
from ptpathways.schedules._verify import verify


@dataclass(frozen=True, slots=True)
class Schedule:
    """A rule that orders the actions of a pipeline's ranks. Made by ``find``."""

    name: str
    split: bool
    """Whether gradients of inputs and of weights are separate actions."""
    _order: Callable[[Size], Order]
    _bubble: Callable[[Size, Costs], float]

    def order(self, size: Size) -> Order:
        """The actions of each rank.

        Raises:
            PipelineError: the schedule cannot do that size, or breaks a rule of ``verify``.
        """
        return verify(self._order(size), size, split=self.split, name=self.name)

    def bubble(self, size: Size, costs: Sequence[Costs]) -> float:
        """In theory, the part of a step's time (0 to 1) in which a rank is idle, if all stages cost the most of any."""
        slowest = largest(costs)
        idle = self._bubble(size, slowest)
        busy = size.microbatches * size.chunks * (slowest.forward + slowest.backward)
        return idle / (idle + busy) if idle + busy else 0.0


def known() -> list[str]:
    """The names of all schedules."""
    return sorted(_all())


def find(name: str) -> Schedule:
    """The schedule called ``name``.

    Raises:
        PipelineError: there is none; names those that there are.
    """
    found = _all().get(name) if isinstance(name, str) else None
    if found is None:
        raise PipelineError(f"schedule must be one of {', '.join(map(repr, known()))}, got {name!r}")
    return found


_found: dict[str, Schedule] = {}


def _all() -> dict[str, Schedule]:
    if not _found:
        for info in pkgutil.iter_modules(orders.__path__):
            module = importlib.import_module(f"{orders.__name__}.{info.name}")
            _found[module.NAME] = Schedule(module.NAME, module.SPLIT, module.order, module.bubble)
    return _found
