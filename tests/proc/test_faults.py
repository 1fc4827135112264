"""Processes that die, stop, or talk nonsense: whoever depends on them hears it within seconds, and who and why."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native, platforms
from ptpathways.bench import _hlo
from ptpathways.launch import WorkerOptions, worker_command, worker_environment
from ptpathways.testing import hold_thread, is_running, kill, resume, shared_memory_files, suspend, wait_until
from tests.proc import attackers
from tests.proc.conftest import ADD_ONE, StartCluster
from tests.scenarios import ROOT

FIRST_OF_2_MI = """module @first { func.func public @main(%x: tensor<2097152xf32>) -> tensor<f32> {
  %0 = stablehlo.slice %x [0:1] : (tensor<2097152xf32>) -> tensor<1xf32>
  %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
  return %1 : tensor<f32>
} }"""
WAIT_S = 30.0
NOTICED_S = 5.0


def test_a_killed_worker_fails_what_depended_on_it(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    session = cluster.session
    here, there = session.put(np.float32(1), 0), session.put(np.float32(2), 1)
    there.wait(WAIT_S)
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)
    kill(cluster, "host1")
    start_s = time.monotonic()
    with pytest.raises(native.NativeError) as caught:
        for _ in range(1000):  # the kill may not have been noticed by the first
            there.result(WAIT_S)
    assert time.monotonic() - start_s < NOTICED_S
    assert caught.value.code == "UNAVAILABLE" and "'host1'" in str(caught.value)
    with pytest.raises(native.NativeError, match="'host1'"):
        session.put(np.float32(3), 1).result(WAIT_S)
    # The other host is none the worse.
    (value,) = session.run(add_one, [here], 0)
    assert value.result(WAIT_S) == 2


def test_the_error_of_an_unfinished_run_names_function_and_host(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", name="never_finished")
    (warm,) = session.run(add_one, [session.put(np.float32(1), 1)], 1)  # compiled on host1, too
    warm.wait(WAIT_S)
    suspend(cluster, "host1")
    (value,) = session.run(add_one, [warm], 1)
    session.put(np.float32(1), 0).result(WAIT_S)  # before this the controller has sent the run
    kill(cluster, "host1")
    with pytest.raises(native.NativeError) as caught:
        value.result(WAIT_S)
    assert re.search(r"function 'never_finished'.*did not finish.*'host1'.*(SIGKILL|closed)", str(caught.value))


def test_a_transfer_from_a_killed_worker_fails_at_the_receiver(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    session = cluster.session
    source = session.put(np.zeros(8 << 20, np.float32), 1)
    source.wait(WAIT_S)
    suspend(cluster, "host1")  # it will send nothing
    copy = source.copy_to(0)
    kill(cluster, "host1")
    with pytest.raises(native.NativeError, match="'host1'"):
        copy.result(WAIT_S)


@pytest.mark.parametrize("size", [4, 1 << 20], ids=["inline", "streamed"])
@pytest.mark.parametrize("read", ["result", "wait"])
def test_a_run_that_needed_a_lost_hosts_value_fails_with_that_cause(
    start_cluster: StartCluster, read: str, size: int
) -> None:
    """The read fails with the plugin's event, often before the run that made the value has been looked at."""
    cluster = start_cluster(hosts=4)
    session = cluster.session
    function = session.register(ADD_ONE.replace("f32", f"{size}xf32").encode(), "mlir", name="add_one")
    for victim in (1, 2, 3):
        source = session.put(np.zeros(size, np.float32), victim)
        source.wait(WAIT_S)
        suspend(cluster, f"host{victim}")
        (value,) = session.run(function, [source.copy_to(0)], 0)
        kill(cluster, f"host{victim}")
        with pytest.raises(native.NativeError, match=f"^host 'host{victim}' .* is lost") as caught:
            getattr(value, read)(WAIT_S)
        assert caught.value.code == "UNAVAILABLE"


def _fill(session: native.Session, source: Any, device: int) -> list[Any]:
    """More runs on a device than XLA lets wait there, all of which wait for ``source``, which is on another host."""
    add_one = session.register(ADD_ONE.encode(), "mlir")
    (value,) = session.run(add_one, [session.put(np.float32(1), device)], device)
    for _ in range(8):  # so short that the scheduler grants hundreds at once
        (value,) = session.run(add_one, [value], device)
        value.wait(WAIT_S)
    waiting = source.copy_to(device)
    return [session.run(add_one, [waiting], device)[0] for _ in range(200)]


def test_what_takes_the_result_of_a_run_that_was_held_back_fails_with_its_cause(start_cluster: StartCluster) -> None:
    """The program never reaches the host that computes on, for the runs before it wait for the lost one to compile."""
    cluster = start_cluster(hosts=2)
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)

    def slot(device: int) -> Any:
        return {"dtype": "f32", "dims": [], "shards": [0], "devices": [device]}

    def step(**fields: Any) -> Any:
        return {"node": 0, "slot": 0, "shard": 0, **fields}

    receive = step(kind="receive", pieces=[{"channel": 0, "host": 1}])
    send = step(kind="send", channel=0, host=0)
    common: dict[str, Any] = {"channels": 1, "nodes": ["moved"]}
    port: Any = {"dtype": "f32", "dims": []}
    program = session.register_program(
        "moves",
        [
            {**common, "host": 0, "slots": [slot(0)], "inputs": [-1], "outputs": [0], "steps": [receive]},
            {**common, "host": 1, "slots": [slot(1)], "inputs": [0], "outputs": [-1], "steps": [send]},
        ],
        [{**port, "devices": [1]}],
        [{**port, "devices": [0]}],
        functions=[],
    )
    program.wait_ready(WAIT_S)
    here, there = session.put(np.float32(1), 0), session.put(np.float32(2), 1)
    for device, value in enumerate((here, there)):
        session.run(add_one, [value], device)[0].wait(WAIT_S)
    (moved,) = session.run_program(program, [there])
    assert moved.result(WAIT_S) == 2
    suspend(cluster, "host1")
    busy = session.register(_hlo.waiting(60), "mlir", name="busy", devices=None)
    waits = [session.run(busy, [there], 1)[0] for _ in range(3)]
    (moved,) = session.run_program(program, [there])
    (next_one,) = session.run(add_one, [moved], 0)
    (last,) = session.run(add_one, [next_one], 0)
    kill(cluster, "host1")
    for value in (*waits, moved, next_one, last):
        with pytest.raises(native.NativeError, match=r"'host1'.*lost"):
            value.result(WAIT_S)
    (value,) = session.run(add_one, [here], 0)
    assert value.result(WAIT_S) == 2


def test_a_full_device_is_freed_when_the_host_it_waits_for_is_lost(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=3)
    session = cluster.session
    source, held = session.put(np.float32(2), 1), session.put(np.float32(3), 2)
    for value in (source, held):
        value.wait(WAIT_S)
    suspend(cluster, "host1")
    values = _fill(session, source, 2)
    before = held.copy_to(0)  # behind the runs, and in need of none of them
    kill(cluster, "host1")
    start_s = time.monotonic()
    for value in values:
        with pytest.raises(native.NativeError, match="'host1'"):
            value.result(WAIT_S)
    assert before.result(WAIT_S) == held.result(WAIT_S) == 3
    assert time.monotonic() - start_s < 2 * NOTICED_S
    (value,) = session.run(session.register(ADD_ONE.encode(), "mlir"), [held], 2)
    assert value.result(WAIT_S) == 4


def test_a_worker_with_a_full_device_ends_with_its_cluster(tmp_path: Path) -> None:
    script = tmp_path / "victim.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        from ptpathways import core
        from ptpathways.launch import local
        from ptpathways.testing import suspend
        from tests.proc.test_faults import WAIT_S, _fill
        cluster = local.start(core.Options(hosts=2))
        source = cluster.session.put(np.float32(2), 1)
        source.wait(WAIT_S)
        suspend(cluster, "host1")
        values = _fill(cluster.session, source, 0)
        print(cluster.worker_pids["host0"], cluster.worker_pids["host1"], flush=True)
        input()
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as victim:
        assert victim.stdout is not None
        pid, suspended = map(int, victim.stdout.readline().split())
        victim.kill()
    try:
        wait_until(lambda: not is_running(pid), 2 * NOTICED_S)
    finally:
        os.kill(suspended, signal.SIGCONT)
    wait_until(lambda: not is_running(suspended), 2 * NOTICED_S)


def test_a_worker_that_stops_answering_is_lost_after_its_lease(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2, lease_s=2.0)
    session = cluster.session
    value = session.put(np.float32(1), 1)
    value.wait(WAIT_S)
    suspend(cluster, "host1")
    try:
        start_s = time.monotonic()
        with pytest.raises(native.NativeError) as caught:
            value.result(WAIT_S)
        assert time.monotonic() - start_s < 2 * NOTICED_S
        assert "'host1'" in str(caught.value) and "heard" in str(caught.value)
    finally:
        resume(cluster, "host1")


def test_a_worker_whose_engine_hangs_is_lost_by_name(start_cluster: StartCluster) -> None:
    """Its other threads go on, heartbeats included; so nothing but its own word can say what is wrong.

    The lease is also how long a busy machine may keep a heartbeat back before its member is lost for another reason.
    """
    lease_s = 8.0
    cluster = start_cluster(hosts=2, lease_s=lease_s)
    session = cluster.session
    value = session.put(np.float32(1), 1)
    value.wait(WAIT_S)
    pid = cluster.worker_pids["host1"]
    with hold_thread(pid, "pw-engine"):
        start_s = time.monotonic()
        copy = value.copy_to(0)  # a transfer that host1 would have to begin
        for wait in (value.result, copy.result):
            with pytest.raises(native.NativeError, match=r"'host1'.* its engine hangs: for \d+ ms") as caught:
                wait(WAIT_S)
            assert caught.value.code == "UNAVAILABLE"
        assert lease_s - 1.0 < time.monotonic() - start_s < lease_s + 2 * NOTICED_S
        wait_until(lambda: not is_running(pid), NOTICED_S)


def test_what_a_killed_worker_has_in_shared_memory_is_removed_by_its_neighbours(start_cluster: StartCluster) -> None:
    cluster = start_cluster(hosts=2)
    cluster.session.put(np.zeros(1 << 20, np.float32), 1).copy_to(0).wait(WAIT_S)
    descriptors = Path(f"/proc/{cluster.worker_pids['host1']}/fd")
    links = [os.readlink(descriptor) for descriptor in descriptors.iterdir()]
    segments = [Path(link) for link in links if link.startswith("/dev/shm/ptpathways-")]
    assert segments and all(segment.exists() for segment in segments)
    kill(cluster, "host1")
    wait_until(lambda: not any(segment.exists() for segment in segments), NOTICED_S)


def test_a_worker_that_ends_in_order_leaves_no_shared_memory() -> None:
    """Also where nobody else could remove it: on another machine than the controller's."""
    with _StandingCluster() as cluster:
        with native.Session.connect(cluster.endpoint, "client", 10.0, token=cluster.token) as session:
            session.put(np.zeros(1 << 20, np.float32), 0).wait(WAIT_S)
            assert cluster.files()
        cluster.end()
        assert not cluster.files()


def test_a_lost_controller_is_no_lost_host() -> None:
    command = [sys.executable, "-m", "ptpathways.cli", "controller", "--no-standby", "--bind", "tcp://127.0.0.1:*"]
    token = core.make_token()
    environment = {**os.environ, "PTPATHWAYS_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as controller:
        assert controller.stdout is not None
        address = next(word for word in controller.stdout.readline().split() if word.startswith("tcp://"))
        with native.Session.connect(address, "client", 10.0, token=token) as session:
            controller.kill()
            controller.wait()
            with pytest.raises(core.ConnectionFailed, match=re.escape(address)), native.translated():
                wait_until(lambda: not session.status_json(WAIT_S))


def test_a_program_killed_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "victim.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        from ptpathways import core
        from ptpathways.launch import local
        cluster = local.start(core.Options(hosts=2))
        copy = cluster.session.put(np.zeros(4 << 20, np.float32), 0).copy_to(1)
        copy.wait(30.0)
        print(cluster.controller.cluster, cluster.runtime_dir, *cluster.worker_pids.values(), flush=True)
        cluster.session.put(np.zeros(64 << 20, np.float32), 0)
        input()
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        name, folder, *pids = victim.stdout.readline().split()
        victim.kill()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids), 2 * NOTICED_S)
    wait_until(lambda: not os.path.exists(folder) and not shared_memory_files(name), NOTICED_S)


def test_a_client_killed_with_its_buffers_on_a_standing_cluster(tmp_path: Path) -> None:
    """Its buffers are collected, and the workers serve the next client."""
    with _StandingCluster() as cluster:
        before = cluster.segments()
        script = tmp_path / "client.py"
        script.write_text(
            textwrap.dedent(f"""
            import numpy as np
            from ptpathways import native
            session = native.Session.connect({cluster.endpoint!r}, "victim", 10.0, token={cluster.token!r})
            held = [session.put(np.zeros(1 << 20, np.float32), 0) for _ in range(8)]
            [buffer.wait(30.0) for buffer in held]
            print("ready", flush=True)
            input()
            """)
        )
        with subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline().strip() == "ready"
            cluster.wait_for(lambda status: status["hosts"][0]["live_buffers"] == 8)
            of_victim = cluster.segments() - before
            assert of_victim, "its values travelled through shared memory"
            victim.kill()
        cluster.wait_for(lambda status: status["hosts"][0]["live_buffers"] == 0 and not status["clients"])
        wait_until(lambda: not cluster.segments() & of_victim, WAIT_S)
        with native.Session.connect(cluster.endpoint, "next", 10.0, token=cluster.token) as session:
            add_one = session.register(ADD_ONE.encode(), "mlir")
            (value,) = session.run(add_one, [session.put(np.float32(1), 0)], 0)
            assert value.result(WAIT_S) == 2


def test_nobody_at_the_address() -> None:
    with pytest.raises(native.NativeError) as caught:
        native.Session.connect("tcp://127.0.0.1:9", "lonely", 0.5, token=core.make_token())
    assert caught.value.code == "UNAVAILABLE"
    assert "127.0.0.1:9" in str(caught.value) and "ptpathways controller" in str(caught.value)


def test_garbage_and_other_versions_are_refused_and_do_no_harm() -> None:
    with _StandingCluster() as cluster:
        stranger = attackers.connect(cluster.endpoint, cluster.token)
        try:
            for frames in ([b"hello"], [b""], [b"PWY1" + bytes(20)], [b"PWY1\x01\x00\x01\x00" + bytes(16)], [b"x"] * 9):
                stranger.send_multipart(frames)
                assert stranger.poll(int(WAIT_S * 1000)), "the controller answers with the reason"
                answer = stranger.recv_multipart()[0]
                assert answer[:4] == b"PWY1" and answer[6:8] == b"\x03\x00", "REJECT"
            refusal = _answers(stranger, [b"PWY1\x01\x00\x01\x00" + bytes(16)])
            assert f"version {native.PROTOCOL_VERSION}, got 1".encode() in refusal
        finally:
            stranger.close()
        with native.Session.connect(cluster.endpoint, "friend", 10.0, token=cluster.token) as session:
            assert session.put(np.float32(4), 0).result(WAIT_S) == 4


def _answers(socket: Any, frames: list[bytes]) -> bytes:
    socket.send_multipart(frames)
    assert socket.poll(int(WAIT_S * 1000))
    answer: bytes = socket.recv_multipart()[0]
    return answer


class _StandingCluster:
    """A controller of this process on loopback TCP, not embedded, with one worker process that it does not own."""

    def __enter__(self) -> _StandingCluster:
        self.token = core.make_token()
        self._controller = native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": self.token})
        self.endpoint = self._controller.endpoints[0]
        plugin = platforms.find_plugin()
        worker = WorkerOptions(controller=self.endpoint, name="standing0", plugin=plugin, token=self.token)
        self._worker = subprocess.Popen(
            worker_command(worker), env=worker_environment(worker), stderr=subprocess.DEVNULL
        )
        self._controller.wait_for_hosts(1, WAIT_S)
        return self

    def segments(self) -> set[Path]:
        """Of transfers; those of collectives have larger numbers, and come when a worker starts."""
        found = Path("/dev/shm").glob(f"ptpathways-{self._controller.cluster}-*")
        return {path for path in found if int(path.name.split("-")[-2]) < 10**12}

    def wait_for(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        wait_until(lambda: reached(json.loads(self._controller.status_json())), WAIT_S)

    def files(self) -> list[str]:
        """All in shared memory."""
        return shared_memory_files(self._controller.cluster)

    def end(self) -> None:
        self._controller.close("the test is over")
        assert self._worker.wait(WAIT_S) == 0

    def __exit__(self, *_: object) -> None:
        self.end()
        native.clean_up_shared_memory(self._controller.cluster)


def test_a_host_whose_device_is_full_says_what_it_waits_for(start_cluster: StartCluster) -> None:
    """Computations that wait for a stopped host's bytes fill the device; what comes behind them waits, but for this."""
    cluster = start_cluster(hosts=2)
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)
    far = session.put(np.float32(1), 0)
    (here,) = session.run(add_one, [session.put(np.float32(1), 1)], 1)  # compiled there
    for value in (far, here):
        value.wait(WAIT_S)
    suspend(cluster, "host0")
    results = [session.run(add_one, [far.copy_to(1)], 1)[0] for _ in range(60)]
    doing = dict.fromkeys(what for what, _, _ in session.activity(1, NOTICED_S))
    assert "receives from host 'host0'" in doing and "runs" in doing and "has" in doing
    resume(cluster, "host0")
    assert [float(result.result(WAIT_S)) for result in results] == [2.0] * 60


@pytest.mark.parametrize("memory", ["", "64MiB"])
def test_what_waits_for_a_slow_value_lets_others_bytes_pass(start_cluster: StartCluster, memory: str) -> None:
    """A device full of computations that wait for a slow value; behind them more copies than a sender's window takes.

    The slow value comes from the same sender, last: it must not wait for what waits for it.
    """
    cluster = start_cluster(hosts=2, memory_per_device=memory)
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)
    slow_down = session.register(_hlo.waiting(1.0), "mlir", name="slow")
    far = session.put(np.float32(1), 0)
    (here,) = session.run(add_one, [session.put(np.float32(1), 1)], 1)  # compiled there
    for value in (far, here):
        value.wait(WAIT_S)
    (slow,) = session.run(slow_down, [session.put(np.float32(0), 0)], 0)
    results = [session.run(add_one, [source.copy_to(1)], 1)[0] for source in [slow] * 30 + [far] * 60]
    assert len({float(result.result(WAIT_S)) for result in results[:30]}) == 1
    assert [float(result.result(WAIT_S)) for result in results[30:]] == [2.0] * 60


def test_large_values_that_nobody_can_take_yet_let_a_slow_one_pass(start_cluster: StartCluster) -> None:
    """As above with 320 MiB, and memory that has a limit: no buffer is made ahead of the computations before it.

    The receiver keeps 128 MiB that it does not expect yet, and defers the rest.
    """
    cluster = start_cluster(hosts=2, memory_per_device="1GiB")
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)
    first = session.register(FIRST_OF_2_MI.encode(), "mlir", devices=None)
    slow_down = session.register(_hlo.waiting(2.0), "mlir", name="slow")
    far = session.put(np.arange(1 << 21, dtype=np.float32) + 7, 0)
    (here,) = session.run(add_one, [session.put(np.float32(1), 1)], 1)
    (there,) = session.run(first, [session.put(np.zeros(1 << 21, np.float32), 1)], 1)
    for value in (far, here, there):
        value.wait(WAIT_S)
    (slow,) = session.run(slow_down, [session.put(np.float32(0), 0)], 0)
    waiting = [session.run(add_one, [slow.copy_to(1)], 1)[0] for _ in range(30)]
    large = [far.copy_to(1) for _ in range(40)]
    results = [session.run(first, [value], 1)[0] for value in large]
    for result in waiting:
        result.wait(WAIT_S)
    assert [float(result.result(WAIT_S)) for result in results] == [7.0] * 40
    np.testing.assert_array_equal(large[-1].result(WAIT_S), far.result(WAIT_S))


def test_uploads_behind_a_full_device_do_not_hold_up_what_it_waits_for(start_cluster: StartCluster) -> None:
    """Ten batches of 16 MiB that nobody could use yet, then the one that all computations wait for."""
    cluster = start_cluster(hosts=2)
    session = cluster.session
    add_one = session.register(ADD_ONE.encode(), "mlir", devices=None)
    far = session.put(np.float32(1), 0)
    (here,) = session.run(add_one, [session.put(np.float32(1), 1)], 1)
    for value in (far, here):
        value.wait(WAIT_S)
    suspend(cluster, "host0")
    results = [session.run(add_one, [far.copy_to(1)], 1)[0] for _ in range(40)]
    batches = [session.put(np.full(1 << 22, number, np.float32), 1) for number in range(20)]
    resume(cluster, "host0")
    assert [float(result.result(WAIT_S)) for result in results] == [2.0] * 40
    for number, batch in enumerate(batches):
        assert (batch.result(WAIT_S) == number).all()
