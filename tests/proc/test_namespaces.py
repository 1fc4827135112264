"""Machines with different addresses: clusters by hand and under torchrun, over a network, with keys."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.testing import Machine, NotPermitted, machines

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
CLI = [sys.executable, "-m", "ptpathways.cli"]
WAIT_S = 150.0


@pytest.fixture
def two() -> Iterator[list[Machine]]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(machines(2))
        except NotPermitted as error:
            pytest.skip(str(error))
        yield found


def _environment(machine: Machine, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PTPATHWAYS_")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **machine.environment(), **more}


def _start(machine: Machine, *command: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        machine.command(*command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(machine, **more),
    )


def test_a_cluster_by_hand(two: list[Machine], tmp_path: Path) -> None:
    """``ptpathways controller`` on one machine, ``ptpathways worker`` on both, the program on the second."""
    near, far = two
    path = tmp_path / "cluster.token"
    core.write_token(path, core.make_token())
    token = ["--token-file", str(path)]
    controller = _start(near, *CLI, "controller", "--bind", "tcp://0.0.0.0:7450", *token)
    assert controller.stdout is not None
    lines = [controller.stdout.readline() for _ in range(4)]
    assert f"--join tcp://{near.address}:7450" in "".join(lines), lines
    workers = [
        _start(machine, *CLI, "worker", "--join", f"{near.address}:7450", "--name", name, *token)
        for machine, name in ((near, "near"), (far, "far"))
    ]
    script = f"""
import numpy as np
from ptpathways import core, native
from ptpathways.testing import wait_until
with native.Session.connect("tcp://{near.address}:7450", "test", 20.0, token=core.read_token({str(path)!r})) as session:
    wait_until(lambda: session.device_count == 2, 60.0)
    array = np.arange(3_000_000, dtype=np.float32)
    assert (session.put(array, 0).copy_to(1).copy_to(0).result(60.0) == array).all()
    for host in sorted(session.hosts(), key=lambda host: host["name"]):
        print(host["name"], host["data_endpoint"])
"""
    program = _start(far, sys.executable, "-c", script)
    out, err = program.communicate(timeout=WAIT_S)
    assert program.returncode == 0, err
    assert re.fullmatch(rf"far tcp://{far.address}:\d+\nnear tcp://{near.address}:\d+\n", out), out
    stranger = _start(far, *CLI, "worker", "--join", f"{near.address}:7450", PTPATHWAYS_TOKEN=core.make_token())
    assert "join token" in stranger.communicate(timeout=WAIT_S)[1] and stranger.returncode == 2
    controller.send_signal(signal.SIGINT)
    logged = controller.communicate(timeout=WAIT_S)[1]
    assert f"refused a connection from {far.address}" in logged or "unknown address" in logged
    assert [worker.wait(WAIT_S) for worker in workers] == [0, 0]


def _under_torchrun(two: list[Machine], *program: str) -> list[tuple[int, str, str]]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    meet = ["--master-addr", two[0].address, "--master-port", "29511"]
    processes = [
        _start(machine, *torchrun, "--node-rank", str(rank), *meet, "-m", "ptpathways.launch", *program)
        for rank, machine in enumerate(two)
    ]
    said = [process.communicate(timeout=WAIT_S) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def test_torchrun_trains_over_two_machines(two: list[Machine]) -> None:
    first, second = _under_torchrun(two, "--islands", "2", str(FOLDER / "train_over_hosts.py"))
    assert first[0] == 0, first[2]
    assert second[0] == 0, second[2]
    found = re.search(r"TRAINED loss (\S+) hosts 2", first[1])
    assert found is not None and float(found[1]) < 0.05
    assert second[1] == ""


def test_data_parallel_training_over_two_machines_is_that_of_one_process(two: list[Machine]) -> None:
    first, second = _under_torchrun(two, str(FOLDER / "train_together.py"))
    assert first[0] == 0, first[2]
    assert second[0] == 0, second[2]
    assert "TOGETHER hosts 2 islands 1" in first[1]


def test_torchrun_keeps_the_exit_code_on_all_machines(two: list[Machine]) -> None:
    for code, _, said in _under_torchrun(two, str(FOLDER / "launched.py"), "exit5"):
        assert code == 1 and "exitcode  : 5" in said, said
