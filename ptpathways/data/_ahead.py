"""An iterator that is ahead of its user, on a thread of its own."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ptpathways import frontend

_POLL_S = 1.0


class Ahead:
    """An iterator that is ``depth`` items ahead of its user, on a thread of its own.

    The thread ends when the source does, when it fails (the error is raised where the item would have come), when
    ``close`` is called, or when the program ends. It holds no reference to this object.
    """

    def __init__(self, source: Iterator[Any], first: Any, work: Callable[[Any], Any], depth: int) -> None:
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_load, args=(source, first, work, self._items, self._room, self._stop), name="pw-feed", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                kind, value = self._items.get(timeout=_POLL_S)
            except queue.Empty:
                if self._thread.is_alive() or not self._items.empty():
                    continue
                raise StopIteration from None
            self._room.release()
            if kind == "item":
                return value
            self._stop.set()
            if kind == "error":
                raise value
            raise StopIteration

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the thread; one that is inside the loader ends when the loader gives its next batch."""
        self._stop.set()
        self._room.release()
        self._thread.join(timeout_s)


def _load(
    source: Iterator[Any],
    item: Any,
    work: Callable[[Any], Any],
    items: queue.SimpleQueue[tuple[str, Any]],
    room: threading.Semaphore,
    stop: threading.Event,
) -> None:
    try:
        while True:
            room.acquire()
            if stop.is_set():
                return
            items.put(("item", work(item)))
            with frontend.loading():
                item = next(source)
    except StopIteration:
        items.put(("end", None))
    except BaseException as error:
        items.put(("error", error))
