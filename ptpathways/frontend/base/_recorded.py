"""Whether a call of a captured step is being recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_recording = False


def is_recording() -> bool:
    """Whether a call of a captured step is being recorded: nothing else may be submitted now."""
    return _recording


@contextmanager
def recording() -> Iterator[None]:
    """For the time of such a call. At most one thread records."""
    global _recording
    _recording = True
    try:
        yield
    finally:
        _recording = False
