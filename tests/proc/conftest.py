"""Real clusters for tests: worker processes, sockets and shared memory, each test checked for what it leaves behind."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.launch import local

ADD_ONE = """module @add_one {
  func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %c = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.add %a, %c : tensor<f32>
    return %0 : tensor<f32>
  }
}"""


def shared_memory_files(cluster: str) -> list[str]:
    """Segments of a cluster in /dev/shm."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"ptpathways-{cluster}-")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    return _state(pid) not in ("", "Z")


def suspend(pid: int) -> None:
    """Stops a process with SIGSTOP; returns when every thread of it stands still."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(task.name and _state(int(task.name)) == "T" for task in Path(f"/proc/{pid}/task").iterdir()))


def wait_until(reached: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Asks again every 20 ms until ``reached()``. Fails the test when ``timeout_s`` passes first."""
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline_s, f"not reached within {timeout_s} s"
        select.select([], [], [], 0.02)


StartCluster = Callable[..., local.LocalCluster]


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Starts local clusters; afterwards no process, folder or segment of theirs may be left."""
    started: list[local.LocalCluster] = []

    def start(hosts: int = 1, devices_per_host: int = 1, memory_per_device: str = "") -> local.LocalCluster:
        options = core.Options(hosts=hosts, devices_per_host=devices_per_host, memory_per_device=memory_per_device)
        started.append(local.start(options))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
        assert not [pid for pid in cluster.worker_pids.values() if is_running(pid)]
        assert not cluster.runtime_dir.exists()
        assert not shared_memory_files(cluster.controller.cluster)
