"""Whether a call of a captured step is being recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_thread: int | None = None


def is_recording() -> bool:
    """Whether a call of a captured step is being recorded: nothing else may be submitted now."""
    return _thread is not None


def is_recorded_here() -> bool:
    """Whether what this thread does belongs to the recorded call: the thread called the step, or Python has not started
    it, as it has not those of autograd. A thread that feeds the loop meanwhile does what it does at other times."""
    if _thread is None:
        return False
    return threading.get_ident() == _thread or isinstance(threading.current_thread(), threading._DummyThread)


@contextmanager
def recording() -> Iterator[None]:
    """For the time of such a call. At most one thread records."""
    global _thread
    _thread = threading.get_ident()
    try:
        yield
    finally:
        _thread = None
