"""A controller that does not answer: what its callers hear meanwhile, what they get in the end, and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ptpathways import core, launch
from ptpathways.testing import wait_until

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
NOBODY = "tcp://127.0.0.1:9"
WAIT_S = 60.0
TOKEN = core.make_token()


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PTPATHWAYS_")}
    return {**kept, "PTPATHWAYS_CACHE_DIR": "off", core.TOKEN_VARIABLE: TOKEN}


def _interrupt_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> str:
    wait_until(ready, WAIT_S)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    return errors


def _holds_a_socket(pid: int) -> bool:
    """Whether it is trying to connect by now: libzmq's threads are there."""
    with open(f"/proc/{pid}/status") as status:
        threads = next(line for line in status if line.startswith("Threads:"))
    return int(threads.split()[1]) > 2


@pytest.mark.parametrize("command", [["status", "--address", NOBODY], ["worker", "--join", NOBODY]])
def test_an_interrupt_ends_the_wait_for_a_controller(command: list[str]) -> None:
    with subprocess.Popen([*COMMAND, *command], stderr=subprocess.PIPE, text=True, env=_environment()) as process:
        started = time.monotonic()
        errors = _interrupt_when(process, lambda: _holds_a_socket(process.pid))
    assert "Traceback" not in errors, errors
    assert process.returncode == (130 if command[0] == "status" else 0), errors
    assert time.monotonic() - started < 30.0


def test_a_controller_that_is_not_there_is_waited_for_with_a_word() -> None:
    done = subprocess.run(
        [*COMMAND, "status", "--address", NOBODY], capture_output=True, text=True, timeout=WAIT_S, env=_environment()
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    said = rf"no controller has answered at {NOBODY} for 2 s; waiting for one until \d\d:\d\d:\d\d \(5 s in all\)"
    assert re.search(said, done.stderr), done.stderr
    assert "expected an answer from the controller" in done.stderr.splitlines()[-1]
    script = (
        "import sys, ptpathways as pw\n"
        "try:\n    pw.init(sys.argv[1], startup_timeout_s=3)\n"
        "except pw.ConnectionFailed as error:\n    print('caught', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, NOBODY],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=_environment(),
    )
    assert "caught expected an answer" in done.stdout and done.stderr.count("no controller has answered") == 1


def test_a_worker_waits_for_its_controller_with_a_word() -> None:
    with subprocess.Popen(
        [*COMMAND, "worker", "--join", NOBODY], stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stderr is not None
        line = next((line for line in process.stderr if "no controller" in line), "")
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert re.search(rf"no controller has answered at {NOBODY} for 2 s; waiting for one until .* \(30 s in all\)", line)


def test_who_starts_before_the_controller_finds_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All started by one script, in any order; the controller's socket has a name that is known before."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    address = f"ipc://{tmp_path}/controller"
    environment = {**_environment(), "XDG_RUNTIME_DIR": str(runtime)}
    del environment[core.TOKEN_VARIABLE]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    script = "import sys, ptpathways as pw; pw.init(sys.argv[1]); pw.device(); print('joined')"
    with ExitStack() as stack:

        def start(command: list[str]) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
            stack.callback(process.kill)
            return stack.enter_context(process)

        early = start([*COMMAND, "worker", "--join", address, "--name", "early"])
        assert early.stderr is not None
        line = next((line for line in early.stderr if "no controller at" in line), "")
        assert re.search(rf"{address} that this user runs has begun yet; waiting until \d\d:\d\d:\d\d", line), line
        program = start([sys.executable, "-c", script, address])
        controller = start([*COMMAND, "controller", "--bind", address])
        said, errors = program.communicate(timeout=WAIT_S)
        assert program.returncode == 0 and said == "joined\n", errors
        for process in (early, controller):
            process.terminate()
            assert process.wait(WAIT_S) == 0
    assert not list(runtime.rglob("*.token"))


def test_a_controller_without_a_token_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        started = time.monotonic()
        assert launch.await_token(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 600.0) == ""
    assert time.monotonic() - started < 60.0
    assert launch.await_token("tcp://192.0.2.1:7450", 600.0) == ""  # of another machine, nobody here keeps it
