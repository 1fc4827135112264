"""The join token is changed while a cluster runs: members go on, and nobody else comes in with the former one."""

from __future__ import annotations

import os
import re
import secrets
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from ptpathways import core, native
from ptpathways.testing import stop_process, wait_until
from tests.proc import attackers
from tests.proc.conftest import ADD_ONE
from tests.proc.standing import CAPTURED, COMMAND, WAIT_S, Standing

pytestmark = pytest.mark.timeout(240)

CHANGING = "is being changed; join with the new one in a moment"


def _rotate(standing: Standing) -> str:
    """Changes the token as a user does; the former one."""
    former = standing.token
    done = _rotates(standing)
    assert done.returncode == 0, done.stderr + standing.said()
    assert former not in done.stdout + done.stderr
    standing.learn_token()
    assert standing.token != former and standing.token not in done.stdout + done.stderr
    return former


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    stop_process(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _rotates(standing: Standing) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "token", "--rotate", standing.address]
    return subprocess.run(command, env=standing.environment, capture_output=True, text=True, timeout=WAIT_S)


def _joins(standing: Standing, token: str) -> bool:
    try:
        native.Session.connect(standing.address, "late", 20.0, token=token).close()
    except native.NativeError as error:
        assert error.code == "UNAVAILABLE" and "another join token" in str(error), error
        return False
    return True


def _workers_hear(standing: Standing, token: str) -> list[bool]:
    """For each worker, whether who has the token is heard on data connections."""
    with standing.session() as session:
        endpoints = [host["data_endpoint"] for host in session.hosts()]
    return [_hears(endpoint, token) for endpoint in endpoints]


def _hears(endpoint: str, token: str) -> bool:
    caller: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    caller.curve_publickey, caller.curve_secretkey = attackers.keys_of(token, "client")
    caller.curve_serverkey = attackers.keys_of(token, "worker")[0]
    monitor = caller.get_monitor_socket(addr=f"inproc://hears-{secrets.token_hex(8)}")
    caller.connect(endpoint)
    try:
        while monitor.poll(int(WAIT_S * 1000)):
            event = recv_monitor_message(monitor)["event"]
            if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
                return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)
    finally:
        caller.disable_monitor()
        caller.close(0)
    raise AssertionError(f"{endpoint} neither admits nor refuses")


def test_a_running_program_goes_on_and_the_former_token_is_worth_nothing(standing: Standing) -> None:
    standing.start_workers("a", "b")
    large = np.arange(8 << 20, dtype=np.float32)
    with standing.session() as session:
        add_one = session.register(ADD_ONE.encode(), "mlir")
        values = [session.put(np.float32(0), device) for device in (0, 1)]
        copies, formers = [], []
        for step in range(900):
            if step % 300 == 150:
                copies.append(session.put(large, 0).copy_to(1))
                formers.append(_rotate(standing))
                copies.append(copies[-1].copy_to(0))
            values = [session.run(add_one, [value], device)[0] for device, value in enumerate(values)]
            if step % 50 == 49:
                values = [values[1].copy_to(0), values[0].copy_to(1)]
        assert [float(value.result(WAIT_S)) for value in values] == [900, 900]
        for copy in copies:
            np.testing.assert_array_equal(copy.result(WAIT_S), large)
        assert all(host["alive"] for host in session.hosts())
        for former in formers:
            assert not _joins(standing, former)
            assert _workers_hear(standing, former) == [False, False]
        assert _joins(standing, standing.token)
        assert _workers_hear(standing, standing.token) == [True, True]
    standing.start_workers("c")
    assert standing.said().count("the join token has changed") == 3
    standing.end()


def test_a_loop_has_the_same_losses_while_the_token_changes(standing: Standing) -> None:
    pytest.importorskip("torch_xla")
    import sys

    alone = subprocess.run([sys.executable, "-c", CAPTURED, "-"], capture_output=True, text=True, check=True)
    standing.start_workers("a", "b")
    program = standing.start_program(CAPTURED)
    assert program.stdout is not None and program.stdin is not None
    losses = []
    for line in program.stdout:
        losses.append(line.strip())
        program.stdin.write("\n")
        program.stdin.flush()
        if len(losses) in (8, 20):
            _rotate(standing)
    assert program.wait(WAIT_S) == 0, standing.said()
    assert losses == alone.stdout.split()
    standing.end()


@contextmanager
def _held_up(standing: Standing, session: native.Session, host: int) -> Iterator[None]:
    """The token is being changed, and this host is stopped and so not told; afterwards the change comes to its end."""
    before = standing.said().count("the join token has changed")
    with _stopped(session.hosts()[host]["pid"]):
        os.kill(standing.process.pid, signal.SIGUSR1)
        wait_until(lambda: "the join token changes" in standing.said(), WAIT_S)
        yield
    wait_until(lambda: standing.said().count("the join token has changed") > before, WAIT_S)
    standing.learn_token()


def test_a_member_that_is_stopped_is_waited_for_and_nobody_joins_meanwhile(standing: Standing) -> None:
    standing.start_workers("a", "b")
    former = standing.token
    with standing.session() as session:
        value = session.put(np.float32(1), 1)
        value.wait(WAIT_S)
        with _held_up(standing, session, 1):
            for _ in range(2):
                with pytest.raises(native.NativeError, match=CHANGING):
                    native.Session.connect(standing.address, "late", 20.0, token=former)
            os.kill(standing.process.pid, signal.SIGUSR1)
            wait_until(lambda: "the join token is being changed already" in standing.said(), WAIT_S)
        assert value.copy_to(0).result(WAIT_S) == 1
    assert not _joins(standing, former)
    standing.end()


def test_who_finds_the_token_by_itself_waits_for_the_next_one(standing: Standing) -> None:
    standing.start_workers("a", "b")
    command = [*COMMAND, "worker", "--join", standing.address, "--name", "late"]
    with standing.session() as session:
        with _held_up(standing, session, 1):
            late = subprocess.Popen(command, env=standing.environment, stderr=subprocess.PIPE, text=True)
            assert late.stderr is not None
            line = next((line for line in late.stderr if "changes its join token; waiting until" in line), "")
            assert standing.address in line, late.poll()
        with late:
            wait_until(lambda: len(standing.status()["hosts"]) == 3, WAIT_S)
            late.terminate()
            assert late.wait(WAIT_S) == 0
    standing.end()


def test_a_controller_that_is_killed_in_the_middle_leaves_the_rest_to_its_successor(standing: Standing) -> None:
    standing.start_workers("a", "b")
    former, serving = standing.token, standing.serving()
    with standing.session() as session:
        value = session.put(np.float32(1), 1)
        value.wait(WAIT_S)
        with _held_up(standing, session, 1):
            os.kill(serving, signal.SIGKILL)
            wait_until(lambda: "its standby goes on" in standing.said(), WAIT_S)
        assert value.copy_to(0).result(WAIT_S) == 1
        assert not _joins(standing, former)
        standing.kill_controller()  # the next one asks for the new one, too
        wait_until(lambda: standing.said().count("its standby goes on") == 2, WAIT_S)
        assert value.copy_to(0).result(WAIT_S) == 1
    assert not _joins(standing, former)
    assert standing.status()["controller"]["takeovers"] == 2
    standing.end()


def test_a_controller_that_is_stopped_in_the_middle_goes_on_afterwards(standing: Standing) -> None:
    standing.start_workers("a", "b")
    serving = standing.serving()
    with standing.session() as session:
        value = session.put(np.float32(1), 1)
        with _held_up(standing, session, 0):
            for _ in range(5):
                with _stopped(serving):
                    select.select([], [], [], 0.25)  # longer than it sleeps between its looks
        assert value.copy_to(0).result(WAIT_S) == 1
    assert standing.serving() == serving
    standing.end()


def test_without_members_the_token_changes_at_once(standing: Standing) -> None:
    for _ in range(5):
        assert not _joins(standing, _rotate(standing))
    standing.end()


def test_one_process_at_a_time_asks_for_another_token(standing: Standing) -> None:
    standing.start_workers("a")
    with standing.session() as session, _stopped(session.hosts()[0]["pid"]):
        first = subprocess.Popen([*COMMAND, "token", "--rotate", standing.address], env=standing.environment)
        wait_until(lambda: "the join token changes" in standing.said(), WAIT_S)
        done = _rotates(standing)
        assert done.returncode == 1 and "by one process at a time" in done.stderr
    assert first.wait(WAIT_S) == 0
    standing.learn_token()
    standing.end()


@pytest.mark.parametrize("arguments", [(), ("--no-standby",)], ids=["standby", "alone"])
def test_a_token_file_holds_the_next_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "token"
    core.write_token(path, core.make_token())
    with Standing(tmp_path, "--token-file", str(path), *arguments) as standing:
        standing.start_workers("a")
        with standing.session() as session:
            done = _rotates(standing)
            assert done.returncode == 1
            for said in (done.stderr, standing.said()):
                assert "stays as it is" in said and "must hold another join token than before" in said
            path.unlink()
            core.write_token(path, f"{core.make_token()[:-1]}x")
            done = _rotates(standing)
            assert done.returncode == 1 and "stays as it is" in done.stderr
            path.unlink()
            core.write_token(path, fresh := core.make_token())
            former = _rotate(standing)
            assert standing.token == fresh
            assert session.put(np.float32(3), 0).result(WAIT_S) == 3
        assert not _joins(standing, former)
        standing.end()


def test_only_this_users_controllers_here_are_rotated(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)

    def said(*arguments: str) -> Any:
        command = [*COMMAND, "token", "--rotate", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)

    done = said("127.0.0.1:9")
    assert done.returncode == 1 and re.search("that this user runs on this machine, got none", done.stderr)
    assert said("127.0.0.1:9", "--role", "worker").returncode == 2
