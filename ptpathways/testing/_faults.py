"""Faults as verbs, on the worker processes of a local cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ptpathways.launch import local
from ptpathways.testing._leaks import process_state, wait_until


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


def resume(cluster: local.StandingCluster, host: str) -> None:
    """Lets a suspended worker go on; nothing happens if it is gone."""
    try:
        os.kill(cluster.worker_pids[host], signal.SIGCONT)
    except ProcessLookupError:
        return
