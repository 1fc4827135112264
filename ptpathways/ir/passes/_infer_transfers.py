"""infer_transfers: data movement and resharding between nodes are automatic (paper 3)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TypeAlias

from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import ValueType
from ptpathways.ir._verify import verify

_Wish: TypeAlias = tuple[str, str, object]
"""Value, slice, layout."""


def infer_transfers(program: Program) -> Program:
    """The program with a transfer wherever a value lies on another slice, or another way, than its user wants.

    Users that want the same share one, those that the program had included. A transfer stands directly after what makes
    its value, so that the value leaves as early as it can.

    Raises:
        InvalidProgram: the program breaks a rule.
    """
    program = verify(program)
    names = set(program.values)
    transfers: dict[_Wish, Value] = {}
    after: dict[str, list[Node]] = {}  # transfers by the value they read
    for node in program.nodes:
        if node.kind is Kind.TRANSFER:
            made = node.outputs[0]
            transfers.setdefault((node.inputs[0], made.slice, _layout(made.type)), made)
            after.setdefault(node.inputs[0], []).append(node)
    changed: dict[int, Node] = {}
    for number, node in enumerate(program.nodes):
        if node.kind not in (Kind.COMPUTE, Kind.HOST_CALL):
            continue
        function = program.function(node.function)
        inputs = []
        for name, wanted in zip(node.inputs, function.inputs, strict=True):
            given = program.values[name]
            if given.slice == function.slice and given.type.same_layout(wanted):
                inputs.append(name)
                continue
            wish = (name, function.slice, _layout(wanted))
            if wish not in transfers:
                made = Value(_fresh(f"{name}.{function.slice}", names), wanted, function.slice)
                transfers[wish] = made
                after.setdefault(name, []).append(Node(Kind.TRANSFER, (name,), (made,), source=node.source))
            inputs.append(transfers[wish].name)
        changed[number] = replace(node, inputs=tuple(inputs))
    nodes: list[Node] = []
    for number, node in enumerate(program.nodes):
        if node.kind is Kind.TRANSFER:
            continue  # stands after what makes its value
        waiting = [changed.get(number, node)]
        while waiting:
            nodes.append(waiting.pop())
            for value in reversed(nodes[-1].outputs):
                waiting += reversed(after.get(value.name, []))
    return verify(program.changed(nodes=tuple(nodes)), exact=True)


def _layout(kind: ValueType) -> object:
    return kind.sharding.mesh.size, kind.sharding.op_sharding(len(kind.shape))


def _fresh(name: str, taken: set[str]) -> str:
    if name in taken:
        name = next(made for number in itertools.count(1) if (made := f"{name}.{number}") not in taken)
    taken.add(name)
    return name
