"""ir: building programs, their rules, their text, JSON and picture, and cutting them into segments."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace

import pytest

from ptpathways import ir
from ptpathways.core import InvalidProgram, InvalidSharding
from ptpathways.sharding import Mesh, Sharding
from tests.unit.ir_programs import FIG2_DEVICES, PAIR, ROWS, fig2, function


def builder_of(*slices: str) -> ir.ProgramBuilder:
    builder = ir.ProgramBuilder("f", source="f.py:1")
    for name in slices:
        builder.slice(name, PAIR)
    return builder


# --- building


def test_an_argument_lies_where_its_first_user_wants_it() -> None:
    builder = builder_of("s0", "s1")
    v = builder.argument("f32", (2,))
    assert builder.type_of(v) is None and builder.slice_of(v) == ""
    builder.compute(function("b", "s1"), [v])
    assert builder.type_of(v) == ROWS and builder.slice_of(v) == "s1"
    builder.compute(function("a", "s0"), [v])
    assert builder.slice_of(v) == "s1"


def test_functions_of_one_name_are_told_apart_by_content() -> None:
    builder = builder_of("s0")
    v = builder.argument("f32", (2,))
    first = function("a", "s0")
    other = replace(first, digest="00")
    values = [builder.compute(code, [v])[0] for code in (first, other, first, replace(other))]
    program = builder.build(values)
    assert [code.name for code in program.functions] == ["a", "a.1"]
    assert [node.function for node in program.nodes if node.function] == ["a", "a.1", "a", "a.1"]
    assert [value.name for value in values] == ["a", "a.1", "a.2", "a.1.1"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, v: b.compute(function("a", "s9"), [v]), "does not know slice 's9'"),
        (lambda b, v: b.compute(function("a", "s0", "x.py:7"), [v, v]), r"call of a \(x.py:7\): takes 1 arguments"),
        (
            lambda b, v: b.compute(function("a", "s0"), [b.argument("f32", (4,))]),
            r"argument 0 must be f32\[2\], got f32\[4\] of %arg1",
        ),
        (lambda b, v: b.compute(function("a", "s0"), [builder_of("s0").argument("f32", (2,))]), "not a value of"),
        (lambda b, v: b.build([b.argument("f32", (2,), name="w")]), "argument %w of program f .* used by no function"),
        (lambda b, v: b.slice("s0", Mesh((4,), ("x",))), "another slice called 's0'"),
        (lambda b, v: b.transfer(v, "s9"), "does not know slice 's9'"),
        (lambda b, v: b.argument("f31", (2,), slice="s0"), "got 'f31'"),
    ],
)
def test_calls_that_cannot_be_are_refused(make: Callable[[ir.ProgramBuilder, ir.Handle], object], message: str) -> None:
    builder = builder_of("s0")
    v = builder.argument("f32", (2,))
    builder.compute(function("a", "s0"), [v])
    with pytest.raises(InvalidProgram, match=message):
        make(builder, v)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ir.Function("a b", "s", (), ()), InvalidProgram, "function's name"),
        (lambda: ir.Function("a", "s", (ROWS,), (ROWS,), donated=(1,)), InvalidProgram, "may take over its inputs 0"),
        (
            lambda: ir.Function(
                "a", "s", (ROWS,), (ir.ValueType("f32", (2,), Sharding.replicated(Mesh((3,), ("x",)))),)
            ),
            InvalidProgram,
            "different sizes",
        ),
        (lambda: ir.ValueType("f32", (3,), ROWS.sharding), InvalidSharding, "does not divide"),
        (lambda: ir.ValueType("f32", (-2,), ROWS.sharding), InvalidProgram, "not negative"),
        (lambda: ir.Slice("s", PAIR, (0,), (0,)), InvalidProgram, "needs 2 different devices"),
        (lambda: ir.Slice("s", PAIR, (0, 1), (0,)), InvalidProgram, "the host of each"),
        (lambda: ir.Program("a b", (), (), ()), InvalidProgram, "program's name"),
    ],
)
def test_values_that_cannot_be_are_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# --- rules


HEAD = """
program f at "f.py:1"
slice s [x=2]
slice t [x=4]
function a on s (f32[2]{x}) -> (f32[2]{x}) hlo at "f.py:3"
"""
BROKEN = {
    "a cycle, with its nodes in order": (
        """
        %v = argument : f32[2]{x} on s
        %x = compute a(%z) : f32[2]{x} on s at "f.py:10"
        %y = compute a(%x) : f32[2]{x} on s at "f.py:11"
        %z = transfer %y : f32[2] on s at "f.py:12"
        result %v
        """,
        r"cycle: a \(f.py:10\) -> a \(f.py:11\) -> transfer %y to s \(f.py:12\) -> a \(f.py:10\)",
    ),
    "a value nobody makes": ("%x = compute a(%v) : f32[2]{x} on s\nresult %x", r"a uses %v, which no node makes"),
    "a value made twice": (
        "%v = argument : f32[2]{x} on s\n%v = compute a(%v) : f32[2]{x} on s\nresult %v",
        "a makes %v, which another node makes",
    ),
    "no result": ("%v = argument : f32[2]{x} on s", "one result node"),
    "two results": ("%v = argument : f32[2]{x} on s\nresult %v\nresult %v", "one result node"),
    "no such function": ("%v = argument : f32[2]{x} on s\n%x = compute b(%v) : f32[2] on s\nresult %x", "no function"),
    "no such slice": ("%v = argument : f32[2]{x} on u\nresult %v", "line 6: there is no slice 'u'"),
    "another slice's size": (
        "%v = argument : f32[4]{x=2: x} on t\nresult %v",
        r"makes %v on slice 't' of 4 devices, lying on 2",
    ),
    "a wrong argument": (
        "%v = argument : f32[4]{x} on s\n%x = compute a(%v) : f32[2]{x} on s\nresult %x",
        r"program f \(f.py:1\): a argument 0 must be f32\[2\], got f32\[4\] %v",
    ),
    "too many arguments": (
        "%v = argument : f32[2]{x} on s\n%x = compute a(%v, %v) : f32[2]{x} on s\nresult %x",
        "takes 1 arguments, got 2",
    ),
    "a wrong result": (
        "%v = argument : f32[2]{x} on s\n%x = compute a(%v) : f32[2] on s\nresult %x",
        r"gives f32\[2\] on s as {x=2: x}, got %x",
    ),
    "a transfer that computes": (
        "%v = argument : f32[2]{x} on s\n%x = transfer %v : f32[4] on s\nresult %x",
        "keeps the tensor",
    ),
    "a regular function called by the host": (
        "%v = argument : f32[2]{x} on s\n%x = host_call a(%v) : f32[2]{x} on s\nresult %x",
        "an irregular function is a host call, and only that",
    ),
    "an argument with inputs": (
        "%v = argument : f32[2]{x} on s\n%w = argument %v : f32[2]{x} on s\nresult %w",
        "must have 0 inputs, got 1",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(case: str) -> None:
    nodes, message = BROKEN[case]
    with pytest.raises(InvalidProgram, match=message):
        ir.parse(HEAD + nodes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slices": (ir.Slice("s", PAIR), ir.Slice("s", PAIR))}, "two slices called s"),
        (
            {"slices": (ir.Slice("s", PAIR, (0, 1), (0, 0)), ir.Slice("t", PAIR, (1, 2), (1, 1)))},
            "device 1 of slice 't' is said to be on host 1 and on host 0",
        ),
        ({"functions": (function("a", "s"), function("a", "s"))}, "two functions called a"),
        (
            {"functions": (function("a", "s", kind=ir.ValueType("f32", (), Sharding.replicated(Mesh((3,), ("x",))))),)},
            "is for slice 's' of 2 devices, but",
        ),
    ],
)
def test_a_broken_rule_of_the_whole_is_named(change: dict[str, tuple[object, ...]], message: str) -> None:
    program = ir.parse("program f\nslice s [x=2]\nresult")
    with pytest.raises(InvalidProgram, match=message):
        ir.verify(replace(program, **change))  # type: ignore[arg-type]


def test_nodes_may_come_in_any_order() -> None:
    program = ir.parse(
        HEAD + "result %y\n%y = compute a(%x) : f32[2]{x} on s\n%x = compute a(%v) : f32[2]{x} on s\n"
        "%v = argument : f32[2]{x} on s\n%w = argument : f32[] on t"
    )
    assert [str(node.kind) for node in program.nodes] == ["argument", "compute", "compute", "argument", "result"]


# --- text and JSON


def everything() -> ir.Program:
    """A program that uses every part of the text form."""
    grid = Mesh((2, 2), ("data", "model"))
    builder = ir.ProgramBuilder("every.thing-1", source='a "file" name.py:3')
    builder.slice("grid", grid, [4, 5, 6, 8], [1, 1, 1, 2])
    builder.slice("s", PAIR, [0, 1], [0, 0])
    one = ir.ValueType("bf16", (8, 4, 2), Sharding.from_spec(grid, (("model", "data"), None)))
    flat = ir.ValueType("bf16", (8, 4, 2), Sharding.from_spec(Mesh((4,), ("all",)), (None, "all")))
    scalar = ir.ValueType("pred", (), Sharding.replicated(grid))
    step = ir.Function("step", "grid", (one, flat), (flat, scalar), "m.py:1", "mlir", "0a1b", True, (0, 1))
    log = ir.Function("log", "grid", (scalar,), (), "m.py:2", "python", regular=False)
    v = builder.argument("bf16", (8, 4, 2), name="v", donated=True, source="m.py:5")
    w = builder.argument("bf16", (8, 4, 2), slice="s")
    new, loss = builder.compute(step, [v, w], names=["new", "loss"])
    builder.compute(log, [loss])
    moved = builder.transfer(new, "s", source="m.py:9")
    return builder.build([moved, loss, w])


@pytest.mark.parametrize("make", [fig2, everything, lambda: ir.infer_transfers(everything())])
def test_text_and_json_come_back(make: Callable[[], ir.Program]) -> None:
    program = make()
    assert ir.parse(str(program)) == program
    assert ir.from_json(ir.to_json(program)) == program
    assert ir.parse("# a comment\n\n" + str(program).replace("\n", "  \n  ")) == program


def test_the_text_form() -> None:
    assert str(everything()).splitlines() == [
        r'program every.thing-1 at "a \"file\" name.py:3"',
        "slice grid [data=2,model=2] = 1:4-6 2:8",
        "slice s [x=2] = 0:0-1",
        "function step on grid (bf16[8,4,2]{model+data,-,-}, bf16[8,4,2]{all=4: -,all,-}) -> "
        '(bf16[8,4,2]{all=4: -,all,-}, pred[]) mlir 0a1b donates 0,1 at "m.py:1"',
        'function log on grid (pred[]) -> () python irregular at "m.py:2"',
        '%v = argument : bf16[8,4,2]{model+data,-,-} on grid donated at "m.py:5"',
        "%arg1 = argument : bf16[8,4,2] on s",
        '%new, %loss = compute step(%v, %arg1) : bf16[8,4,2]{all=4: -,all,-} on grid, pred[] on grid at "m.py:1"',
        'host_call log(%loss) at "m.py:2"',
        '%new.s = transfer %new : bf16[8,4,2] on s at "m.py:9"',
        "result %new.s, %loss, %arg1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty text"),
        ("slice s [x=2]", "line 1: .* comes first"),
        ("program f\nprogram g", "line 2: .* comes first"),
        ("program f\nslice s [x]", "line 2: a mesh reads like"),
        ("program f\nslice s [x=2] = 1", "line 2: devices of a slice read like"),
        ("program f\nslice s [x=2] = 0:0-", "line 2: numbers read like"),
        ("program f\nslice s [x=2] = 0:0,1,2", "line 2: slice 's' .* needs 2 different"),
        ("program f\nfunction a", "line 2: expected a function"),
        ("program f\n%x = wonder", "line 2: expected a node"),
        ("program f\n%x = compute %y", "line 2: a compute node needs a function"),
        ("program f\nresult x", "line 2: expected a node"),
        ("program f\nslice s [x=2]\n%x = argument", "line 3: 1 values need as many types"),
        ("program f\nslice s [x=2]\n%x = argument : f32[2] at s", "line 3: a type reads like"),
        ("program f\nslice s [x=2]\n%x = argument : f32[3]{x} on s", "line 3: dimension 0 of shape"),
        ("program f\nslice s [x=2]\n%x = argument : f32[3]{y} on s", "line 3: mesh .* has no axis 'y'"),
        ("program f\nslice s [x=2]\nfunction a on s (f32) -> () hlo", "line 3: a type reads like"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        ir.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no program in JSON"),
        ("[]", "of format"),
        (json.dumps({"format": "ptpathways.program", "version": 99}), "version 1 .*, got 99"),
        (json.dumps({"format": "ptpathways.program", "version": 1}), "KeyError: 'name'"),
    ],
)
def test_json_of_something_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        ir.from_json(text)


# --- pictures and stages


def test_the_picture_is_well_formed_and_always_the_same() -> None:
    for program in (fig2(), ir.infer_transfers(everything())):
        drawn = ir.to_svg(program)
        assert drawn == ir.to_svg(ir.parse(str(program)))
        root = ElementTree.fromstring(drawn)
        texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
        for part in program.slices:
            assert any(text.startswith(f"{part.name} [{part.mesh}]") for text in texts)
        for code in program.functions:
            assert any(code.name in text for text in texts)
        width = float(root.attrib["width"])
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(box.get("x", 0)) >= 0 and float(box.get("x", 0)) + float(box.get("width", 0)) <= width


def test_nodes_of_the_picture_do_not_overlap() -> None:
    builder = builder_of("s0")
    v = builder.argument("f32", (2,))
    many = [builder.compute(function(f"stage{number}", "s0", f"f.py:{number}"), [v])[0] for number in range(9)]
    root = ElementTree.fromstring(ir.to_svg(builder.build(many)))
    boxes = [
        tuple(float(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
    ][1:]  # the first is the page
    for i, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[i + 1 :]:
            apart = x + width <= other_x or other_x + other_width <= x
            assert apart or y + height <= other_y or other_y + other_height <= y
    assert "and 4 more" in ir.to_svg(builder.build(many))


def test_explain_shows_as_many_stages_as_there_are() -> None:
    assert ir.explain(fig2()).count("===") == 2 * 2
    text = ir.explain(fig2(), FIG2_DEVICES, {device: device // 2 for device in range(6)}, hosts_max=1)
    assert text.count("===") == 2 * 4 and "and 2 more hosts" in text
    assert "the client runs log (m.py:2) on %loss" in ir.explain(everything())


# --- segments


def with_host_calls() -> ir.Program:
    """a -> pick (irregular) -> b; c beside them; the result of b and of c."""
    builder = builder_of("s0", "s1")
    pick = ir.Function("pick", "s0", (ROWS,), (ROWS,), regular=False)
    v = builder.argument("f32", (2,), name="v")
    (x,) = builder.compute(function("a", "s0"), [v], names=["x"])
    (picked,) = builder.compute(pick, [x], names=["picked"])
    (y,) = builder.compute(function("b", "s1"), [picked], names=["y"])
    (z,) = builder.compute(function("c", "s1"), [x], names=["z"])
    moved = builder.transfer(picked, "s1", name="moved")
    return builder.build([y, z, moved])


def test_a_program_is_split_at_its_host_calls_only() -> None:
    first, call, second, moved = ir.split(with_host_calls())
    assert first.program is not None and second.program is not None and moved.program is not None
    assert (first.inputs, first.outputs) == (("v",), ("x", "z"))
    assert call.host_call is not None and call.host_call.function == "pick"
    assert (call.inputs, call.outputs) == (("x",), ("picked",))
    assert (second.inputs, second.outputs) == (("picked",), ("y",))
    assert (moved.inputs, moved.outputs) == (("picked",), ("moved",))
    assert [node.kind for node in moved.program.nodes] == [ir.Kind.ARGUMENT, ir.Kind.TRANSFER, ir.Kind.RESULT]
    with pytest.raises(InvalidProgram, match="pick is irregular"):
        ir.lower(ir.infer_transfers(with_host_calls()))


def test_a_regular_program_is_one_segment() -> None:
    (whole,) = ir.split(fig2())
    assert whole.program is not None
    assert whole.program.nodes == ir.infer_transfers(fig2()).nodes
    assert whole.outputs == fig2().results


def test_segments_are_one_node_each_and_end_the_life_of_values() -> None:
    parts = ir.segments(fig2())
    assert [part.inputs for part in parts] == [("v",), ("x",), ("x",), ("c",)]
    donated = []
    for part in parts:
        assert part.program is not None
        assert sum(node.kind is ir.Kind.COMPUTE for node in part.program.nodes) == 1
        donated.append(part.program.arguments[0].donated)
    assert donated == [False, False, True, True], "v is the caller's, x is needed again by the third"
