"""Several clients on one standing cluster: shares, losses, and what ``ptpathways status`` says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native, testing
from ptpathways.launch import local
from tests.proc.conftest import ADD_ONE

WAIT_S = 60.0
COMMAND = [sys.executable, "-m", "ptpathways.cli"]

SIDE = 512
"""Rows of the clients' matrix: one product takes milliseconds, so the runs that a client may have on their way last for
a second or more, and it always has something waiting, also where its own process hardly gets a core."""
MULTIPLY = """module @multiply {
  func.func public @main(%a: tensor<SIDExf32>) -> tensor<SIDExf32> {
    %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
      : (tensor<SIDExf32>, tensor<SIDExf32>) -> tensor<SIDExf32>
    return %0 : tensor<SIDExf32>
  }
}""".replace("SIDE", f"{SIDE}x{SIDE}")

CLIENT = """
import sys, threading
import numpy as np
from ptpathways import native
address, name, weight, priority, module, side = sys.argv[1:]
session = native.Session.connect(address, name, 20.0, float(weight), int(priority))
function = session.register(module.encode(), "mlir")
argument = session.put(np.ones((int(side), int(side)), np.float32), 0)
session.run(function, [argument], 0)[0].wait(60.0)
print("ready", flush=True)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
while not ended.is_set():
    for _ in range(8):
        session.run(function, [argument], 0)
session.close()
"""
"""A client that keeps the device busy until its standard input closes."""


@pytest.fixture
def serve() -> Iterator[Any]:
    """Starts standing clusters; afterwards nothing of theirs may be left."""
    started: list[local.StandingCluster] = []

    def start(**options: Any) -> local.StandingCluster:
        started.append(local.serve(core.Options(**options)))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
        assert not testing.leftovers(cluster)


@contextmanager
def _client(address: str, name: str, weight: float = 1, priority: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CLIENT, address, name, str(weight), str(priority), MULTIPLY, str(SIDE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline().strip() == "ready"
            yield process
        finally:
            process.stdin.close()
            process.wait(WAIT_S)


def _status(cluster: local.StandingCluster) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(cluster.controller.status_json())
    status["by_name"] = {client["name"]: client for client in status["clients"]}
    return status


def test_weights_are_kept_between_processes(serve: Any) -> None:
    cluster = serve(policy="fair")
    with _client(cluster.address, "light", weight=1), _client(cluster.address, "heavy", weight=3):
        testing.wait_until(lambda: all(c["gangs_finished"] > 50 for c in _status(cluster)["clients"]), WAIT_S)
        start = _status(cluster)["by_name"]

        def received() -> dict[str, float]:
            now = _status(cluster)["by_name"]
            return {name: now[name]["device_seconds"] - start[name]["device_seconds"] for name in start}

        testing.wait_until(lambda: sum(received().values()) > 1.5, WAIT_S)
        shares = received()
        status = _status(cluster)
    assert shares["heavy"] / sum(shares.values()) == pytest.approx(0.75, abs=0.1)  # 0.5 without weights
    (island,) = status["islands"]
    assert island["queued_ms"] < 20 + 10, "the device's queue is short, whatever the clients have submitted"
    assert status["policy"] == "fair" and status["by_name"]["heavy"]["weight"] == 3
    assert status["by_name"]["light"]["waiting_for"] in ("its turn", "")
    assert status["by_name"]["light"]["waited_seconds"] > 0


def test_a_higher_priority_goes_first(serve: Any) -> None:
    cluster = serve(policy="priority")
    with _client(cluster.address, "low"), _client(cluster.address, "high", priority=2):
        testing.wait_until(lambda: _status(cluster)["by_name"]["high"]["gangs_finished"] > 20, WAIT_S)
        start = _status(cluster)["by_name"]
        enough = start["high"]["gangs_finished"] + 150
        testing.wait_until(lambda: _status(cluster)["by_name"]["high"]["gangs_finished"] > enough, WAIT_S)
        end = _status(cluster)["by_name"]
    low = end["low"]["gangs_finished"] - start["low"]["gangs_finished"]
    high = end["high"]["gangs_finished"] - start["high"]["gangs_finished"]
    # By turns it would be as many. It need not be 0: the answer about the last run and the next run cross.
    assert low < 0.5 * high


def test_a_killed_client_is_collected_and_others_go_on(serve: Any) -> None:
    cluster = serve(policy="fair")
    with native.Session.connect(cluster.address, "survivor", 20.0) as session:
        add_one = session.register(ADD_ONE.encode(), "mlir")
        held = session.put(np.float32(1), 0)
        (value,) = session.run(add_one, [held], 0)
        assert value.result(WAIT_S) == 2
        with _client(cluster.address, "victim") as victim:
            testing.wait_until(lambda: _status(cluster)["by_name"]["victim"]["gangs_finished"] > 20, WAIT_S)
            victim.kill()
            (value,) = session.run(add_one, [value], 0)  # in the middle of it
            assert value.result(WAIT_S) == 3
        testing.wait_until(lambda: list(_status(cluster)["by_name"]) == ["survivor"], WAIT_S)
        testing.wait_until(lambda: _status(cluster)["hosts"][0]["live_buffers"] == 2, WAIT_S)
        assert _status(cluster)["islands"][0]["gangs_waiting"] == 0
        for _ in range(500):  # nobody's leftovers hold the queue
            (value,) = session.run(add_one, [value], 0)
        assert value.result(WAIT_S) == 503


def test_status_of_a_standing_cluster(serve: Any) -> None:
    cluster = serve(hosts=2, devices_per_host=2, policy="fair", memory_per_device="64MiB")
    with native.Session.connect(cluster.address, "one", 20.0, 2.5, 7) as session:
        add_one = session.register(ADD_ONE.encode(), "mlir", name="add_one")
        session.run(add_one, [session.put(np.float32(1), 0)], 0)[0].wait(WAIT_S)
        asked = json.loads(session.status_json(WAIT_S))
        assert [host["name"] for host in asked["hosts"]] == ["host0", "host1"]
        assert asked["hosts"][1]["first_device"] == 2 and asked["hosts"][1]["memory_limit_bytes"] == 2 * 64 * 2**20
        (client,) = asked["clients"]
        assert (client["name"], client["weight"], client["priority"]) == ("one", 2.5, 7)
        assert client["functions"] == 1 and client["gangs_finished"] == 1 and client["gangs_waiting"] == 0
        assert client["device_seconds"] > 0, "also computations that end before their launch returns take time"
        command = [*COMMAND, "status", "--address", cluster.address]
        printed = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=WAIT_S, check=True)
        assert [host["pid"] for host in json.loads(printed.stdout)["hosts"]] == [host["pid"] for host in asked["hosts"]]
        assert [shown["name"] for shown in json.loads(printed.stdout)["clients"]] == ["one"]
        table = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
        for text in ("policy fair", "host0", "2..3", "one (pid", "2.5", "alive"):
            assert text in table.stdout


def test_an_unknown_policy_is_refused_by_name(serve: Any) -> None:
    with pytest.raises(native.NativeError, match="'fifo', 'fair' or 'priority', got 'lottery'"):
        native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "policy": "lottery"})
    with pytest.raises(native.NativeError, match="queue_ms above 0"):
        native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "queue_ms": 0.0})
