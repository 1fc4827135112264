"""What other rooms want to do at a cut, and before the cluster is left."""

from __future__ import annotations

from collections.abc import Callable

_before_cut: list[Callable[[], None]] = []
_before_shutdown: list[Callable[[], None]] = []


def at_cuts(callback: Callable[[], None]) -> None:
    """Calls ``callback`` before each cut of the trace, on the thread that cuts. It must not wait, nor cut."""
    if callback not in _before_cut:
        _before_cut.append(callback)


def at_shutdown(callback: Callable[[], None]) -> None:
    """Calls ``callback`` when the cluster is about to be left and can still be asked. It must come to an end."""
    if callback not in _before_shutdown:
        _before_shutdown.append(callback)


def before_cut() -> None:
    for callback in _before_cut:
        callback()


def before_shutdown() -> None:
    for callback in _before_shutdown:
        callback()
