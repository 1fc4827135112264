"""Programs lowered by ``ir``, run by real workers: the paper's figure 2, and moves between layouts and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

from ptpathways import core, ir
from ptpathways.launch import local
from ptpathways.sharding import Mesh, Sharding
from tests.proc.conftest import StartCluster
from tests.unit.ir_programs import (
    FIG2_DEVICES,
    PAIR,
    Case,
    cases,
    fig2,
    function,
    gathered,
    plainly,
    scattered,
)

WAIT_S = 60.0
CODE = {"a": ("multiply", 2.0), "b": ("add", 1.0), "c": ("divide", 2.0)}


def module(placed: ir.PlacedFunction) -> bytes:
    """StableHLO of a function, sharded as it says.

    ``a``, ``b``, ``c``: one operation with a constant. ``fN``: the sum of its arguments and N, and its negative.
    """
    function = placed.function
    kind = function.inputs[0]
    tensor = f"tensor<{'x'.join([*map(str, kind.shape), 'f32'])}>"
    lying = f'mhlo.sharding = "{kind.sharding.op_sharding(len(kind.shape))}"'
    operation, constant = CODE.get(function.name, ("add", float(function.name[1:] or 0)))
    lines = [f"%c = stablehlo.constant dense<{constant}> : {tensor}", f"%r0 = stablehlo.{operation} %x0, %c : {tensor}"]
    for number in range(1, len(function.inputs)):
        lines.append(f"%r{number} = stablehlo.add %r{number - 1}, %x{number} : {tensor}")
    made = f"%r{len(function.inputs) - 1}"
    results = [made, "%n"][: len(function.outputs)]
    lines.append(f"%n = stablehlo.negate {made} : {tensor}")
    lines.append(f"return {', '.join(results)} : {', '.join([tensor] * len(results))}")
    arguments = ", ".join(
        f"%x{number}: {tensor} {{{lying}{', jax.buffer_donor = true' if number in function.donated else ''}}}"
        for number in range(len(function.inputs))
    )
    return f"""module @{function.name} {{
      func.func public @main({arguments}) -> ({", ".join([f"{tensor} {{{lying}}}"] * len(results))}) {{
        {chr(10).join(lines)}
      }}
    }}""".encode()


def run(
    cluster: local.LocalCluster,
    program: ir.Program,
    devices: dict[str, list[int]],
    inputs: Sequence[npt.NDArray[Any]],
) -> list[npt.NDArray[Any]]:
    """Lowers, registers and runs a program once; the whole results."""
    session = cluster.session
    hosts = {
        host["first_device"] + index: host["host"] for host in session.hosts() for index in range(len(host["devices"]))
    }
    lowered = ir.lowered_for(program, devices, hosts)
    functions = [
        session.register(
            module(placed),
            "mlir",
            devices=placed.devices,
            name=placed.function.name,
            source=placed.function.source,
            outputs=[(kind.dtype, kind.shard_shape) for kind in placed.function.outputs],
        )
        for placed in lowered.functions
    ]
    registered = session.register_program(
        lowered.name, lowered.plans, lowered.inputs, lowered.outputs, functions=functions, source=lowered.source
    )
    registered.wait_ready(WAIT_S)
    arguments = [
        session.put_sharded(scattered(whole.astype(np.float32), node.outputs[0].type), port["devices"])
        for whole, node, port in zip(inputs, program.arguments, lowered.inputs, strict=True)
    ]
    results = session.run_program(registered, arguments, lowered.donated)
    return [
        gathered(result.fetch(WAIT_S), program.values[name].type)
        for result, name in zip(results, program.results, strict=True)
    ]


@pytest.mark.parametrize("hosts", [1, 3])
def test_fig2_of_the_paper(start_cluster: StartCluster, hosts: int) -> None:
    cluster = start_cluster(hosts=hosts, devices_per_host=6 // hosts)
    y, z = run(cluster, fig2(), FIG2_DEVICES, [np.array([1.0, 2.0])])
    assert (y.tolist(), z.tolist()) == ([3.0, 5.0], [2.0, 4.0])


def test_layouts_change_between_hosts_and_inside_one(start_cluster: StartCluster) -> None:
    """Rows on one host, columns on another, copies of rows on both axes there, and back; and an argument given back."""
    grid = Mesh((2, 2), ("data", "model"))
    shape = (4, 4)

    def kind(mesh: Mesh, *spec: str | tuple[str, ...] | None) -> ir.ValueType:
        return ir.ValueType("f32", shape, Sharding.from_spec(mesh, spec))

    builder = ir.ProgramBuilder("layouts")
    for name in ("left", "right"):
        builder.slice(name, grid)
    builder.slice("pair", PAIR)
    v = builder.argument("f32", shape, slice="left", sharding=kind(grid, ("data", "model")).sharding)
    (x,) = builder.compute(function("a", "right", kind=kind(grid, None, ("model", "data"))), [v])
    (y,) = builder.compute(function("b", "right", kind=kind(grid, "model")), [x])
    (z,) = builder.compute(function("c", "pair", kind=kind(PAIR)), [y])
    there = builder.transfer(z, "left", kind(grid, "data", "model").sharding)
    program = builder.build([there, x, v])
    whole = np.arange(16.0).reshape(shape)
    cluster = start_cluster(hosts=2, devices_per_host=4)
    devices = {"left": [0, 1, 2, 3], "right": [7, 6, 5, 4], "pair": [1, 2]}
    results = run(cluster, program, devices, [whole])
    for got, wanted in zip(results, [(whole * 2 + 1) / 2, whole * 2, whole], strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=3, devices_per_host=4)) as started:
        yield started


@given(case=cases(hosts=3, per_host=4))
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_program_computes_what_it_says(three_hosts: local.LocalCluster, case: Case) -> None:
    """Random graphs, shardings and slices, with donation: workers against plain numpy."""
    program, devices, _ = case
    wholes = [
        np.arange(144, dtype=np.float32).reshape(node.outputs[0].type.shape) + 1000 * index
        for index, node in enumerate(program.arguments)
    ]
    results = run(three_hosts, program, devices, wholes)
    for got, wanted in zip(results, plainly(program, wholes), strict=True):
        np.testing.assert_array_equal(got, wanted)
