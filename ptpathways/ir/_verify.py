"""The rules of a program, checked when it is built or read and after every pass."""

from __future__ import annotations

from ptpathways.core import InvalidProgram
from ptpathways.ir._program import Kind, Node, Program, topological
from ptpathways.ir._types import NAME, ValueType

_SHAPES: dict[Kind, tuple[int | None, int | None]] = {
    Kind.ARGUMENT: (0, 1),
    Kind.COMPUTE: (None, None),
    Kind.TRANSFER: (1, 1),
    Kind.HOST_CALL: (None, None),
    Kind.RESULT: (None, 0),
}
"""Per kind how many inputs and outputs a node has; None: as its function says, or any number."""


def verify(program: Program, *, exact: bool = False) -> Program:
    """The program itself, with its nodes in topological order.

    ``exact``: every function's arguments lie on its slice as it wants them, that is, transfers have been inferred.

    Raises:
        InvalidProgram: what breaks a rule is named with the user's line.
    """
    _check_names(program)
    made: set[str] = set()
    for node in program.nodes:
        for value in node.outputs:
            if value.name in made:
                raise _broken(program, node, f"makes %{value.name}, which another node makes, too")
            if not NAME.fullmatch(value.name):
                raise _broken(program, node, f"makes a value called {value.name!r}, which is not a name")
            made.add(value.name)
    try:
        nodes = topological(program.nodes)
    except InvalidProgram as error:
        raise InvalidProgram(f"program {program.label}: {error}") from None
    if nodes != program.nodes:
        program = program.changed(nodes=nodes)
    for node in nodes:
        _check_node(program, node, exact)
    if sum(node.kind is Kind.RESULT for node in nodes) != 1:
        raise InvalidProgram(f"program {program.label} must have one result node")
    return program


def _check_names(program: Program) -> None:
    for what, names in (
        ("slices", [part.name for part in program.slices]),
        ("functions", [function.name for function in program.functions]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise InvalidProgram(f"program {program.label} has two {what} called {', '.join(twice)}")
    owners: dict[int, int] = {}
    for part in program.slices:
        for device, host in zip(part.devices, part.hosts, strict=True):
            if owners.setdefault(device, host) != host:
                raise InvalidProgram(
                    f"program {program.label}: device {device} of slice {part.name!r} is said to be on host {host} and "
                    f"on host {owners[device]}"
                )
    for function in program.functions:
        mesh = program.slice(function.slice).mesh
        for kind in (*function.inputs, *function.outputs):
            if kind.sharding.mesh.size != mesh.size:
                raise InvalidProgram(
                    f"function {function.label} is for slice {function.slice!r} of {mesh.size} devices, but "
                    f"{kind.tensor} lies on {kind.sharding.mesh.size}: {kind.sharding}"
                )


def _check_node(program: Program, node: Node, exact: bool) -> None:
    inputs, outputs = _SHAPES[node.kind]
    for what, count, wanted in (("inputs", len(node.inputs), inputs), ("outputs", len(node.outputs), outputs)):
        if wanted is not None and count != wanted:
            raise _broken(program, node, f"must have {wanted} {what}, got {count}")
    for value in node.outputs:
        mesh = program.slice(value.slice).mesh
        if value.type.sharding.mesh.size != mesh.size:
            raise _broken(
                program,
                node,
                f"makes {value} on slice {value.slice!r} of {mesh.size} devices, lying on "
                f"{value.type.sharding.mesh.size}: {value.type.sharding}",
            )
    if node.kind in (Kind.COMPUTE, Kind.HOST_CALL):
        _check_call(program, node, exact)
    elif node.kind is Kind.TRANSFER:
        given = program.values[node.inputs[0]]
        if not given.type.same_tensor(node.outputs[0].type):
            raise _broken(program, node, f"keeps the tensor, got {given.type.tensor} and {node.outputs[0].type.tensor}")


def _check_call(program: Program, node: Node, exact: bool) -> None:
    function = program.function(node.function)
    if function.regular is not (node.kind is Kind.COMPUTE):
        raise _broken(program, node, "an irregular function is a host call, and only that")
    if len(node.inputs) != len(function.inputs):
        raise _broken(program, node, f"takes {len(function.inputs)} arguments, got {len(node.inputs)}")
    if len(node.outputs) != len(function.outputs):
        raise _broken(program, node, f"gives {len(function.outputs)} values, got {len(node.outputs)}")
    for position, (name, wanted) in enumerate(zip(node.inputs, function.inputs, strict=True)):
        given = program.values[name]
        if not given.type.same_tensor(wanted):
            raise _broken(
                program, node, f"argument {position} must be {wanted.tensor}, got {given.type.tensor} {given}"
            )
        if exact and (given.slice != function.slice or not given.type.same_layout(wanted)):
            raise _broken(
                program,
                node,
                f"argument {position} must lie on {function.slice} as {_lying(wanted)}, got {given} on {given.slice} "
                f"as {_lying(given.type)}; infer transfers first",
            )
    for value, wanted in zip(node.outputs, function.outputs, strict=True):
        if value.slice != function.slice or not value.type.same_layout(wanted):
            raise _broken(
                program,
                node,
                f"gives {wanted.tensor} on {function.slice} as {_lying(wanted)}, got {value} {value.type.tensor} on "
                f"{value.slice} as {_lying(value.type)}",
            )


def _lying(kind: ValueType) -> str:
    return str(kind.sharding)


def _broken(program: Program, node: Node, what: str) -> InvalidProgram:
    return InvalidProgram(f"program {program.label}: {node.label} {what}")
