"""Real clusters for tests: worker processes, sockets and shared memory, each test checked for what it leaves behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ptpathways import core, testing
from ptpathways.launch import local
from tests.proc.standing import Standing

# Started in the background of a script, this process ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup, too, hang-ups end what a test starts; this process does not mind them.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

ADD_ONE = """module @add_one {
  func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %c = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.add %a, %c : tensor<f32>
    return %0 : tensor<f32>
  }
}"""


StartCluster = Callable[..., local.LocalCluster]


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    """A controller with its standby; workers join it on demand."""
    with Standing(tmp_path) as started:
        yield started


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Starts local clusters; afterwards no process, folder or segment of theirs may be left."""
    started: list[local.LocalCluster] = []

    def start(
        hosts: int = 1,
        devices_per_host: int = 1,
        memory_per_device: str = "",
        islands: int | None = None,
        lease_s: float = 60.0,
    ) -> local.LocalCluster:
        options = core.Options(
            hosts=hosts,
            devices_per_host=devices_per_host,
            memory_per_device=memory_per_device,
            islands=islands,
            lease_s=lease_s,
        )
        started.append(local.start(options))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
        assert not testing.leftovers(cluster)
