"""What this process knows of itself: not initialised, part of a cluster, or shut down; and how it uses its devices.

PyTorch/XLA creates its client once per process and cannot be given another, so all of this goes one way. Devices are
used *one by one* (``device(i)``, a torch device each) or *all together* (one torch device, the mesh; ``prepare``, or
``device()`` without a number, on more than one device).
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptpathways import core

if TYPE_CHECKING:
    from ptpathways.frontend._session import Connection


class Mode(enum.Enum):
    """How this process uses its devices."""

    UNDECIDED = "not yet"
    ONE_BY_ONE = "one by one (pw.device(i), or a first @pw.function before pw.prepare)"
    TOGETHER = "all together (pw.prepare, or pw.device() without a number)"


@dataclass(slots=True)
class Runtime:
    """What ``init`` made. ``mode`` is the only field that changes."""

    options: core.Options
    connection: Connection | None
    device_count: int
    mode: Mode = Mode.UNDECIDED

    @property
    def torch_device_count(self) -> int:
        """How many devices torch sees: the mesh counts as one."""
        return 1 if self.mode is Mode.TOGETHER else self.device_count


lock = threading.RLock()
_runtime: Runtime | None = None
_was_shut_down = False


def runtime() -> Runtime:
    """The process's runtime.

    Raises:
        NotInitialized: ``init`` was not called, or ``shutdown`` was.
    """
    if _runtime is None:
        what = "was shut down" if _was_shut_down else "is not initialised"
        raise core.NotInitialized(f"ptpathways {what} in this process; call pw.init() first, once")
    return _runtime


def is_running() -> bool:
    """Whether this process has a runtime now."""
    return _runtime is not None


def check_unused() -> None:
    """Raises AlreadyInitialized when this process has, or had, a runtime."""
    if _runtime is not None or _was_shut_down:
        past = "was shut down in" if _was_shut_down else "is already part of a cluster in"
        raise core.AlreadyInitialized(
            f"ptpathways {past} this process, and PyTorch/XLA starts only once per process; "
            "keep the first cluster, or start another process"
        )


def begin(started: Runtime) -> None:
    """Makes ``started`` the process's runtime."""
    global _runtime
    _runtime = started


def end() -> Runtime | None:
    """Takes the runtime away for good; None when there is none."""
    global _runtime, _was_shut_down
    ended, _runtime = _runtime, None
    _was_shut_down = _was_shut_down or ended is not None
    return ended


def set_mode(mode: Mode) -> bool:
    """Decides, once, how this process uses its devices; whether this call was the one that decided.

    Raises:
        NotInitialized: before ``init``.
        RuntimeAlreadyStarted: it is already used the other way.
    """
    with lock:
        this = runtime()
        if this.mode in (mode, Mode.UNDECIDED):
            decided = this.mode is Mode.UNDECIDED
            this.mode = mode
            return decided
        raise core.RuntimeAlreadyStarted(
            f"this process uses its {this.device_count} devices {this.mode.value}, so it cannot use them {mode.value}; "
            "choose one of the two per process"
        )
