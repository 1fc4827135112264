"""Programs cut into smaller ones that are dispatched one after the other (paper 4.5, figure 7: sequential dispatch)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ptpathways.ir._program import Kind, Node, Program, topological
from ptpathways.ir._verify import verify
from ptpathways.ir.passes import infer_transfers


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program, run after those before it. Either ``program`` or ``host_call`` is there."""

    program: Program | None
    """With its transfers. An argument is marked as donated when nothing needs it afterwards."""
    host_call: Node | None
    """An irregular node, for the client to run."""
    inputs: tuple[str, ...]
    """Values of the whole program that it takes, in the order of its arguments."""
    outputs: tuple[str, ...]
    """Values of the whole program that it gives, in the order of its results."""


def segments(program: Program) -> list[Segment]:
    """One segment per node that computes, in topological order: forced sequential dispatch.

    A value crosses segments as its node made it, and each segment moves what it needs. The program's results are the
    values that ``program.results`` names; those that are arguments are made by no segment.

    Raises:
        InvalidProgram: the program breaks a rule.
    """
    program = verify(program)
    groups = [[node] for node in program.nodes if node.kind in (Kind.COMPUTE, Kind.HOST_CALL)]
    return _cut(program, groups)


def split(program: Program) -> list[Segment]:
    """The program cut at its host calls only: as few segments as their dependences allow.

    What depends on k host calls in a row comes after the k-th and is one regular segment, which dispatches in parallel.
    A program without host calls is one segment.

    Raises:
        InvalidProgram: the program breaks a rule.
    """
    program = verify(program)
    level: dict[str, int] = {}
    regular: dict[int, list[Node]] = {}
    calls: dict[int, list[Node]] = {}
    for node in program.nodes:
        after = max((level[name] for name in node.inputs), default=0)
        if node.kind is Kind.COMPUTE:
            regular.setdefault(after, []).append(node)
        elif node.kind is Kind.HOST_CALL:
            calls.setdefault(after, []).append(node)
            after += 1
        for value in node.outputs:
            level[value.name] = after
    groups: list[list[Node]] = []
    for after in range(max([*regular, *calls], default=-1) + 1):
        if after in regular:
            groups.append(regular[after])
        groups += [[node] for node in calls.get(after, ())]
    return _cut(program, groups)


def _cut(program: Program, groups: list[list[Node]]) -> list[Segment]:
    """``groups`` of computing nodes as programs of their own."""
    root: dict[str, str] = {}
    """Value -> what it was before any transfer."""
    for node in program.nodes:
        for value in node.outputs:
            root[value.name] = root[node.inputs[0]] if node.kind is Kind.TRANSFER else value.name
    asked = list(dict.fromkeys(program.results))
    of_value = {value.name: number for number, group in enumerate(groups) for node in group for value in node.outputs}
    # A transfer that the caller asked to get is made where its value is, or in a segment of its own.
    groups = [[*group] for group in groups]
    for name in asked:
        if root[name] == name:
            continue
        producer = program.producers[name]
        transfer = replace(producer, inputs=(root[name],))
        home = of_value.get(root[name])
        if home is None or groups[home][0].kind is Kind.HOST_CALL:
            groups.append([transfer])
        else:
            groups[home].append(transfer)
    groups = [[replace(node, inputs=tuple(root[name] for name in node.inputs)) for node in group] for group in groups]
    last_use = {name: number for number, group in enumerate(groups) for node in group for name in node.inputs}
    kept = set(asked) | {node.outputs[0].name for node in program.arguments if not node.donated}
    found = []
    for number, group in enumerate(groups):
        made = {value.name for node in group for value in node.outputs}
        takes = tuple(dict.fromkeys(name for node in group for name in node.inputs if name not in made))
        needed = {name for later in groups[number + 1 :] for node in later for name in node.inputs} | set(asked)
        gives = tuple(value.name for node in group for value in node.outputs if value.name in needed)
        if group[0].kind is Kind.HOST_CALL:
            found.append(Segment(None, group[0], takes, gives))
            continue
        dead = {name for name in takes if last_use[name] == number and name not in kept}
        found.append(Segment(_program_of(program, number, group, takes, gives, dead), None, takes, gives))
    return found


def _program_of(
    program: Program, number: int, group: list[Node], takes: Iterable[str], gives: tuple[str, ...], dead: set[str]
) -> Program:
    arguments = tuple(
        Node(Kind.ARGUMENT, (), (program.values[name],), source=program.producers[name].source, donated=name in dead)
        for name in takes
    )
    nodes = topological((*arguments, *group, Node(Kind.RESULT, gives)))
    called = {node.function for node in group if node.function}
    used = {value.slice for node in nodes for value in node.outputs}
    used |= {function.slice for function in program.functions if function.name in called}
    return infer_transfers(
        Program(
            f"{program.name}.{number}",
            tuple(part for part in program.slices if part.name in used),
            tuple(function for function in program.functions if function.name in called),
            nodes,
            program.source,
        )
    )
