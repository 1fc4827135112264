"""Whether a call draws random numbers on the CPU: what Python decides by them, a replay would repeat for ever.

The generators belong to the process, and a thread that loads batches may draw from them meanwhile. Such a thread says
when it loads (``loading``), and waits a little while a call is watched, so that it is known who has drawn.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

LOADER_WAITS_S = 2.0
"""A load waits so long for a watched call to end; then the call may itself be waiting for the batch."""
_CALL_WAITS_S = 1.0
_QUIET_NAMES = ("pw-", "ptpathways-", "QueueFeederThread", "IOPub", "Heartbeat", "Control", "IPythonHistory")
_QUIET_PACKAGES = ("tqdm", "ipykernel", "IPython")

_changed = threading.Condition()
_loads = 0
_loads_begun = 0
_watched = 0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Around everything that a thread of ours does in the user's loader."""
    global _loads, _loads_begun
    with _changed:
        _changed.wait_for(lambda: _watched == 0, LOADER_WAITS_S)
        _loads += 1
        _loads_begun += 1
    try:
        yield
    finally:
        with _changed:
            _loads -= 1
            _changed.notify_all()


class Draws:
    """Context manager: what was drawn inside, by this thread if that can be told. Entering may take a second."""

    def __init__(self) -> None:
        self.moved: tuple[str, ...] = ()
        """The generators that were drawn from, or seeded, as a user calls them."""
        self.certain = False
        """Whether nobody but this thread can have done that."""

    def __enter__(self) -> Draws:
        global _watched
        with _changed:
            _watched += 1
            self._alone = _changed.wait_for(lambda: _loads == 0, _CALL_WAITS_S) and not _others()
            self._begun = _loads_begun
        self._before = _states()
        return self

    def __exit__(self, *unused: object) -> None:
        global _watched
        after = _states()
        self.moved = tuple(name for name, state in after.items() if self._before.get(name, state) != state)
        with _changed:
            self.certain = self._alone and self._begun == _loads_begun and not _others()
            _watched -= 1
            _changed.notify_all()


@contextlib.contextmanager
def unseen(note: Callable[[str], None]) -> Iterator[None]:
    """Calls ``note`` with the generator of ``random`` or NumPy that this thread copies, pickles or lets seed itself.

    What is drawn from one that is new leaves no trace in a generator that anybody knows of.
    """
    thread = threading.get_ident()

    def tell(what: str, generator: Any) -> None:
        if threading.get_ident() == thread:
            note(f"{what} {type(generator).__module__}.{type(generator).__qualname__}")

    def noting(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def reduce_and_note(generator: Any) -> Any:
            tell("a copy of a", generator)
            return reduce(generator)

        return reduce_and_note

    reduce, seed = random.Random.__reduce__, random.Random.seed

    @functools.wraps(seed)
    def seed_and_note(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None:
            tell("a newly seeded", self)
        seed(self, a, version)

    table: dict[Any, Any] = copyreg.dispatch_table
    classes = _numpy_generators()
    known = {one: table[one] for one in classes if one in table}
    random.Random.__reduce__ = noting(reduce)  # type: ignore[method-assign,assignment]
    random.Random.seed = seed_and_note  # type: ignore[method-assign]
    table.update({one: noting(known.get(one, one.__reduce__)) for one in classes})
    try:
        yield
    finally:
        random.Random.__reduce__ = reduce  # type: ignore[method-assign]
        random.Random.seed = seed  # type: ignore[method-assign]
        for one in classes:
            table.pop(one, None)
        table.update(known)


def _numpy_generators() -> list[type]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return []
    return [numpy.random.Generator, numpy.random.RandomState, *numpy.random.BitGenerator.__subclasses__()]


def _states() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "random": random.getstate(),
        "torch's generator of the CPU": torch.random.get_rng_state().numpy().tobytes(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, keys, *rest = numpy.random.get_state()
        found["numpy.random"] = (keys.tobytes(), *rest)
    return found


def _others() -> bool:
    """Whether there are threads of Python of which nobody knows what they do."""
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.name.startswith(_QUIET_NAMES):
            continue
        if type(thread).__module__.startswith(_QUIET_PACKAGES) or "_pin_memory_loop" in thread.name:
            continue
        return True
    return False
