"""The JSON form of programs, for saved bundles. Shardings are in their text form."""

from __future__ import annotations

import json
from typing import Any

from ptpathways.core import InvalidProgram, InvalidSharding
from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import Function, Slice, ValueType
from ptpathways.ir._verify import verify
from ptpathways.sharding import parse_mesh, parse_sharding

FORMAT = "ptpathways.program"
VERSION = 1


def to_json(program: Program) -> str:
    """The program as one JSON object; ``from_json`` gives an equal one back."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "name": program.name,
            "source": program.source,
            "slices": [
                {"name": part.name, "mesh": str(part.mesh), "devices": part.devices, "hosts": part.hosts}
                for part in program.slices
            ],
            "functions": [_function(function) for function in program.functions],
            "nodes": [_node(node) for node in program.nodes],
        },
        indent=1,
    )


def from_json(text: str) -> Program:
    """The program of a text that ``to_json`` gave.

    Raises:
        InvalidProgram: it is something else, of a newer version, or breaks a rule.
    """
    try:
        read = json.loads(text)
        if not isinstance(read, dict) or read.get("format") != FORMAT:
            raise InvalidProgram(f"expected JSON of format {FORMAT!r}, got something else")
        if read["version"] != VERSION:
            raise InvalidProgram(
                f"expected a program in version {VERSION} of its JSON form, got {read['version']}; use the package "
                "version that wrote it"
            )
        program = Program(
            _text(read["name"]),
            tuple(
                Slice(part["name"], parse_mesh(part["mesh"]), tuple(part["devices"]), tuple(part["hosts"]))
                for part in read["slices"]
            ),
            tuple(_read_function(given) for given in read["functions"]),
            tuple(_read_node(given) for given in read["nodes"]),
            _text(read["source"]),
        )
    except (InvalidProgram, InvalidSharding):
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidProgram(f"this is no program in JSON: {type(error).__name__}: {error}") from None
    return verify(program)


def _text(given: Any) -> str:
    if not isinstance(given, str) or "\0" in given:
        raise ValueError(f"expected a text, got {given!r}")
    return given


def _type(kind: ValueType) -> dict[str, Any]:
    return {"dtype": kind.dtype, "shape": kind.shape, "sharding": str(kind.sharding)}


def _read_type(given: dict[str, Any]) -> ValueType:
    return ValueType(given["dtype"], tuple(given["shape"]), parse_sharding(given["sharding"]))


def _function(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "slice": function.slice,
        "inputs": [_type(kind) for kind in function.inputs],
        "outputs": [_type(kind) for kind in function.outputs],
        "source": function.source,
        "format": function.format,
        "digest": function.digest,
        "regular": function.regular,
        "donated": function.donated,
    }


def _read_function(given: dict[str, Any]) -> Function:
    return Function(
        _text(given["name"]),
        _text(given["slice"]),
        tuple(_read_type(kind) for kind in given["inputs"]),
        tuple(_read_type(kind) for kind in given["outputs"]),
        _text(given["source"]),
        _text(given["format"]),
        _text(given["digest"]),
        bool(given["regular"]),
        tuple(given["donated"]),
    )


def _node(node: Node) -> dict[str, Any]:
    return {
        "kind": str(node.kind),
        "inputs": node.inputs,
        "outputs": [{"name": value.name, "type": _type(value.type), "slice": value.slice} for value in node.outputs],
        "function": node.function,
        "source": node.source,
        "donated": node.donated,
    }


def _read_node(given: dict[str, Any]) -> Node:
    return Node(
        Kind(given["kind"]),
        tuple(given["inputs"]),
        tuple(Value(value["name"], _read_type(value["type"]), value["slice"]) for value in given["outputs"]),
        given["function"],
        _text(given["source"]),
        bool(given["donated"]),
    )
