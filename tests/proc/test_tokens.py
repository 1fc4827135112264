"""Join tokens with real processes: who is let in, what the others are told, and what the controller logs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ptpathways import core, native
from ptpathways.testing import wait_until
from tests.proc import attackers

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
WAIT_S = 60.0


def _environment(token: str = "") -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != core.TOKEN_VARIABLE}, core.TOKEN_VARIABLE: token}


@contextmanager
def _controller(log: Path, *arguments: str, token: str = "") -> Iterator[list[str]]:
    """A controller on all addresses of this machine; yields the lines that it prints before it serves."""
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            [*COMMAND, "controller", "--bind", "tcp://0.0.0.0:*", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**_environment(token), "XDG_RUNTIME_DIR": str(_runtime_of_another(log))},
        ) as process,
    ):
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and "programs:" in lines[-1]):
            line = process.stdout.readline()
            assert line, "\n".join(lines)
            lines.append(line.rstrip())
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0


def _runtime_of_another(log: Path) -> Path:
    """Where the controller keeps its token, so that the programs of these tests do not find it: as another user's."""
    folder = log.with_suffix(".runtime")
    folder.mkdir(mode=0o700)
    return folder


def _loopback(lines: list[str]) -> str:
    found = re.search(r"at tcp://0\.0\.0\.0:(\d+)", lines[0])
    assert found is not None
    return f"tcp://127.0.0.1:{found[1]}"


def test_a_public_controller_makes_a_token_and_says_how_to_join(tmp_path: Path) -> None:
    with _controller(tmp_path / "log", "--advertise", "127.0.0.1") as lines:
        said = "\n".join(lines)
        assert "CURVE" not in said
        line = next(line for line in lines if "workers:" in line).removeprefix("  workers:  ")
        assert f"ptpathways worker --join {_loopback(lines)}" in line
        worker = subprocess.Popen(
            line.replace("ptpathways", f"exec {sys.executable} -m ptpathways.cli", 1), shell=True, env=_environment()
        )
        token = line.split()[0].partition("=")[2]
        with native.Session.connect(_loopback(lines), "test", 20.0, token=token) as session:
            wait_until(lambda: session.device_count == 1, WAIT_S)
            array = np.arange(300_000, dtype=np.float32)
            np.testing.assert_array_equal(session.put(array, 0).result(WAIT_S), array)
            pid = session.hosts()[0]["pid"]
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert worker.wait(WAIT_S) == 0


@pytest.mark.parametrize("token", ["", core.make_token()], ids=["none", "another"])
def test_strangers_are_refused_at_once_and_named(tmp_path: Path, token: str) -> None:
    ours = core.make_token()
    with _controller(tmp_path / "log", token=ours) as lines:
        assert ours not in "\n".join(lines), "a token that was given is not printed"
        address = _loopback(lines)
        before = time.monotonic()
        worker = subprocess.run(
            [*COMMAND, "worker", "--join", address],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=_environment(token),
        )
        assert worker.returncode == (2 if token else 1), worker.stderr
        assert "join token" in worker.stderr
        with pytest.raises(core.ConnectionFailed, match="join token"), native.translated("connecting"):
            native.Session.connect(address, "stranger", 20.0, token=token)
        assert time.monotonic() - before < 20.0
        # As a client: what a program sees.
        status = subprocess.run(
            [*COMMAND, "status", "--address", address],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=_environment(token),
        )
        assert status.returncode == 1 and "join token" in status.stderr
        if not token:  # whoever has no token does not even knock
            attackers.connect(address).close(linger=0)
        wait_until(lambda: "refused a connection" in (tmp_path / "log").read_text(), 10.0)
        known = subprocess.run(
            [*COMMAND, "status", "--address", address, "--token", "-", "--json"],
            input=ours, capture_output=True, text=True, timeout=WAIT_S, env=_environment(),
        )  # fmt: skip
        assert known.returncode == 0, known.stderr
    logged = (tmp_path / "log").read_text()
    refusals = [line for line in logged.splitlines() if "refused a connection" in line]
    assert 1 <= len(refusals) <= 2, "one line an address (two if one could not be asked for)"
    assert ours not in logged and (not token or token not in logged)
    assert any("127.0.0.1" in line or "unknown address" in line for line in refusals)


def test_a_token_is_needed_to_leave_this_machine() -> None:
    with pytest.raises(core.ConnectionFailed, match="ptpathways token"), native.translated("connecting"):
        native.Controller({"bind": ["tcp://0.0.0.0:*"], "embedded": False})
    done = subprocess.run(
        [*COMMAND, "worker", "--join", "192.0.2.1:7450"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=_environment(),
    )
    assert done.returncode == 1 and "join token is required" in done.stderr


def test_a_port_in_use_is_said() -> None:
    first = native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": core.make_token()})
    try:
        done = subprocess.run(
            [*COMMAND, "controller", "--bind", first.endpoints[0]], capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 1
        assert first.endpoints[0] in done.stderr and "another process listens there" in done.stderr
    finally:
        first.close("the test is over")


def test_an_embedded_controller_takes_workers_of_other_machines(tmp_path: Path) -> None:
    """Members meet over TCP with keys: the worker beside the controller and the one that joins from elsewhere."""
    script = tmp_path / "train.py"
    script.write_text(
        """
import os, subprocess, sys
import numpy as np
from ptpathways import core
from ptpathways.launch import local

options = core.Options.from_environment(hosts=1, remote_hosts=1, bind="tcp://127.0.0.1:" + sys.argv[1])
with local.start(options) as cluster:
    names = [host["name"] for host in cluster.session.hosts()]
    array = np.arange(1 << 20, dtype=np.float32)
    assert (cluster.session.put(array, 0).copy_to(1).copy_to(0).result(30.0) == array).all()
    print(sorted(names))
"""
    )
    token = core.make_token()
    port = _free_port()
    program = subprocess.Popen(
        [sys.executable, str(script), str(port)], stdout=subprocess.PIPE, text=True, env=_environment(token)
    )
    worker = subprocess.run(
        [*COMMAND, "worker", "--join", f"127.0.0.1:{port}", "--name", "far"],
        timeout=WAIT_S,
        env={**_environment(token), "PTPATHWAYS_MACHINE": "another"},
        stderr=subprocess.DEVNULL,
    )
    assert program.communicate(timeout=WAIT_S)[0].strip() == "['far', 'host0']"
    assert (program.returncode, worker.returncode) == (0, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
