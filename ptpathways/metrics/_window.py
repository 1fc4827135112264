"""Windows: which values are averaged together, and when. A pure state machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Window:
    """Values of one name, of the steps ``first`` to ``last``."""

    first: int
    last: int
    values: list[Any] = field(default_factory=list)


class Windows:
    """For each name the window that is being filled. A name's steps count from 1 unless they are given."""

    def __init__(self) -> None:
        self._open: dict[str, Window] = {}
        self._steps: dict[str, int] = {}

    def add(self, values: Mapping[str, Any], step: int | None, every: int) -> dict[str, Window]:
        """Adds one value per name; the windows that now hold ``every`` values, which are closed."""
        full = {}
        for name, value in values.items():
            now = self._steps.get(name, 0) + 1 if step is None else step
            self._steps[name] = now
            window = self._open.setdefault(name, Window(now, now))
            window.last = now
            window.values.append(value)
            if len(window.values) >= every:
                full[name] = self._open.pop(name)
        return full

    def take(self) -> dict[str, Window]:
        """The windows that are not full, which are closed."""
        taken, self._open = self._open, {}
        return taken
