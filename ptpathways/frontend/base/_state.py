"""What this process knows of itself: not initialised, part of a cluster, or shut down.

PyTorch/XLA creates its client once per process and cannot be given another. The plugin's client can be attached to
another cluster, so a process that was shut down may begin again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptpathways import core

if TYPE_CHECKING:
    from ptpathways.frontend.base._devices import LogicalDevices
    from ptpathways.frontend.base._session import Connection


@dataclass(slots=True)
class Runtime:
    """What ``init`` made."""

    options: core.Options
    connection: Connection | None
    torch_device_count: int
    """How many devices PyTorch/XLA knows: logical ones, most of which stand for no slice."""
    slices: LogicalDevices = field(init=False)

    def __post_init__(self) -> None:
        from ptpathways.frontend.base._devices import LogicalDevices

        self.slices = LogicalDevices(self.torch_device_count)

    @property
    def device_count(self) -> int:
        """Devices of the cluster, without those of lost hosts."""
        if self.connection is None:
            return self.torch_device_count
        return sum(len(host["devices"]) for host in self.connection.hosts() if host["alive"])


lock = threading.RLock()
_runtime: Runtime | None = None
_former: Runtime | None = None  # the last one that was ended


_forked_from = 0


def note_forks(in_child_too: Callable[[], None]) -> None:
    """From now on a forked child of this process knows that it is one, and does this. To be called once."""
    parent = os.getpid()

    def in_child() -> None:
        global _forked_from, lock
        _forked_from, lock = parent, threading.RLock()  # a thread that is not there may have held it
        in_child_too()

    os.register_at_fork(after_in_child=in_child)


def is_forked() -> bool:
    """Whether this process was forked from one that had a runtime."""
    return _forked_from != 0


def refuse_in_fork() -> None:
    """Raises NotInitialized in a process that was forked from one that had a runtime."""
    if _forked_from:
        raise core.NotInitialized(
            f"this process was forked from process {_forked_from}, which is part of a cluster, and cannot use its "
            'devices: threads are not forked; give it values of the CPU, or start it with the method "spawn"'
        )


def runtime() -> Runtime:
    """The process's runtime.

    Raises:
        NotInitialized: ``init`` was not called, or ``shutdown`` was; or the process was forked from one with a runtime.
    """
    refuse_in_fork()
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
