"""The command line with real processes: exit codes, Ctrl-C, standing clusters, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ptpathways import core, launch, native
from ptpathways.testing import is_running, shared_memory_files, wait_until

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
WAIT_S = 60.0

JOIN = """
import os, sys
from ptpathways import native
session = native.Session.connect(os.environ["PTPATHWAYS_ADDRESS"], "script", 20.0)
print(session.cluster, os.environ["PTPATHWAYS_ADDRESS"], *[host["pid"] for host in session.hosts()], flush=True)
"""


def _script(folder: Path, then: str) -> str:
    path = folder / "script.py"
    path.write_text(JOIN + textwrap.dedent(then))
    return str(path)


def _nothing_left(line: str) -> None:
    cluster, address, *pids = line.split()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids), 10.0)
    wait_until(lambda: not Path(address.removeprefix("ipc://")).parent.exists(), 10.0)
    assert not shared_memory_files(cluster)


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("", 0),
        ("sys.exit(7)", 7),
        ("raise ValueError('the script failed')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_run_keeps_the_exit_code_and_leaves_nothing(tmp_path: Path, then: str, code: int) -> None:
    script = _script(tmp_path, then)
    done = subprocess.run([*COMMAND, "run", "--hosts", "2", script], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == code, done.stderr
    assert len(done.stdout.split()) == 4
    _nothing_left(done.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_run_ends_with_a_signal_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    script = _script(tmp_path, "import signal; signal.pause()")
    with subprocess.Popen(
        [*COMMAND, "run", "--hosts", "2", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        if number == signal.SIGKILL:
            os.killpg(process.pid, signal.SIGTERM)  # the script is nobody's child any more
        process.wait(WAIT_S)
    _nothing_left(line)


@contextmanager
def _standing(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [*COMMAND, "controller", "--bind", "tcp://127.0.0.1:*", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = re.search(r"tcp://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        try:
            yield process, found[0]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0


def test_a_controller_and_workers_by_hand() -> None:
    with _standing() as (_, address):
        worker = [*COMMAND, "worker", "--join", address.removeprefix("tcp://"), "--devices", "2"]
        workers = [subprocess.Popen([*worker, "--name", name], stderr=subprocess.DEVNULL) for name in ("a", "b")]
        with native.Session.connect(address, "test", 20.0, token=launch.find(address)) as session:
            wait_until(lambda: session.device_count == 4, WAIT_S)
            assert sorted(host["name"] for host in session.hosts()) == ["a", "b"]
            array = np.arange(300_000, dtype=np.float32)
            np.testing.assert_array_equal(session.put(array, 0).copy_to(3).result(WAIT_S), array)
        twin = subprocess.run([*worker, "--name", "a"], capture_output=True, text=True, timeout=WAIT_S)
        assert twin.returncode == 2 and "already a member" in twin.stderr
        workers[1].terminate()
        assert workers[1].wait(WAIT_S) == 0
    assert workers[0].wait(WAIT_S) == 0, "a worker ends with its controller"


def test_a_worker_that_finds_no_controller_says_so() -> None:
    from ptpathways import platforms
    from ptpathways.launch import WorkerOptions, worker_command, worker_environment

    options = WorkerOptions(
        "tcp://127.0.0.1:9", "lonely", platforms.find_plugin(), token=core.make_token(), connect_timeout_s=1.0
    )
    done = subprocess.run(
        worker_command(options), env=worker_environment(options), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 1
    assert "tcp://127.0.0.1:9" in done.stderr


def test_doctor() -> None:
    done = subprocess.run([*COMMAND, "doctor", "--json"], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert findings["cpu plugin"]["state"] == "ok" and "1 device(s)" in findings["cpu plugin"]["detail"]
    assert findings["torch kernels"]["state"] == "ok"
    environment = {**os.environ, "PTPATHWAYS_ADDRESS": "tcp://127.0.0.1:9"}
    done = subprocess.run([*COMMAND, "doctor"], capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert done.returncode == 1 and "127.0.0.1:9" in done.stdout


def test_a_worker_loads_neither_torch_nor_numpy() -> None:
    from ptpathways import core
    from ptpathways.launch import local

    with local.start(core.Options()) as cluster:
        maps = Path(f"/proc/{cluster.worker_pids['host0']}/maps").read_text()
    assert "libpjrt" in maps
    assert not re.search(r"libtorch|_XLAC|numpy", maps)


def test_the_version_is_printed() -> None:
    printed = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert printed.stdout.strip() == f"ptpathways {core.__version__}"
