"""What a cluster may have left behind."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from ptpathways.launch import local


def process_state(pid: int) -> str:
    """The state letter of a process or thread in /proc: R, S, D, T, Z...; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    return process_state(pid) not in ("", "Z")


def shared_memory_files(cluster: str) -> list[str]:
    """Names of a cluster's segments in /dev/shm."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"ptpathways-{cluster}-")]


def leftovers(cluster: local.StandingCluster) -> list[str]:
    """What is left of a cluster that was closed: processes, its folder, shared memory; empty when all is well."""
    found = [f"process {pid} of {host}" for host, pid in cluster.worker_pids.items() if is_running(pid)]
    found += [f"folder {cluster.runtime_dir}"] if cluster.runtime_dir.exists() else []
    return found + [f"shared memory {name}" for name in shared_memory_files(cluster.controller.cluster)]


def wait_until(reached: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Asks again every 20 ms until ``reached()``.

    Raises:
        AssertionError: ``timeout_s`` passed first.
    """
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s, f"not reached within {timeout_s} s"
        select.select([], [], [], 0.02)
