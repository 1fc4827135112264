"""Recorded steps as programs of virtual slices: copies between them, and what a program cannot say."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ptpathways import core, ir
from ptpathways.frontend.capture import _compile_for
from ptpathways.frontend.plans._wiring import Op, Result, State, Type, Wiring
from ptpathways.sharding import Mesh, Tiling
from tests.scenarios import needs_native

pytestmark = needs_native

SLICES = {0: ("whole", Mesh((4,), ("data",))), 1: ("one", Mesh((1,), ("x",)))}
ROWS: Tiling = ((4, 1), (0, 1, 2, 3))


def laid(dims: tuple[int, ...], device: int, tiling: Tiling | None = None) -> Type:
    """A tensor f32 on one of the slices."""
    parts = tiling[0] if tiling else (1,) * len(dims)
    shards = tuple(-(-size // count) for size, count in zip(dims, parts, strict=True))
    return Type("f32", dims, device, (0, 1, 2, 3) if device == 0 else (4,), shards, tiling)


def moved(source: Type, target: Type) -> ir.Program:
    """The program of a step that copies a tensor to where another one lies."""
    op = Op("a copy", -1, -1, (State("model['a'].weight"),), (source,), (target,), (7,), (8,))
    wiring = Wiring((op,), {"copies[0]": Result(0, 0)}, ())
    return _compile_for._Graph(wiring, [], SLICES.__getitem__, "step", "train.py:3", {}).go().program


def test_a_copy_is_a_transfer_between_slices() -> None:
    program = moved(laid((8, 6), 1), laid((8, 6), 0, ROWS))
    (argument,) = program.arguments
    assert (argument.outputs[0].name, argument.outputs[0].slice, argument.donated) == ("model.a.weight", "one", False)
    (value,) = (program.values[name] for name in program.results)
    assert (value.name, value.slice) == ("new.copies.0", "whole")
    assert value.type.on(SLICES[0][1]) == "f32[8,6]{data,-}"
    assert [node.kind for node in program.nodes] == [ir.Kind.ARGUMENT, ir.Kind.TRANSFER, ir.Kind.RESULT]


def test_a_layout_over_another_mesh_of_the_devices_is_said_with_that() -> None:
    halves: Tiling = ((2, 1), (0, 0, 1, 1))
    program = moved(laid((8, 6), 1), laid((8, 6), 0, halves))
    assert program.values[program.results[0]].type.shard_shape == (4, 6)


def test_parts_with_padding_are_no_copies() -> None:
    with pytest.raises(core.InvalidProgram, match=r"f32\[9, 6\] that the devices of its slice do not divide evenly"):
        moved(laid((9, 6), 1), laid((9, 6), 0, ROWS))


def test_a_layout_that_no_mesh_says_is_refused() -> None:
    mixed: Tiling = ((4, 1), (0, 2, 3, 1))
    with pytest.raises(core.InvalidProgram, match=r"f32\[8, 6\] that lies on slice whole \[data=4\] in a way"):
        moved(laid((8, 6), 1), laid((8, 6), 0, mixed))
