"""Simulated clusters in real time: the real session and controller over devices that only keep time."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native, testing
from tests.sim import programs
from tests.sim.conftest import StartSimulated

TIMEOUT_S = 30.0


def scalars(session: native.Session, devices: list[int]) -> native.Buffer:
    return session.put_sharded([np.ones((), np.float32)] * len(devices), devices)


def test_a_run_takes_its_cost_and_gives_zeros(start_simulated: StartSimulated) -> None:
    cluster = start_simulated(hosts=2, devices_per_host=2, cost_us={"slow*": 20_000.0, "*": 5.0})
    session = cluster.session
    devices = [0, 1, 2, 3]
    slow = programs.register(session, devices, "slow_one", shape=[3, 2])
    value = session.put_sharded([np.ones((3, 2), np.float32)] * 4, devices)
    begin = time.monotonic()
    program = session.register_program(
        "p",
        [
            {
                "host": host,
                "channels": 0,
                "nodes": ["n"],
                "slots": [{"dtype": "f32", "dims": [3, 2], "shards": [a, a + 1], "devices": [a, a + 1]}] * 2,
                "inputs": [0],
                "outputs": [1],
                "steps": [
                    {"kind": "execute", "node": 0, "function": 0, "arguments": [0], "results": [1], "donated": []}
                ],
            }
            for host, a in ((0, 0), (1, 2))
        ],
        [{"dtype": "f32", "dims": [3, 2], "devices": devices}],
        [{"dtype": "f32", "dims": [3, 2], "devices": devices}],
        functions=[slow],
    )
    (result,) = session.run_program(program, [value])
    fetched = result.fetch(TIMEOUT_S)
    assert time.monotonic() - begin >= 0.02
    assert [part.shape for part in fetched] == [(3, 2)] * 4
    assert all((part == 0).all() for part in fetched)
    intervals = cluster.trace().intervals()
    assert [i.device for i in sorted(intervals, key=lambda i: i.device)] == devices
    assert all(i.end_us - i.start_us == pytest.approx(20_000) and (i.program, i.node) == ("p", "n") for i in intervals)
    assert len({round(i.start_us, 3) for i in intervals}) == 1, "a gang starts on all its devices at once"


def test_large_values_are_neither_uploaded_nor_sent_back(start_simulated: StartSimulated) -> None:
    cluster = start_simulated(hosts=1, devices_per_host=1)
    session = cluster.session
    buffer = session.put(np.ones(1_000_000, np.float32), 0)
    back = buffer.result(TIMEOUT_S)
    assert back.shape == (1_000_000,) and not back.any()
    assert cluster.hosts.stats()["bytes"] == 4_000_000
    del buffer
    session.put(np.float32(0), 0).result(TIMEOUT_S)
    testing.wait_until(lambda: cluster.hosts.stats()["bytes"] <= 4, TIMEOUT_S)  # the value's end travels another way


def test_a_program_over_512_hosts(start_simulated: StartSimulated) -> None:
    cluster = start_simulated(hosts=512, devices_per_host=4, cost_us=10.0)
    session = cluster.session
    devices = list(range(2048))
    add = programs.register(session, devices)
    program = programs.chain(session, add, devices, 16)
    program.wait_ready(TIMEOUT_S)
    value = scalars(session, devices)
    cluster.trace(clear=True)
    runs = 10
    latencies = []
    for _ in range(runs):
        begin = time.monotonic_ns()
        (result,) = session.run_program(program, [value])
        result.wait(TIMEOUT_S)
        latencies.append((cluster.hosts.stats()["last_enqueue_ns"] - begin) * 1e-6)
    stats = cluster.hosts.stats()
    assert stats["last_refusal"] == "" and stats["deadlocks"] == []
    intervals = cluster.trace().intervals()
    assert len(intervals) == runs * 16 * 2048
    assert statistics.median(latencies) < 1000, latencies
    print(f"16 nodes to 512 hosts, client call to last enqueue: p50 {statistics.median(latencies):.1f} ms")


def test_a_lost_host_fails_what_needs_it_and_nothing_else(start_simulated: StartSimulated) -> None:
    cluster = start_simulated(hosts=4, devices_per_host=1, cost_us=50_000.0)
    session = cluster.session
    wide, narrow = [0, 1, 2, 3], [0, 1]
    everywhere = programs.chain(session, programs.register(session, wide, "wide"), wide, 3)
    aside = programs.chain(session, programs.register(session, narrow, "narrow"), narrow, 3)
    (broken,) = session.run_program(everywhere, [scalars(session, wide)])
    (fine,) = session.run_program(aside, [scalars(session, narrow)])
    cluster.hosts.lose_host(3, "its power failed")
    with pytest.raises(native.NativeError, match="its power failed"):
        broken.wait(TIMEOUT_S)
    fine.wait(TIMEOUT_S)
    with pytest.raises(native.NativeError, match="gone already"):
        cluster.hosts.lose_host(3)


def test_memory_is_accounted(start_simulated: StartSimulated) -> None:
    cluster = start_simulated(hosts=1, devices_per_host=1, memory="1MiB")
    buffer = cluster.session.put(np.zeros(1_000_000, np.float32), 0)
    with pytest.raises(native.NativeError, match=r"1\.00 MiB"):
        buffer.wait(TIMEOUT_S)


def test_parallel_dispatch_beats_sequential(start_simulated: StartSimulated) -> None:
    count = 64
    cluster = start_simulated(hosts=count, devices_per_host=1, cost_us=5.0)
    session = cluster.session
    devices = list(range(count))
    functions = [programs.register(session, [device], f"stage{device}") for device in devices]
    whole = programs.stages(session, functions, devices)
    singles = [programs.chain(session, functions[i], [devices[i]], 1, f"stage{i}") for i in range(count)]
    for program in [whole, *singles]:
        program.wait_ready(TIMEOUT_S)
    value = session.put(np.float32(1.0), 0)
    inputs = [session.put(np.float32(1.0), device) for device in devices]

    def parallel() -> float:
        begin = time.perf_counter()
        (result,) = session.run_program(whole, [value])
        result.wait(TIMEOUT_S)
        return time.perf_counter() - begin

    def sequential() -> float:
        begin = time.perf_counter()
        for i in range(count):  # each stage is sent when the one before it has ended
            (result,) = session.run_program(singles[i], [inputs[i]])
            result.wait(TIMEOUT_S)
        return time.perf_counter() - begin

    pairs = [(parallel(), sequential()) for _ in range(15)]
    ratio = statistics.median(slow / fast for fast, slow in pairs)
    print(f"64 stages: parallel {statistics.median(p for p, _ in pairs) * 1e3:.2f} ms, sequential {ratio:.1f}x that")
    assert ratio >= 3


def test_a_trace_is_saved_for_viewers_and_as_a_picture(start_simulated: StartSimulated, tmp_path: Path) -> None:
    cluster = start_simulated(hosts=2, devices_per_host=2, cost_us=100.0)
    session = cluster.session
    other = cluster.connect("other")
    for client in (session, other):
        program = programs.chain(client, programs.register(client, [0, 1, 2, 3], "f<&>"), [0, 1, 2, 3], 4)
        (result,) = client.run_program(program, [scalars(client, [0, 1, 2, 3])])
        result.wait(TIMEOUT_S)
    trace = cluster.trace()
    assert len(trace) == 32 and trace.dropped == 0
    assert list(trace.busy_us([0]).values()) == pytest.approx([400.0, 400.0])
    trace.save(tmp_path / "t.json")
    events: list[dict[str, Any]] = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["cat"].startswith("client") for event in events) == 32
    trace.save(tmp_path / "t.svg")
    picture = (tmp_path / "t.svg").read_text()
    assert picture.startswith("<svg") and picture.count("client ") == 2 and "device 3" in picture
    with pytest.raises(core.InvalidOption, match=r"\.json or \.svg"):
        trace.save(tmp_path / "t.png")
    other.close()


def test_what_cannot_be_simulated_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(core.InvalidOption, match="islands must be an integer from 1 to 2, got 3"):
        core.Simulated(hosts=2, islands=3)
    with pytest.raises(core.InvalidOption, match=r"cost_us\['f'\] must be a number of at least 0, got -1"):
        core.Simulated(cost_us={"f": -1})
    with pytest.raises(core.InvalidOption, match="always, explicit, never"):
        core.Simulated(rendezvous="sometimes")
    with pytest.raises(core.InvalidOption, match="not both"):
        core.Options(address="tcp://a:1", simulated=core.Simulated())
    assert core.Options.from_environment({"PTPATHWAYS_ADDRESS": "tcp://a:1"}, simulated=core.Simulated()).embedded
    assert core.Simulated(cost_us={"a": 1.0}).default_cost_us == 10.0


def test_a_module_that_cannot_be_read_says_so(start_simulated: StartSimulated) -> None:
    session = start_simulated(hosts=1).session
    with pytest.raises(native.NativeError, match="@main"):
        session.register(b"module {}", "mlir", devices=[0], name="f")
