"""Functions compiled for slices, of one host and of several, on real workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptpathways import core, native, sharding
from ptpathways.launch import local

TIMEOUT_S = 60.0
FloatArray = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def cluster() -> Iterator[local.LocalCluster]:
    """Three hosts of two devices; the first two are one island."""
    with local.start(core.Options(hosts=3, devices_per_host=2, islands=2)) as started:
        yield started


def stablehlo(body: str, inputs: Sequence[tuple[str, str]], output: tuple[str, str], partitions: int = 4) -> bytes:
    """A module whose ``main`` takes %a, %b, ... of (type, sharding) and returns %r."""
    arguments = ", ".join(
        f'%{name}: tensor<{kind}> {{mhlo.sharding = "{layout}"}}'
        for name, (kind, layout) in zip("abcd", inputs, strict=False)
    )
    kind, layout = output
    return f"""module @m attributes {{mhlo.num_partitions = {partitions} : i32}} {{
      func.func public @main({arguments}) -> (tensor<{kind}> {{mhlo.sharding = "{layout}"}}) {{
        {body}
        return %r : tensor<{kind}>
      }}
    }}""".encode()


def program_of(
    session: native.Session,
    function: native.Function,
    devices: Sequence[int],
    inputs: Sequence[Sequence[int]],
    output: Sequence[int],
    donated: Sequence[int] = (),
) -> native.Program:
    """One node: ``function`` on ``devices``, two to a host; ``inputs`` and ``output`` are shapes of a shard."""
    plans: list[Any] = []
    for host in sorted({device // 2 for device in devices}):
        local_shards = [i for i, device in enumerate(devices) if device // 2 == host]
        places = {"shards": local_shards, "devices": [devices[i] for i in local_shards]}
        slots = [{"dtype": "f32", "dims": list(dims), **places} for dims in (*inputs, output)]
        numbers = list(range(len(inputs)))
        step = {"kind": "execute", "node": 0, "function": 0, "arguments": numbers, "results": [len(inputs)]}
        step["donated"] = list(donated)
        plans.append(
            {
                "host": host,
                "channels": 0,
                "nodes": ["only"],
                "slots": slots,
                "inputs": numbers,
                "outputs": [len(inputs)],
                "steps": [step],
            }
        )
    ports: list[Any] = [{"dtype": "f32", "dims": list(dims), "devices": list(devices)} for dims in (*inputs, output)]
    return session.register_program(function.name, plans, ports[:-1], ports[-1:], functions=[function])


SPLIT = "{devices=[4]<=[4]}"
WHOLE = "{replicated}"
DOUBLE = "%r = stablehlo.add %a, %a : tensor<8xf32>"


@pytest.mark.parametrize("devices", [[0, 1, 2, 3], [3, 0, 2, 1]])
def test_a_slice_over_two_hosts_computes_each_shard_where_it_lies(
    cluster: local.LocalCluster, devices: list[int]
) -> None:
    session = cluster.session
    module = stablehlo(DOUBLE, [("8xf32", SPLIT)], ("8xf32", SPLIT))
    double = session.register(module, "mlir", devices=devices, name="double", outputs=[("f32", [2])])
    program = program_of(session, double, devices, [[2]], [2])
    value = session.put_sharded(list(np.arange(8, dtype=np.float32).reshape(4, 2)), devices)
    for _ in range(3):
        (value,) = session.run_program(program, [value])
    assert value.devices == devices
    np.testing.assert_array_equal(np.concatenate(value.fetch(TIMEOUT_S)), np.arange(8) * 8)
    scratch = list(Path(cluster.runtime_dir).glob("pw-dump*"))
    assert not scratch, "the files of partitioning are gone"


def test_shards_that_differ_by_their_number(cluster: local.LocalCluster) -> None:
    """A replicated argument and a split result: every shard takes its own part."""
    session = cluster.session
    devices = [0, 1, 2, 3]
    module = stablehlo(DOUBLE, [("8xf32", WHOLE)], ("8xf32", SPLIT))
    function = session.register(module, "mlir", devices=devices, name="take", outputs=[("f32", [2])])
    program = program_of(session, function, devices, [[8]], [2])
    whole = np.random.default_rng(1).random(8, dtype=np.float32)
    (result,) = session.run_program(program, [session.put_sharded([whole] * 4, devices)])
    np.testing.assert_array_equal(np.concatenate(result.fetch(TIMEOUT_S)), whole * 2)


def test_rows_times_a_replicated_matrix(cluster: local.LocalCluster) -> None:
    session = cluster.session
    devices = [2, 3, 0, 1]
    body = "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x16xf32>)"
    module = stablehlo(
        body + " -> tensor<64x16xf32>",
        [("64x32xf32", "{devices=[4,1]<=[4]}"), ("32x16xf32", WHOLE)],
        ("64x16xf32", "{devices=[4,1]<=[4]}"),
    )
    function = session.register(module, "mlir", devices=devices, name="rows", outputs=[("f32", [16, 16])])
    program = program_of(session, function, devices, [[16, 32], [32, 16]], [16, 16], donated=[0])
    generator = np.random.default_rng(2)
    rows, matrix = generator.random((64, 32), dtype=np.float32), generator.random((32, 16), dtype=np.float32)
    left = session.put_sharded(np.split(rows, 4), devices)
    right = session.put_sharded([matrix] * 4, devices)
    (result,) = session.run_program(program, [left, right], donated=[0])
    np.testing.assert_allclose(np.concatenate(result.fetch(TIMEOUT_S)), rows @ matrix, rtol=1e-5)
    np.testing.assert_array_equal(right.fetch(TIMEOUT_S)[3], matrix)


SUM = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
        %r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<8xf32>, tensor<f32>) -> tensor<f32>"""


def test_collectives_between_hosts_work(cluster: local.LocalCluster) -> None:
    session = cluster.session
    devices = [0, 1, 2, 3]
    module = stablehlo(SUM, [("8xf32", SPLIT)], ("f32", WHOLE))
    total = session.register(module, "mlir", devices=devices, name="total", source="train.py:7", outputs=[("f32", [])])
    program = program_of(session, total, devices, [[2]], [])
    shards = [np.array([shard, 10.0 * shard], np.float32) for shard in range(4)]
    (result,) = session.run_program(program, [session.put_sharded(shards, devices)])
    assert [float(value) for value in result.fetch(TIMEOUT_S)] == [66.0] * 4


def test_collectives_within_a_host_work(cluster: local.LocalCluster) -> None:
    session = cluster.session
    devices = [3, 2]
    module = stablehlo(SUM, [("8xf32", "{devices=[2]<=[2]}")], ("f32", WHOLE), partitions=2)
    total = session.register(module, "mlir", devices=devices, name="total", outputs=[("f32", [])])
    program = program_of(session, total, devices, [[4]], [])
    values = np.arange(8, dtype=np.float32)
    for _ in range(20):
        (result,) = session.run_program(program, [session.put_sharded(np.split(values, 2), devices)])
        assert [float(shard) for shard in result.fetch(TIMEOUT_S)] == [28.0, 28.0]


# --- an HLO module without layouts, as a traced function's, and annotate_hlo


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _weighted(rows: int, columns: int) -> bytes:
    """HloModuleProto of ``x * w + x`` for two f32[rows,columns]."""
    shape = b"".join([_field(2, 11), _field(3, rows), _field(3, columns), _field(5, _field(1, 1) + _field(1, 0))])

    def instruction(identifier: int, opcode: str, *operands: int, number: int = 0) -> bytes:
        fields = [_field(1, f"{opcode}.{identifier}"), _field(2, opcode), _field(3, shape), _field(9, number)]
        fields += [_field(35, identifier), *[_field(36, operand) for operand in operands]]
        return _field(2, b"".join(fields))

    program_shape = _field(
        4, b"".join([_field(1, shape), _field(1, shape), _field(2, shape), _field(3, "x"), _field(3, "w")])
    )
    instructions = [
        instruction(1, "parameter"),
        instruction(2, "parameter", number=1),
        instruction(3, "multiply", 1, 2),
        instruction(4, "add", 3, 1),
    ]
    entry = b"".join([_field(1, "main"), *instructions, program_shape, _field(5, 1), _field(6, 4)])
    module = [_field(1, "weighted"), _field(2, "main"), _field(3, entry), program_shape, _field(5, 1), _field(6, 1)]
    return b"".join(module)


def test_an_annotated_module_follows_its_shardings(cluster: local.LocalCluster) -> None:
    session = cluster.session
    mesh = sharding.Mesh((2, 2), ("data", "model"))
    layout = sharding.Sharding.from_spec(mesh, ("data", "model"))
    replicated = sharding.Sharding.replicated(mesh)
    module = native.annotate_hlo(
        _weighted(4, 6),
        [layout.op_sharding(2).to_proto(), replicated.op_sharding(2).to_proto()],
        [layout.op_sharding(2).to_proto()],
        donors=[0],
    )
    devices = [0, 1, 2, 3]
    function = session.register(module, "hlo", devices=devices, name="weighted", outputs=[("f32", [2, 3])])
    program = program_of(session, function, devices, [[2, 3], [4, 6]], [2, 3])
    x, w = np.random.default_rng(3).random((2, 4, 6), dtype=np.float32)

    def part(array: FloatArray, position: int) -> FloatArray:
        box = layout.box(array.shape, position)
        return array[tuple(slice(start, start + size) for start, size in zip(box.start, box.size, strict=True))]

    (result,) = session.run_program(
        program,
        [
            session.put_sharded([part(x, position) for position in range(4)], devices),
            session.put_sharded([w] * 4, devices),
        ],
    )
    for position, shard in enumerate(result.fetch(TIMEOUT_S)):
        np.testing.assert_allclose(shard, part(x * w + x, position), rtol=1e-6)


def test_annotating_says_what_is_wrong() -> None:
    with pytest.raises(native.NativeError, match="2 parameters") as caught:
        native.annotate_hlo(_weighted(2, 2), [None], [])
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(native.NativeError, match="number 5"):
        native.annotate_hlo(_weighted(2, 2), [], [], donors=[5])
    with pytest.raises(native.NativeError, match="HloModuleProto"):
        native.annotate_hlo(b"nonsense", [], [])


def test_cpu_hosts_of_several_islands_take_part_in_one_computation(cluster: local.LocalCluster) -> None:
    session = cluster.session
    assert [host["island"] for host in session.hosts()] == ["island0", "island0", "island1"]
    body = """%zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>"""
    module = stablehlo(body, [("8xf32", "{devices=[2]<=[2]}")], ("f32", "{replicated}"), partitions=2)
    total = session.register(module, "mlir", devices=[0, 4], name="total", outputs=[("f32", [])])
    program = program_of(session, total, [0, 4], [[4]], [])
    value = session.put_sharded([np.full(4, 1.0, np.float32), np.full(4, 10.0, np.float32)], [0, 4])
    (result,) = session.run_program(program, [value])
    assert [float(shard) for shard in result.fetch(TIMEOUT_S)] == [44.0, 44.0]
