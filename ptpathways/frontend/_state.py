"""What this process knows of itself: not initialised, part of a cluster, or shut down; and how it uses its devices.

PyTorch/XLA creates its client once per process and cannot be given another. The plugin's client can be attached to
another cluster with the same devices, so a process that was shut down may begin again; how it uses its devices stays.
Devices are used *one by one* (``device(i)``, a torch device each) or *all together* (one torch device, the mesh;
``prepare``, or ``device()`` without a number, on more than one device).
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
_former: Runtime | None = None  # the last one that was ended


def runtime() -> Runtime:
    """The process's runtime.

    Raises:
        NotInitialized: ``init`` was not called, or ``shutdown`` was.
    """
    if _runtime is None:
        what = "was shut down" if _former is not None else "is not initialised"
        raise core.NotInitialized(f"ptpathways {what} in this process; call pw.init() first")
    return _runtime


def is_running() -> bool:
    """Whether this process has a runtime now."""
    return _runtime is not None


def former() -> Runtime | None:
    """The runtime that was shut down last."""
    return _former


def begin(started: Runtime) -> None:
    """Makes ``started`` the process's runtime."""
    global _runtime
    _runtime = started


def end() -> Runtime | None:
    """Takes the runtime away; None when there is none."""
    global _runtime, _former
    ended, _runtime = _runtime, None
    _former = ended or _former
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
