"""Faults as verbs, on the worker processes of a local cluster."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptpathways.launch import local
from ptpathways.testing._leaks import process_state, wait_until

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_WALL = 0x40000000
_POLLS = {"7", "232", "271", "281"}
"""The system calls poll, epoll_wait, ppoll and epoll_pwait of x86-64."""
_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def kill(cluster: local.StandingCluster, host: str) -> None:
    """Ends a worker with SIGKILL, as a machine that loses power."""
    os.kill(cluster.worker_pids[host], signal.SIGKILL)


def suspend(cluster: local.StandingCluster, host: str) -> None:
    """Stops a worker with SIGSTOP, as a machine that hangs; returns when every thread of it stands still."""
    stop_process(cluster.worker_pids[host])


def stop_process(pid: int) -> None:
    """Stops a process with SIGSTOP; returns when every thread of it stands still: that may be later than the signal."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    wait_until(lambda: all(process_state(int(task.name)) in ("T", "") for task in tasks.iterdir()))


@contextmanager
def hold_thread(pid: int, name: str) -> Iterator[None]:
    """Keeps a thread of this name from going on while the others do, as one that hangs; lets it go afterwards.

    It is held where it waits for messages: elsewhere it may have a lock, and threads that want it would hang, too. The
    process must be a child of this one, or this one root's: it is done with ptrace.

    Raises:
        OSError: it is not allowed.
        AssertionError: it does not wait for messages within 30 s.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    thread = next(int(task.name) for task in tasks if (task / "comm").read_text().strip() == name)

    def held_waiting() -> bool:
        for request in (_PTRACE_SEIZE, _PTRACE_INTERRUPT):
            if _ptrace(request, thread, None, None) != 0:
                raise OSError(ctypes.get_errno(), f"cannot stop thread {name} of process {pid} with ptrace")
        os.waitpid(thread, _WALL)
        if Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()[0] in _POLLS:
            return True
        _ptrace(_PTRACE_DETACH, thread, None, None)
        return False

    wait_until(held_waiting)
    try:
        yield
    finally:
        if _ptrace(_PTRACE_DETACH, thread, None, None) != 0:  # it has ended meanwhile
            with contextlib.suppress(ChildProcessError):
                os.waitpid(thread, _WALL)


def resume_process(pid: int) -> None:
    """Lets a stopped process go on; nothing happens if it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def resume(cluster: local.StandingCluster, host: str) -> None:
    """Lets a suspended worker go on; nothing happens if it is gone."""
    resume_process(cluster.worker_pids[host])
