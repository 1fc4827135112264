"""The text form of programs: one line per slice, function and node. ``parse`` reads it.

::

    program f at "fig2.py:9"
    slice s0 [x=2] = 0:0-1
    function a on s0 (f32[2]{x}) -> (f32[2]{x}) hlo 1b2c... donates 0 at "fig2.py:3"
    %v = argument : f32[2]{x} on s0
    %x = compute a(%v) : f32[2]{x} on s0 at "fig2.py:10"
    %x.s1 = transfer %x : f32[2]{x} on s1
    result %x.s1

A slice has its mesh and, once placed, its devices position by position as ``host:devices``. A type has element type,
global shape, and per dimension the mesh axes that split it (none: ``-``; all of them none: left out), after the mesh
where that is not the slice's. Lines that are empty or begin with ``#`` are comments.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import Function, Slice, ValueType, ranges
from ptpathways.sharding import Mesh


def to_text(program: Program) -> str:
    """The program as text; ``parse`` gives an equal one back."""
    lines = [f"program {program.name}{_at(program.source)}"]
    lines += [_slice(part) for part in program.slices]
    lines += [_function(program, function) for function in program.functions]
    lines += [_node(program, node) for node in program.nodes]
    return "\n".join(lines) + "\n"


def _slice(part: Slice) -> str:
    text = f"slice {part.name} [{part.mesh}]"
    if not part.placed:
        return text
    runs = itertools.groupby(zip(part.hosts, part.devices, strict=True), key=lambda pair: pair[0])
    return f"{text} = {' '.join(f'{host}:{ranges([device for _, device in run])}' for host, run in runs)}"


def _function(program: Program, function: Function) -> str:
    mesh = program.slice(function.slice).mesh
    text = f"function {function.name} on {function.slice} {_types(function.inputs, mesh)} -> "
    text += f"{_types(function.outputs, mesh)} {function.format}"
    if function.digest:
        text += f" {function.digest}"
    if function.donated:
        text += f" donates {','.join(map(str, function.donated))}"
    if not function.regular:
        text += " irregular"
    return text + _at(function.source)


def _types(types: Iterable[ValueType], mesh: Mesh) -> str:
    return f"({', '.join(kind.on(mesh) for kind in types)})"


def _node(program: Program, node: Node) -> str:
    inputs = ", ".join(f"%{name}" for name in node.inputs)
    if node.kind is Kind.RESULT:
        return f"result {inputs}".rstrip() + _at(node.source)
    text = f"{', '.join(map(str, node.outputs))} = " if node.outputs else ""
    text += str(node.kind)
    if node.kind in (Kind.COMPUTE, Kind.HOST_CALL):
        text += f" {node.function}({inputs})"
    elif inputs:
        text += f" {inputs}"
    if node.outputs:
        text += " : " + ", ".join(lying(program, value) for value in node.outputs)
    if node.donated:
        text += " donated"
    return text + _at(node.source)


def lying(program: Program, value: Value) -> str:
    """``f32[8,4]{data,-} on s0``: a value's type and slice."""
    return f"{value.type.on(program.slice(value.slice).mesh)} on {value.slice}"


def _at(source: str) -> str:
    return f" at {json.dumps(source)}" if source else ""
