"""Programs on real workers, as plans written by hand: what the passes of ``ptpathways.ir`` give is data like this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ptpathways import core, native
from ptpathways.launch import local

TIMEOUT_S = 30.0


def module(body: str, *types: str) -> bytes:
    """A StableHLO module whose ``main`` takes arguments of ``types`` named %a, %b and returns %r of the first type."""
    arguments = ", ".join(f"%{name}: tensor<{kind}>" for name, kind in zip("abcd", types, strict=False))
    return f"""module @m {{
      func.func public @main({arguments}) -> tensor<{types[0]}> {{
        {body}
        return %r : tensor<{types[0]}>
      }}
    }}""".encode()


DOUBLE = "%r = stablehlo.add %a, %a : tensor<{0}>"
ADD = "%r = stablehlo.add %a, %b : tensor<{0}>"


@pytest.fixture(scope="module")
def cluster() -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=2, devices_per_host=2)) as started:
        yield started


def function(session: native.Session, body: str, kind: str, arguments: int = 1) -> native.Function:
    text = module(body.format(kind), *[kind] * arguments)
    dims = [int(part) for part in kind.split("x")[:-1]]
    return session.register(text, "mlir", name=body.split()[2], outputs=[("f32", dims)])


def slot(device: int, dims: list[int], shards: list[int] | None = None, devices: list[int] | None = None) -> Any:
    return {"dtype": "f32", "dims": dims, "shards": shards or [0], "devices": devices or [device]}


def plan(host: int, slots: list[Any], inputs: list[int], outputs: list[int], *steps: Any, channels: int = 0) -> Any:
    return {
        "host": host,
        "channels": channels,
        "nodes": ["first", "second", "third"],
        "slots": slots,
        "inputs": inputs,
        "outputs": outputs,
        "steps": list(steps),
    }


def execute(index: int, arguments: list[int], results: list[int], donated: tuple[int, ...] = (), node: int = 0) -> Any:
    return {
        "kind": "execute",
        "node": node,
        "function": index,
        "arguments": arguments,
        "results": results,
        "donated": list(donated),
    }


def port(dims: list[int], *devices: int) -> Any:
    return {"dtype": "f32", "dims": dims, "devices": list(devices)}


def test_a_chain_on_one_host_is_one_message(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    length = 20
    steps: list[Any] = [execute(0, [i], [i + 1], donated=(0,) if i else ()) for i in range(length)]
    chain = session.register_program(
        "chain",
        [plan(0, [slot(0, [4])] * (length + 1), [0], [length], *steps)],
        [port([4], 0)],
        [port([4], 0)],
        functions=[double],
    )
    before = session.transfer_stats()["runs"]
    argument = session.put(np.arange(4, dtype=np.float32), 0)
    (result,) = session.run_program(chain, [argument])
    np.testing.assert_array_equal(result.result(TIMEOUT_S), np.arange(4, dtype=np.float32) * 2**length)
    assert session.transfer_stats()["runs"] == before + 1
    # The argument was not given up, so it is still there.
    np.testing.assert_array_equal(argument.result(TIMEOUT_S), np.arange(4, dtype=np.float32))


def test_a_value_travels_between_hosts_and_back(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double, add = function(session, DOUBLE, "1000x1000xf32"), function(session, ADD, "1000x1000xf32", 2)
    dims = [1000, 1000]
    here, there = [slot(1, dims)] * 3, [slot(2, dims)] * 2
    program = session.register_program(
        "there and back",
        [
            plan(
                0,
                here,
                [0],
                [2],
                {"kind": "send", "node": 0, "slot": 0, "shard": 0, "channel": 0, "host": 1},
                {"kind": "receive", "node": 1, "slot": 1, "shard": 0, "pieces": [{"channel": 1, "host": 1}]},
                execute(1, [0, 1], [2], donated=(1,), node=2),
                channels=2,
            ),
            plan(
                1,
                there,
                [-1],
                [-1],
                {"kind": "receive", "node": 0, "slot": 0, "shard": 0, "pieces": [{"channel": 0, "host": 0}]},
                execute(0, [0], [1], donated=(0,), node=1),
                {"kind": "send", "node": 1, "slot": 1, "shard": 0, "channel": 1, "host": 0},
                channels=2,
            ),
        ],
        [port(dims, 1)],
        [port(dims, 1)],
        functions=[double, add],
    )
    values = np.random.default_rng(0).random(dims, dtype=np.float32)
    argument = session.put(values, 1)
    fetched = session.transfer_stats()["bytes_fetched"]
    results = [session.run_program(program, [argument])[0] for _ in range(5)]
    for result in results:
        np.testing.assert_allclose(result.result(TIMEOUT_S), values * 3, rtol=1e-6)
    assert session.transfer_stats()["bytes_fetched"] == fetched + 5 * values.nbytes, "only the results come here"


def test_a_loop_over_hosts_runs_ahead(cluster: local.LocalCluster) -> None:
    """More runs than the window holds, each on both hosts and on what the one before gave."""
    session = cluster.session
    double = function(session, ADD, "4xf32", 2)
    plans = [plan(host, [slot(2 * host, [4], [host])] * 2, [0], [1], execute(0, [0, 0], [1])) for host in (0, 1)]
    program = session.register_program("loop", plans, [port([4], 0, 2)], [port([4], 0, 2)], functions=[double])
    value = session.put_sharded([np.ones(4, np.float32), np.full(4, 0.5, np.float32)], [0, 2])
    for turn in range(600):
        (value,) = session.run_program(program, [value])
        if turn % 100 == 99:  # before it overflows
            for shard, start in zip(value.fetch(TIMEOUT_S), (1.0, 0.5), strict=True):
                np.testing.assert_array_equal(shard, np.full(4, start * 2.0**100, np.float32))
            value = session.put_sharded([np.ones(4, np.float32), np.full(4, 0.5, np.float32)], [0, 2])
    session.drain(TIMEOUT_S)


def test_layouts_change_piece_by_piece(cluster: local.LocalCluster) -> None:
    """Rows on devices 0 and 2 become columns on devices 1 and 3: every target needs a piece of either host."""
    session = cluster.session
    row, column = [2, 6], [4, 3]

    def send(shard_of: int, columns: int, channel: int, host: int) -> Any:
        return {
            "kind": "send",
            "node": 0,
            "slot": 0,
            "shard": 0,
            "channel": channel,
            "host": host,
            "start": [0, columns],
            "size": [2, 3],
        }

    def pieces(first: int) -> Any:
        return [
            {"channel": first, "host": 0, "start": [0, 0], "size": [2, 3]},
            {"channel": first + 1, "host": 1, "start": [2, 0], "size": [2, 3]},
        ]

    plans = [
        plan(
            host,
            [slot(0, row, [host], [2 * host]), slot(0, column, [host], [2 * host + 1])],
            [0],
            [1],
            send(0, 0, host, 0),
            send(0, 3, 2 + host, 1),
            {"kind": "receive", "node": 1, "slot": 1, "shard": 0, "pieces": pieces(2 * host)},
            channels=4,
        )
        for host in (0, 1)
    ]
    program = session.register_program("turn", plans, [port(row, 0, 2)], [port(column, 1, 3)], functions=[])
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    argument = session.put_sharded([whole[:2], whole[2:]], [0, 2])
    (result,) = session.run_program(program, [argument])
    assert result.devices == [1, 3]
    left, right = result.fetch(TIMEOUT_S)
    np.testing.assert_array_equal(left, whole[:, :3])
    np.testing.assert_array_equal(right, whole[:, 3:])
    np.testing.assert_array_equal(result.shard(1).result(TIMEOUT_S), whole[:, 3:])


def test_a_copy_on_one_device_shares_its_memory_safely(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    copy = {"kind": "copy", "node": 0, "from_slot": 0, "from_shard": 0, "slot": 1, "shard": 0}
    away = {"kind": "copy", "node": 0, "from_slot": 0, "from_shard": 0, "slot": 2, "shard": 0}
    program = session.register_program(
        "copies",
        [
            plan(
                0,
                [slot(0, [4]), slot(0, [4]), slot(1, [4]), slot(0, [4])],
                [0],
                [0, 2, 3],
                copy,
                away,
                execute(0, [1], [3], donated=(0,)),
            )
        ],
        [port([4], 0)],
        [port([4], 0), port([4], 1), port([4], 0)],
        functions=[double],
    )
    value = np.arange(4, dtype=np.float32)
    original, moved, doubled = session.run_program(program, [session.put(value, 0)])
    np.testing.assert_array_equal(doubled.result(TIMEOUT_S), value * 2)
    np.testing.assert_array_equal(original.result(TIMEOUT_S), value)
    np.testing.assert_array_equal(moved.result(TIMEOUT_S), value)


def test_donated_arguments_are_gone(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    program = session.register_program(
        "p",
        [plan(0, [slot(0, [4])] * 2, [0], [1], execute(0, [0], [1], donated=(0,)))],
        [port([4], 0)],
        [port([4], 0)],
        functions=[double],
    )
    argument = session.put(np.ones(4, dtype=np.float32), 0)
    (result,) = session.run_program(program, [argument], [0])
    np.testing.assert_array_equal(result.result(TIMEOUT_S), np.full(4, 2, dtype=np.float32))
    assert argument.given_up
    with pytest.raises(native.NativeError, match=r"argument 0: a value f32\[4\] was given up \(donated\)"):
        session.run_program(program, [argument])


def test_wrong_arguments_are_named(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    program = session.register_program(
        "p",
        [plan(0, [slot(0, [4])] * 2, [0], [1], execute(0, [0], [1]))],
        [port([4], 0)],
        [port([4], 0)],
        functions=[double],
        source="here.py:7",
    )
    with pytest.raises(native.NativeError, match=r"program 'p' \(here.py:7\): expected 1 arguments, got 2"):
        session.run_program(program, [session.put(np.ones(4, np.float32), 0)] * 2)
    with pytest.raises(native.NativeError, match=r"expected shards of f32\[4\], got f32\[5\]"):
        session.run_program(program, [session.put(np.ones(5, np.float32), 0)])
    with pytest.raises(native.NativeError, match="on other devices"):
        session.run_program(program, [session.put(np.ones(4, np.float32), 1)])


def test_a_plan_that_cannot_run_says_why(cluster: local.LocalCluster) -> None:
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    bad = session.register_program(
        "bad",
        [plan(0, [slot(0, [5])] * 2, [0], [1], execute(0, [0], [1]))],
        [port([5], 0)],
        [port([5], 0)],
        functions=[double],
    )
    with pytest.raises(native.NativeError, match=r"node 'first' of program 'bad'.*expected result 0 to be f32\[4\]"):
        bad.wait_ready(TIMEOUT_S)
    (result,) = session.run_program(bad, [session.put(np.ones(5, np.float32), 0)])
    with pytest.raises(native.NativeError, match="expected result 0"):
        result.result(TIMEOUT_S)


def test_an_error_crosses_hosts_with_its_cause(cluster: local.LocalCluster) -> None:
    """An argument that was never put poisons what depends on it on the other host; the cause names the first host."""
    session = cluster.session
    double = function(session, DOUBLE, "4xf32")
    dims = [4]
    program = session.register_program(
        "p",
        [
            plan(
                0,
                [slot(0, dims)] * 2,
                [0],
                [-1],
                execute(0, [0], [1]),
                {"kind": "send", "node": 0, "slot": 1, "shard": 0, "channel": 0, "host": 1},
                channels=1,
            ),
            plan(
                1,
                [slot(2, dims)] * 2,
                [-1],
                [1],
                {"kind": "receive", "node": 1, "slot": 0, "shard": 0, "pieces": [{"channel": 0, "host": 0}]},
                execute(0, [0], [1], node=1),
                channels=1,
            ),
        ],
        [port(dims, 0)],
        [port(dims, 2)],
        functions=[double],
    )
    failing = session.register(module("%r = stablehlo.add %a, %a : tensor<4xf32>", "4xf32"), "mlir", name="f")
    (wrong,) = session.run(failing, [session.put(np.ones(3, np.float32), 0)], 0)
    (result,) = session.run_program(program, [wrong])
    with pytest.raises(native.NativeError, match=r"host 'host0'.*function 'f'"):
        result.result(TIMEOUT_S)
