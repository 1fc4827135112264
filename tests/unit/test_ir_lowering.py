"""ir: transfers, placement and plans; plans are walked by a model of a cluster and compared with plain numpy."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from ptpathways import ir
from ptpathways.core import InvalidProgram
from ptpathways.sharding import Mesh, Sharding
from tests.unit.ir_programs import (
    FIG2_CODE,
    FIG2_DEVICES,
    PAIR,
    ROWS,
    Code,
    ModelCluster,
    cases,
    fig2,
    function,
    gathered,
    hosts_of,
    plainly,
    scattered,
)

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("per_host", [2, 3, 6])
def test_fig2_of_the_paper_on_one_two_and_three_hosts(per_host: int) -> None:
    hosts = hosts_of(6, per_host)
    lowered = ir.lowered_for(fig2(), FIG2_DEVICES, hosts)
    y, z = ModelCluster(lowered, hosts, FIG2_CODE).run([[np.array([1.0]), np.array([2.0])]])
    assert np.concatenate(y).tolist() == [3.0, 5.0]
    assert np.concatenate(z).tolist() == [2.0, 4.0]
    assert len(lowered.plans) == 6 // per_host


def test_fig2_stage_by_stage_is_as_written_down() -> None:
    """Rewrite the file with PTPATHWAYS_REWRITE_GOLDEN=1 and read the difference."""
    path = GOLDEN / "fig2.txt"
    text = ir.explain(fig2(), FIG2_DEVICES, hosts_of(6, 2))
    if os.environ.get("PTPATHWAYS_REWRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_hosts_agree_on_the_order_of_the_gangs_that_they_share() -> None:
    """A host's own nodes come between: what it numbers for itself says nothing to another host."""
    builder = ir.ProgramBuilder("f")
    for name in ("own", "both"):
        builder.slice(name, PAIR)
    (x,) = builder.compute(function("a", "own"), [builder.argument("f32", (2,))])
    (y,) = builder.compute(function("b", "both"), [x])
    (z,) = builder.compute(function("a", "own"), [y])
    program = builder.build(list(builder.compute(function("b", "both"), [z])))
    lowered = ir.lowered_for(program, {"own": [0, 1], "both": [1, 2]}, hosts_of(4, 2))
    gangs = [
        {
            step["gang"]: lowered.functions[step["function"]].function.name
            for step in plan["steps"]
            if step["kind"] == "execute"
        }
        for plan in lowered.plans
    ]
    assert [list(of_host.values()) for of_host in gangs] == [["a", "b", "a", "b"], ["b", "b"]]
    assert all(list(of_host) == sorted(of_host) for of_host in gangs)
    assert gangs[1].items() <= gangs[0].items()


def test_users_that_want_the_same_share_a_transfer() -> None:
    builder = ir.ProgramBuilder("f")
    for name in ("s0", "s1"):
        builder.slice(name, PAIR)
    (x,) = builder.compute(function("a", "s0"), [builder.argument("f32", (2,))])
    outs = [builder.compute(function(name, "s1"), [x])[0] for name in ("b", "c", "d")]
    program = ir.infer_transfers(builder.build(outs))
    assert [node.kind for node in program.nodes].count(ir.Kind.TRANSFER) == 1
    assert ir.infer_transfers(program) == program


def test_a_transfer_stands_directly_after_what_makes_its_value() -> None:
    kinds = [node.kind for node in ir.infer_transfers(fig2()).nodes]
    first = kinds.index(ir.Kind.TRANSFER)
    assert kinds[first - 1 : first + 2] == [ir.Kind.COMPUTE, ir.Kind.TRANSFER, ir.Kind.TRANSFER]


def test_a_long_way_of_transfers_is_followed() -> None:
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    value = builder.argument("f32", (2,), slice="s")
    for _ in range(2000):
        value = builder.transfer(value, "s", ROWS.sharding)
    program = ir.infer_transfers(builder.build([value]))
    (plan,) = ir.lower(ir.place(program, {"s": [0, 1]}, {0: 0, 1: 0})).plans
    # Copies to rows once; then it lies as it should.
    assert {step["kind"] for step in plan["steps"]} == {"send", "receive", "free"}
    assert plan["channels"] == 2


def _chain(length: int, mesh: Mesh, **given: Any) -> ir.Program:
    kind = ir.ValueType("f32", (mesh.size,), Sharding.from_spec(mesh, (mesh.axis_names,)))
    builder = ir.ProgramBuilder("chain")
    builder.slice("s", mesh)
    value = builder.argument("f32", kind.shape)
    for _ in range(length):
        (value,) = builder.compute(function("add", "s", kind=kind, **given), [value])
    return builder.build([value])


def test_a_chain_on_one_slice_moves_nothing() -> None:
    lowered = ir.lowered_for(_chain(4, PAIR), {"s": [0, 1]}, {0: 0, 1: 1})
    for plan in lowered.plans:
        assert [step["kind"] for step in plan["steps"]] == ["execute", "free"] * 3 + ["execute", "free"]
        assert plan["channels"] == 0
    assert [placed.devices for placed in lowered.functions] == [(0, 1)]


def test_slices_of_the_same_devices_share_slots() -> None:
    builder = ir.ProgramBuilder("f")
    for name in ("s0", "s1"):
        builder.slice(name, PAIR)
    (x,) = builder.compute(function("a", "s0"), [builder.argument("f32", (2,))])
    (y,) = builder.compute(function("b", "s1"), [x])
    program = builder.build([y])
    (plan,) = ir.lowered_for(program, {"s0": [0, 1], "s1": [0, 1]}, {0: 0, 1: 0}).plans
    assert [step["kind"] for step in plan["steps"]] == ["execute", "free", "execute", "free"]
    (plan,) = ir.lowered_for(program, {"s0": [0, 1], "s1": [1, 0]}, {0: 0, 1: 0}).plans
    assert [step["kind"] for step in plan["steps"]] == ["execute", "free", "copy", "copy", "free", "execute", "free"]


def test_dead_inputs_are_donated_and_others_are_not() -> None:
    (plan,) = ir.lowered_for(_chain(3, PAIR, donated=(0,)), {"s": [0, 1]}, {0: 0, 1: 0}).plans
    assert [step["donated"] for step in plan["steps"] if step["kind"] == "execute"] == [[0], [0], [0]]
    assert all(step["kind"] == "execute" for step in plan["steps"]), "what was taken over is not freed"

    two = ir.Function("add2", "s", (ROWS, ROWS), (ROWS,), donated=(0, 1))
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    builder.slice("t", PAIR)
    v = builder.argument("f32", (2,), slice="s", sharding=ROWS.sharding)
    (twice,) = builder.compute(two, [v, v])
    (again,) = builder.compute(two, [v, twice])
    (kept,) = builder.compute(two, [again, builder.argument("f32", (2,), slice="s", sharding=ROWS.sharding)])
    (last,) = builder.compute(two, [kept, again])
    (there,) = builder.compute(function("b", "t"), [last])
    (final,) = builder.compute(two, [last, kept])
    program = builder.build([kept, there, final])
    lowered = ir.lowered_for(program, {"s": [0, 1], "t": [2, 3]}, hosts_of(4, 2))
    donated = [step["donated"] for step in lowered.plans[0]["steps"] if step["kind"] == "execute"]
    assert donated == [
        [],  # the same value twice
        [0, 1],  # dead afterwards
        [1],  # the first is needed once more
        [1],  # the first is a result
        [],  # the first is being sent, the second a result
    ]


def test_what_a_run_gives_up_is_what_arguments_say() -> None:
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    first = builder.argument("f32", (2,), name="weights", donated=True)
    (x,) = builder.compute(function("a", "s", donated=(0,)), [first])
    lowered = ir.lowered_for(builder.build([x]), {"s": [0, 1]}, {0: 0, 1: 0})
    assert lowered.donated == (0,)


def test_results_have_memory_of_their_own() -> None:
    """An argument given back, and a value given back twice."""
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    v = builder.argument("f32", (2,))
    (x,) = builder.compute(function("a", "s"), [v])
    lowered = ir.lowered_for(builder.build([x, v, x]), {"s": [0, 1]}, {0: 0, 1: 0})
    (plan,) = lowered.plans
    assert len(set(plan["outputs"])) == 3 and plan["inputs"][0] not in plan["outputs"]
    results = ModelCluster(lowered, {0: 0, 1: 0}, FIG2_CODE).run([[np.array([1.0]), np.array([2.0])]])
    assert [np.concatenate(result).tolist() for result in results] == [[2.0, 4.0], [1.0, 2.0], [2.0, 4.0]]


def test_copies_on_one_host_are_received_once() -> None:
    """From one device to four copies on another host: one message, three local copies."""
    one, four = Mesh((1,), ("x",)), Mesh((4,), ("x",))
    builder = ir.ProgramBuilder("f")
    builder.slice("s", one)
    builder.slice("t", four)
    v = builder.argument("f32", (8,), slice="s")
    wide = ir.ValueType("f32", (8,), Sharding.replicated(four))
    (x,) = builder.compute(function("a", "t", kind=wide), [v])
    lowered = ir.lowered_for(builder.build([x]), {"s": [0], "t": [4, 5, 6, 7]}, hosts_of(8, 4))
    kinds = [step["kind"] for step in lowered.plans[1]["steps"]]
    assert kinds == ["receive", "copy", "copy", "copy", "execute", "free"]
    assert lowered.plans[0]["channels"] == 1


def test_parts_that_stay_on_a_host_are_sent_to_itself() -> None:
    """Rows to columns inside one host: pieces are parts of shards, which a copy cannot do."""
    rows = ir.ValueType("f32", (2, 2), Sharding.from_spec(PAIR, ("x", None)))
    columns = ir.ValueType("f32", (2, 2), Sharding.from_spec(PAIR, (None, "x")))
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    v = builder.argument("f32", (2, 2), slice="s", sharding=rows.sharding)
    (x,) = builder.compute(function("a", "s", kind=columns), [v])
    (plan,) = ir.lowered_for(builder.build([x]), {"s": [0, 1]}, {0: 0, 1: 0}).plans
    sends = [step for step in plan["steps"] if step["kind"] == "send"]
    assert len(sends) == 4 and all(step["host"] == 0 for step in sends)
    assert sends[1]["start"] == [0, 0] and sends[1]["size"] == [1, 1]


def test_a_tensor_without_elements_needs_no_channel() -> None:
    empty = ir.ValueType("f32", (0, 4), Sharding.from_spec(PAIR, ("x",)))
    builder = ir.ProgramBuilder("f")
    builder.slice("s", PAIR)
    builder.slice("t", PAIR)
    v = builder.argument("f32", (0, 4), slice="s", sharding=empty.sharding)
    (x,) = builder.compute(function("a", "t", kind=empty), [v])
    lowered = ir.lowered_for(builder.build([x]), {"s": [0, 1], "t": [2, 3]}, hosts_of(4, 2))
    (plan,) = lowered.plans
    assert plan["host"] == 1 and plan["inputs"] == [-1] and plan["channels"] == 0
    ((shard, _),) = ModelCluster(lowered, hosts_of(4, 2), FIG2_CODE).run([scattered(np.zeros((0, 4)), empty)])
    assert shard.shape == (0, 4)


@pytest.mark.parametrize(
    ("devices", "hosts", "message"),
    [
        ({"s0": [0, 1], "s1": [2, 3]}, hosts_of(6, 2), "slice 's2' is bound to no devices"),
        ({**FIG2_DEVICES, "s1": [2]}, hosts_of(6, 2), "needs 2 different devices"),
        ({**FIG2_DEVICES, "s1": [2, 9]}, hosts_of(6, 2), "no host has device 9"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(
    devices: dict[str, list[int]], hosts: dict[int, int], message: str
) -> None:
    with pytest.raises(InvalidProgram, match=message):
        ir.place(fig2(), devices, hosts)


def test_lowering_wants_transfers_and_devices() -> None:
    with pytest.raises(InvalidProgram, match="infer transfers first"):
        ir.lower(fig2())
    with pytest.raises(InvalidProgram, match="place it first"):
        ir.lower(ir.infer_transfers(fig2()))


def test_a_big_program_is_lowered_in_seconds() -> None:
    """128 nodes on 512 hosts of 4 devices."""
    program = _chain(128, Mesh((512, 4), ("host", "device")))
    start = time.process_time()
    lowered = ir.lowered_for(program, {"s": range(2048)}, hosts_of(2048, 4))
    assert time.process_time() - start < 5
    assert len(lowered.plans) == 512
    assert {step["kind"] for plan in lowered.plans for step in plan["steps"]} == {"execute", "free"}


# --- any program, any shardings, any hosts


@given(cases())
@settings(max_examples=150, deadline=None)
def test_plans_compute_what_the_program_says(
    case: tuple[ir.Program, dict[str, list[int]], dict[int, int]],
) -> None:
    program, devices, hosts = case
    wholes = [
        np.arange(math.prod(node.outputs[0].type.shape), dtype=float).reshape(node.outputs[0].type.shape) + 1000 * index
        for index, node in enumerate(program.arguments)
    ]
    wanted = plainly(program, wholes)
    moved = ir.infer_transfers(program)
    placed = ir.place(moved, devices, hosts)
    assert ir.parse(str(placed)) == placed and ir.from_json(ir.to_json(placed)) == placed
    lowered = ir.lower(placed)
    inputs = [scattered(whole, node.outputs[0].type) for whole, node in zip(wholes, program.arguments, strict=True)]
    for index, node in enumerate(placed.arguments):
        assert lowered.inputs[index]["devices"] == list(placed.slice(node.outputs[0].slice).devices)
    results = ModelCluster(lowered, hosts, Code()).run(inputs)
    for shards, name, whole in zip(results, program.results, wanted, strict=True):
        assert np.array_equal(gathered(shards, program.values[name].type), whole)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_segment_by_segment_gives_the_same(case: tuple[ir.Program, dict[str, list[int]], dict[int, int]]) -> None:
    program, devices, hosts = case
    wholes = [np.full(node.outputs[0].type.shape, float(index)) for index, node in enumerate(program.arguments)]
    wanted = plainly(program, wholes)
    values = {
        node.outputs[0].name: scattered(whole, node.outputs[0].type)
        for whole, node in zip(wholes, program.arguments, strict=True)
    }
    parts = ir.segments(program)
    for part in parts:
        assert part.program is not None
        lowered = ir.lowered_for(part.program, devices, hosts)
        results = ModelCluster(lowered, hosts, Code()).run([values[name] for name in part.inputs])
        for index in lowered.donated:
            del values[part.inputs[index]]
        values.update(zip(part.outputs, results, strict=True))
    for name, whole in zip(program.results, wanted, strict=True):
        assert np.array_equal(gathered(values[name], program.values[name].type), whole)
