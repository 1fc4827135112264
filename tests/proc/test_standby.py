"""A controller whose process is killed: its standby goes on, and nobody has to do anything."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ptpathways import core, native
from ptpathways.testing import hold_thread, is_running, stop_process, wait_until
from tests.proc.conftest import ADD_ONE
from tests.proc.standing import CAPTURED, COMMAND, PIPELINE, WAIT_S, Standing

pytestmark = pytest.mark.timeout(240)

NAMED_S = 5.0
"""Within so long the death of both processes is named."""


def test_runs_uploads_and_copies_go_on_while_controllers_are_killed(standing: Standing) -> None:
    standing.start_workers("a", "b")
    with standing.session() as session:
        add_one = session.register(ADD_ONE.encode(), "mlir")
        values = [session.put(np.float32(0), device) for device in (0, 1)]
        large = np.arange(8 << 20, dtype=np.float32)
        uploads = []
        for step in range(2000):
            if step % 500 == 250:
                uploads.append(session.put(large, 0))
                standing.kill_controller()
                uploads.append(session.put(large, 1).copy_to(0))
            values = [session.run(add_one, [value], device)[0] for device, value in enumerate(values)]
            if step % 50 == 49:
                values = [values[1].copy_to(0), values[0].copy_to(1)]
        assert [float(value.result(WAIT_S)) for value in values] == [2000, 2000]
        for upload in uploads:
            np.testing.assert_array_equal(upload.result(WAIT_S), large)
        assert all(host["alive"] for host in session.hosts())
    assert standing.status()["controller"]["takeovers"] == 4
    assert standing.said().count("its standby goes on with cluster") == 4
    standing.end()


def test_a_worker_that_is_stopped_when_its_controller_is_killed_goes_on_with_the_next(standing: Standing) -> None:
    standing.start_workers("a", "b")
    with standing.session() as session:
        value = session.put(np.float32(5), 1)
        pid = session.hosts()[1]["pid"]
        stop_process(pid)
        try:
            standing.kill_controller()
            wait_until(lambda: "its standby goes on" in standing.said(), WAIT_S)
            copy = value.copy_to(0)
            with pytest.raises(native.NativeError, match=r"on device 0 within \d"):
                copy.result(6.0)  # longer than whoever closes a connection has for making it again
        finally:
            os.kill(pid, signal.SIGCONT)
        assert copy.result(WAIT_S) == 5
        assert all(host["alive"] for host in session.hosts())
    standing.end()


def test_fetches_that_wait_for_a_host_still_do_when_the_controller_was_killed(standing: Standing) -> None:
    standing.start_workers("a")
    with standing.session() as session:
        values = [session.put(np.float32(0), 0) for _ in range(3000)]
        values[-1].wait(WAIT_S)
        asked = f"its 1024 latest fetches to be taken by host '{session.hosts()[0]['name']}'"
        told = os.eventfd(0, os.EFD_NONBLOCK)

        def waits() -> bool:
            clients = json.loads(session.status_json(WAIT_S))["clients"]
            return any(client["waiting_for"] == asked for client in clients)

        with hold_thread(session.hosts()[0]["pid"], "pw-engine"):
            for value in values:
                value.notify(told)
            wait_until(waits, WAIT_S)
            standing.kill_controller()
            wait_until(waits, WAIT_S)
        count = 0

        def all_told() -> bool:
            nonlocal count
            with suppress(BlockingIOError):
                count += os.eventfd_read(told)
            return count >= len(values)

        wait_until(all_told, WAIT_S)
        os.close(told)
        assert count == len(values) and not waits()
    assert standing.status()["controller"]["takeovers"] == 1
    standing.end()


def test_functions_and_slices_that_are_asked_for_while_the_controller_dies(standing: Standing) -> None:
    """Answers, too, come from the controller that goes on; and whoever joins it is served."""
    standing.start_workers("a", "b")
    with standing.session() as session:
        for _ in range(3):
            standing.kill_controller()
            granted = session.request_slice(1, island="")
            add_one = session.register(ADD_ONE.encode(), "mlir")
            device = granted["devices"][0]
            (value,) = session.run(add_one, [session.put(np.float32(1), device)], device)
            assert value.result(WAIT_S) == 2
            session.release_slice(granted["slice"])
            with standing.session() as other:
                assert other.put(np.float32(3), device).result(WAIT_S) == 3
    standing.start_workers("c")
    standing.end()


@pytest.mark.parametrize("text", [CAPTURED, PIPELINE], ids=["captured", "pipeline"])
def test_a_loop_has_the_same_losses_while_controllers_are_killed(standing: Standing, text: str) -> None:
    pytest.importorskip("torch_xla")
    alone = subprocess.run([sys.executable, "-c", text, "-"], capture_output=True, text=True, check=True, timeout=200)
    standing.start_workers("a", "b")
    program = standing.start_program(text)
    assert program.stdout is not None and program.stdin is not None
    losses = []
    for line in program.stdout:
        losses.append(line.strip())
        if len(losses) in (8, 9, 15):  # 9: the successor of the one that was just killed
            victim = standing.serving()
            program.stdin.write("\n")
            program.stdin.flush()  # the next step is under way while it dies
            os.kill(victim, signal.SIGKILL)
        else:
            program.stdin.write("\n")
            program.stdin.flush()
    assert program.wait(WAIT_S) == 0, standing.said()
    assert losses == alone.stdout.split()
    assert standing.status()["controller"]["takeovers"] == 3
    standing.end()


def test_when_both_processes_are_killed_the_death_is_named(standing: Standing) -> None:
    standing.start_workers("a")
    with standing.session() as session:
        victims = [standing.process.pid, standing.serving()]
        os.kill(victims[0], signal.SIGKILL)
        os.kill(victims[1], signal.SIGKILL)
        begun_s = time.monotonic()
        with pytest.raises(core.ConnectionFailed, match=re.escape(standing.address)), native.translated():
            wait_until(lambda: not session.status_json(WAIT_S))
        assert time.monotonic() < begun_s + NAMED_S
    assert standing.workers[0].wait(8 + NAMED_S) == 3


def test_without_its_standby_the_controller_goes_on_and_says_so(standing: Standing) -> None:
    standing.start_workers("a")
    with standing.session() as session:
        serving = standing.serving()
        standing.process.kill()
        standing.process.wait()
        wait_until(lambda: standing.status()["controller"] == {"pid": serving, "standby": 0, "takeovers": 0})
        assert session.put(np.float32(3), 0).result(WAIT_S) == 3
        wait_until(lambda: "lost its standby" in standing.said())
    os.kill(serving, signal.SIGTERM)
    wait_until(lambda: not is_running(serving))
    assert standing.workers[0].wait(WAIT_S) == 0
    assert not standing.token_files()


def test_a_controller_that_is_stopped_is_not_dead(standing: Standing) -> None:
    standing.start_workers("a")
    with standing.session() as session:
        serving = standing.serving()
        stop_process(serving)
        threading.Event().wait(6.0)  # what is tested is that this time passes
        os.kill(serving, signal.SIGCONT)
        assert session.put(np.float32(3), 0).result(WAIT_S) == 3
        assert standing.status()["controller"] == {"pid": serving, "standby": standing.process.pid, "takeovers": 0}
    standing.end()


def test_a_standby_that_does_not_follow_is_left_behind(standing: Standing) -> None:
    """It may not hold the controller up, and may not take over what it does not know."""
    standing.start_workers("a")
    with standing.session() as session:
        stop_process(standing.process.pid)
        add_one = session.register(ADD_ONE.encode(), "mlir")
        value = session.put(np.float32(0), 0)
        longest_s, runs, much = 0.0, 0, np.zeros(1000, np.float32)
        while "lost its standby" not in standing.said():
            begun_s = time.monotonic()
            for _ in range(500):
                (value,) = session.run(add_one, [value], 0)
                session.put(much, 0)  # travels in the message
                runs += 1
            assert value.result(WAIT_S) == runs
            longest_s = max(longest_s, time.monotonic() - begun_s)
        assert longest_s < 4.0, "no longer than silence is borne without a word"
        serving = standing.serving()
        os.kill(standing.process.pid, signal.SIGCONT)
        wait_until(lambda: "leaves: it did not keep up" in standing.said())
        assert standing.status()["controller"] == {"pid": serving, "standby": 0, "takeovers": 0}
        os.kill(serving, signal.SIGKILL)
        with pytest.raises(core.ConnectionFailed, match=re.escape(standing.address)), native.translated():
            wait_until(lambda: not session.status_json(WAIT_S))
    assert standing.process.wait(WAIT_S) == 1
    assert "nothing goes on in its place: it did not keep up" in standing.said()
    assert not standing.token_files()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("who", ["the group", "the standby", "the controller"])
def test_both_processes_end_in_order(tmp_path: Path, who: str, number: signal.Signals) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)
    command = [*COMMAND, "controller", "--bind", "tcp://127.0.0.1:*"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (child,) = _children(process.pid)
        if who == "the group":
            os.killpg(process.pid, number)  # as a terminal does
        else:
            os.kill(process.pid if who == "the standby" else child, number)
        assert process.wait(WAIT_S) == 0
        assert not is_running(child)
    assert not list(tmp_path.rglob("*.token"))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_controllers_that_die_at_once_are_not_replaced_for_ever(standing: Standing) -> None:
    def is_given_up() -> bool:
        if standing.process.poll() is not None:
            return True
        for child in _children(standing.process.pid):
            os.kill(child, signal.SIGKILL)
        return False

    wait_until(is_given_up, WAIT_S)
    assert standing.process.wait(WAIT_S) == 1
    assert "nothing goes on in its place" in standing.said()


@pytest.mark.parametrize("kind", ["ipc", "abstract"])
def test_other_endpoints_are_taken_over_too(tmp_path: Path, kind: str) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    bind = f"ipc://{private}/socket" if kind == "ipc" else f"ipc://@ptpathways-test-{os.getpid()}"
    with Standing(tmp_path, bind=bind) as standing:
        standing.start_workers("a")
        with standing.session() as session:
            for value in range(3):
                standing.kill_controller()
                assert session.put(np.float32(value), 0).result(WAIT_S) == value
        standing.end()


def test_without_a_standby_there_is_one_process(tmp_path: Path) -> None:
    with Standing(tmp_path, "--no-standby") as standing:
        assert _children(standing.process.pid) == []
        assert standing.status()["controller"] == {"pid": standing.process.pid, "standby": 0, "takeovers": 0}
        standing.end()
