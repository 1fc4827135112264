"""Saves under way: the handle a caller gets, and the thread that finishes them in order."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Future as Pending
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from ptpathways import core, frontend

FINISH_TIMEOUT_S = 3600.0
"""How long the hosts may take to write a checkpoint."""
_PENDING_MAX = 2

_pending: list[Save] = []
_executor: ThreadPoolExecutor | None = None


class Save:
    """A checkpoint that is being written while the loop continues. Made by ``save``.

    ``await`` it, or call ``wait``, to know that it is on the disk. If nobody does, a failure is a
    ``CheckpointWarning``.
    """

    def __init__(self, path: Path, pending: Pending[float], blocked_s: float) -> None:
        self.path = path
        """Path of the checkpoint, with ``{step}`` replaced."""
        self.blocked_s = blocked_s
        """Seconds that the call of ``save`` took."""
        self._pending = pending
        self._told = False

    def done(self) -> bool:
        """Returns whether the checkpoint is written, or has failed. Never waits."""
        return self._pending.done()

    def wait(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Waits until the checkpoint is on the disk.

        Args:
            timeout_s: seconds to wait; default: an hour.

        Raises:
            CheckpointError: it could not be written. The checkpoint that was there before is unchanged.
            DeadlineExceeded: it is still being written.
            TypeError, ValueError: ``timeout_s`` is not a number of seconds.
        """
        timeout_s = core.check_seconds(timeout_s)
        self._told = True
        _, late = wait([self._pending], timeout_s)
        if late:
            raise core.DeadlineExceeded(
                f"expected checkpoint '{self.path}' on the disk within {timeout_s:g} s, it is not"
            )
        self._pending.result()

    @property
    def seconds(self) -> float:
        """Seconds from the call of ``save`` until the checkpoint was on the disk. Waits and raises as ``wait`` does."""
        self.wait()
        return self._pending.result()

    def __await__(self) -> Generator[None, None, None]:
        self._told = True
        yield from asyncio.wrap_future(self._pending).__await__()

    def __repr__(self) -> str:
        state = "failed" if self.done() and self._pending.exception() else "written" if self.done() else "being written"
        return f"<checkpoint '{self.path}', {state}>"

    def _warn(self, pending: Pending[float]) -> None:
        if self in _pending:
            _pending.remove(self)
        error = pending.exception()
        if error is not None and not self._told:
            warnings.warn(f"checkpoint '{self.path}' was not written: {error}", core.CheckpointWarning, stacklevel=2)


def start(path: Path, finish: Callable[[], None], started: float) -> Save:
    """Runs ``finish`` on the saving thread, after the saves before it."""
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(1, "ptpathways-save")
        frontend.at_shutdown(finish_all)

    def run() -> float:
        finish()
        return time.monotonic() - started

    save = Save(path, _executor.submit(run), time.monotonic() - started)
    _pending.append(save)
    save._pending.add_done_callback(save._warn)
    return save


def make_room(path: Path) -> None:
    """Waits for an earlier save to the same place, and while too many are being written: each keeps its values."""
    for save in list(_pending):
        if save.path == path:
            wait([save._pending], FINISH_TIMEOUT_S)
    while len(earlier := list(_pending)) >= _PENDING_MAX:
        if wait([earlier[0]._pending], FINISH_TIMEOUT_S).not_done:
            raise core.DeadlineExceeded(f"checkpoint '{earlier[0].path}' is still being written after an hour")
        if earlier[0] in _pending:
            _pending.remove(earlier[0])


def finish_all() -> None:
    """Waits for every save under way; their failures are warned of."""
    wait([save._pending for save in list(_pending)], FINISH_TIMEOUT_S)
