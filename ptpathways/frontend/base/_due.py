"""When something that lasts is to be told of."""

from __future__ import annotations

from collections.abc import Iterable

AGAIN = 3
"""A wait is told of again when it has lasted this many times as long."""


class Due:
    """Which waits are to be told of now. Pure: the caller has the clock."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._next: dict[tuple[int, str], tuple[float, float]] = {}  # when it began, after how many seconds

    def pick(self, waits: Iterable[tuple[int, str, float]], now: float) -> list[tuple[int, str, float]]:
        """Of ``waits`` (thread, what, seconds) at the time ``now`` those that have become due."""
        due, known = [], {}
        for thread, what, seconds in waits:
            key, began = (thread, what), now - seconds
            before, after = self._next.get(key, (began, self._first_s))
            if abs(began - before) > 1.0:  # another one, for the same
                before, after = began, self._first_s
            if seconds >= after:
                due.append((thread, what, seconds))
                while after <= seconds:
                    after *= AGAIN
            known[key] = before, after
        self._next = known
        return due
