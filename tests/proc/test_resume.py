"""A lost control connection is no death: runs go on, once each and in order. A death is still one, and soon named."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from ptpathways import core, native, platforms
from ptpathways.launch import WorkerOptions, worker_command, worker_environment
from ptpathways.testing import SHUT, USUAL, Proxy, stop_process, wait_until
from tests.proc.conftest import ADD_ONE
from tests.proc.test_pauses import TRAIN

pytestmark = pytest.mark.timeout(240)

WAIT_S = 60.0
DARK_S = 6.0
"""How long the network is away: longer than after what silence is told of, and than a closed connection is borne."""
NAMED_S = 5.0
"""Within so long a death is named."""

Fault = Callable[[], object]


class _Cluster:
    """A controller, and proxies before it for its two workers and for its clients."""

    def __enter__(self) -> _Cluster:
        self._stack = ExitStack()
        self.token = core.make_token()
        self.controller = native.Controller(
            {"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": self.token, "log_level": "info"}
        )
        host, _, port = self.controller.endpoints[0].removeprefix("tcp://").rpartition(":")
        self.to_workers = self._stack.enter_context(Proxy(("127.0.0.1", 0), (host, int(port))))
        self.to_clients = self._stack.enter_context(Proxy(("127.0.0.1", 0), (host, int(port))))
        self.workers = [self._start_worker(name) for name in ("host0", "host1")]
        self.address = f"tcp://127.0.0.1:{self.to_clients.address[1]}"
        return self

    def _start_worker(self, name: str) -> subprocess.Popen[bytes]:
        options = WorkerOptions(
            controller=f"tcp://127.0.0.1:{self.to_workers.address[1]}",
            name=name,
            island="one",
            plugin=platforms.find_plugin(),
            token=self.token,
        )
        process = subprocess.Popen(worker_command(options), env=worker_environment(options))
        self._stack.callback(self._end, process)
        self.controller.wait_for_hosts(int(name[-1]) + 1, WAIT_S)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()

    def __exit__(self, *_: object) -> None:
        self.controller.close("the test is over")
        self._stack.close()
        native.clean_up_shared_memory(self.controller.cluster)

    def session(self) -> native.Session:
        return native.Session.connect(self.address, "client", 10.0, token=self.token)

    @property
    def proxies(self) -> dict[str, list[Proxy]]:
        return {
            "client": [self.to_clients],
            "worker": [self.to_workers],
            "both": [self.to_clients, self.to_workers],
        }

    def clients(self) -> list[str]:
        return [each["name"] for each in json.loads(self.controller.status_json())["clients"]]


@pytest.fixture
def cluster() -> Iterator[_Cluster]:
    with _Cluster() as started:
        yield started


def _stay_dark(proxies: list[Proxy]) -> None:
    for proxy in proxies:
        proxy.pass_as(SHUT, SHUT)
    threading.Event().wait(DARK_S)  # what is tested is that this time passes


def _count(session: native.Session, steps: int, faults: dict[int, Fault]) -> None:
    """Adds one again and again on two hosts, each of which hands its value to the other now and then."""
    add_one = session.register(ADD_ONE.encode(), "mlir")
    values = [session.put(np.float32(0), device) for device in (0, 1)]
    for step in range(steps):
        if step in faults:
            faults[step]()
        values = [session.run(add_one, [value], device)[0] for device, value in enumerate(values)]
        if step % 50 == 49:
            values = [values[1].copy_to(0), values[0].copy_to(1)]
    assert [float(value.result(WAIT_S)) for value in values] == [steps, steps]
    assert all(host["alive"] for host in session.hosts())


@pytest.mark.parametrize("who", ["client", "worker", "both"])
@pytest.mark.parametrize("reset", [False, True], ids=["cut", "reset"])
def test_a_counter_goes_on_over_lost_connections(cluster: _Cluster, who: str, *, reset: bool) -> None:
    proxies = cluster.proxies[who]

    def lose() -> None:
        for proxy in proxies:
            proxy.cut(reset=reset)

    with cluster.session() as session:
        _count(session, 1500, dict.fromkeys(range(3, 1500, 177), lose))


@pytest.mark.parametrize("who", ["client", "worker", "both"])
def test_a_reset_anywhere_in_the_stream_of_many_runs(cluster: _Cluster, who: str) -> None:
    proxies = cluster.proxies[who]

    def arm(count: int) -> Fault:
        def fault() -> None:
            for proxy in proxies:
                proxy.reset_after(count)

        return fault

    with cluster.session() as session:
        _count(session, 1500, {step: arm(3000 + 7 * step) for step in range(0, 1500, 150)})


@pytest.mark.parametrize("who", ["client", "worker", "both"])
@pytest.mark.parametrize("reset", [False, True], ids=["released", "reset"])
def test_a_network_that_was_away(cluster: _Cluster, who: str, *, reset: bool) -> None:
    proxies = cluster.proxies[who]

    def away() -> None:
        _stay_dark(proxies)
        for proxy in proxies:
            if reset:
                proxy.cut(reset=True)
            proxy.pass_as(USUAL, USUAL)

    with cluster.session() as session:
        _count(session, 300, {100: away})


@pytest.mark.parametrize("who", ["client", "worker", "both"])
def test_garbage_in_the_stream(cluster: _Cluster, who: str) -> None:
    """Either end may be the one that reads it; libzmq makes the connection again for only one of them."""

    def damage() -> None:
        assert sum(proxy.damage() for proxy in cluster.proxies[who]) > 0

    with cluster.session() as session:
        for _ in range(4):
            _count(session, 300, {100: damage})


@pytest.mark.parametrize("who", ["client", "worker"])
@pytest.mark.parametrize("callers", [False, True], ids=["controller's end", "member's end"])
def test_a_half_open_connection(cluster: _Cluster, who: str, *, callers: bool) -> None:
    def reset() -> None:
        for proxy in cluster.proxies[who]:
            proxy.reset_one_end(callers=callers)

    with cluster.session() as session:
        _count(session, 300, {100: reset, 200: reset})


def test_training_over_a_bad_network_has_the_same_losses(cluster: _Cluster) -> None:
    pytest.importorskip("torch_xla")
    alone = subprocess.run([sys.executable, "-c", TRAIN, "-"], capture_output=True, text=True, check=True, timeout=100)
    environment = {**os.environ, core.TOKEN_VARIABLE: cluster.token}
    both = cluster.proxies["both"]

    def away(*, reset: bool) -> None:
        _stay_dark(both)
        for proxy in both:
            if reset:
                proxy.cut(reset=True)
            proxy.pass_as(USUAL, USUAL)

    faults: dict[int, Fault] = {
        5: lambda: cluster.to_clients.cut(reset=True),
        10: lambda: cluster.to_workers.cut(reset=True),
        15: lambda: [proxy.cut(reset=True) for proxy in both],
        20: lambda: away(reset=False),
        25: lambda: away(reset=True),
    }
    losses = []
    with subprocess.Popen(
        [sys.executable, "-c", TRAIN, cluster.address], stdout=subprocess.PIPE, text=True, env=environment
    ) as client:
        assert client.stdout is not None
        for line in client.stdout:
            losses.append(line.strip())
            faults.get(len(losses), lambda: None)()
        assert client.wait(WAIT_S) == 0
    assert losses == alone.stdout.split() and len(losses) == 40


# --- deaths


def test_a_killed_worker_is_named_at_once(cluster: _Cluster) -> None:
    with cluster.session() as session:
        held = session.put(np.float32(1), 1)
        held.wait(WAIT_S)
        start_s = time.monotonic()
        cluster.workers[1].kill()
        cluster.workers[1].wait()
        wait_until(lambda: not session.hosts()[1]["alive"], WAIT_S)
        assert time.monotonic() - start_s < NAMED_S
        with pytest.raises(native.NativeError, match=r"'host1'.*connection closed"):
            held.result(WAIT_S)


def test_a_worker_that_was_stopped_and_then_killed_is_named(cluster: _Cluster) -> None:
    with cluster.session() as session:
        stop_process(cluster.workers[1].pid)
        threading.Event().wait(DARK_S)  # no death
        assert session.hosts()[1]["alive"]
        start_s = time.monotonic()
        cluster.workers[1].kill()
        wait_until(lambda: not session.hosts()[1]["alive"], WAIT_S)
        assert time.monotonic() - start_s < NAMED_S


def test_a_worker_whose_network_refuses_it_is_lost_after_the_grace(cluster: _Cluster) -> None:
    """It lives, and nobody can tell: a connection that closed and does not come back is a death."""
    with cluster.session() as session:
        for device in (0, 1):  # who has not heard the controller's welcome yet would join anew
            session.put(np.float32(0), device).result(WAIT_S)
        start_s = time.monotonic()
        cluster.to_workers.pass_as(SHUT, SHUT)
        cluster.to_workers.cut(reset=True)
        wait_until(lambda: not any(host["alive"] for host in session.hosts()), WAIT_S)
        assert time.monotonic() - start_s < NAMED_S
        with pytest.raises(native.NativeError, match=r"was not made again within \d s"):
            session.put(np.float32(1), 0).result(WAIT_S)
        cluster.to_workers.pass_as(USUAL, USUAL)
        assert [worker.wait(WAIT_S) for worker in cluster.workers] != [0, 0], "they are told, and end"


def test_a_killed_client_is_collected_at_once(cluster: _Cluster) -> None:
    program = (
        "import sys, numpy, ptpathways.native as native\n"
        "session = native.Session.connect(sys.argv[1], 'victim', 10.0, token=sys.argv[2])\n"
        "session.put(numpy.float32(1), 0).wait(30.0)\n"
        "print('there', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, cluster.address, cluster.token],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as victim:  # fmt: skip
        assert victim.stdout is not None and victim.stdout.readline() == "there\n"
        assert cluster.clients() == ["victim"]
        start_s = time.monotonic()
        victim.kill()
        wait_until(lambda: not cluster.clients(), WAIT_S)
        assert time.monotonic() - start_s < NAMED_S


def test_a_killed_controller_is_named_by_all() -> None:
    token = core.make_token()
    program = (
        "import sys, ptpathways.native as native\n"
        "made = native.Controller({'bind': ['tcp://127.0.0.1:*'], 'embedded': False, 'token': sys.argv[1]})\n"
        "print(made.endpoints[0], made.cluster, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        address, cluster_name = controller.stdout.readline().split()
        options = WorkerOptions(controller=address, name="host0", plugin=platforms.find_plugin(), token=token)
        with subprocess.Popen(worker_command(options), env=worker_environment(options)) as worker:
            try:
                with native.Session.connect(address, "client", 10.0, token=token) as session:
                    wait_until(lambda: session.device_count == 1, WAIT_S)
                    start_s = time.monotonic()
                    controller.kill()
                    with pytest.raises(native.NativeError, match=r"the controller at .* is lost"):
                        while time.monotonic() < start_s + WAIT_S:
                            session.put(np.float32(1), 0)
                    assert time.monotonic() - start_s < NAMED_S
                assert worker.wait(WAIT_S) != 0
            finally:
                worker.kill()
                native.clean_up_shared_memory(cluster_name)
