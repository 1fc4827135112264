"""Program: an immutable sharded dataflow graph (paper 3, 4.2). One node per sharded computation, one edge per logical
buffer, whatever the number of shards.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ptpathways.core import InvalidProgram
from ptpathways.ir._types import NAME, Function, Slice, ValueType, label


class Kind(enum.StrEnum):
    """What a node does."""

    ARGUMENT = "argument"
    """Gives what the program is called with."""
    COMPUTE = "compute"
    """Calls a regular function on its slice."""
    TRANSFER = "transfer"
    """Gives the same tensor on another slice, or lying another way."""
    HOST_CALL = "host_call"
    """Calls a function whose output types depend on data; what follows is dispatched after it (paper 4.5)."""
    RESULT = "result"
    """Takes what the program gives back; there is one."""


@dataclass(frozen=True, slots=True)
class Value:
    """A logical buffer: what one node makes and others use."""

    name: str
    type: ValueType
    slice: str

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a program. Which fields matter, its kind says; the others are empty."""

    kind: Kind
    inputs: tuple[str, ...] = ()
    """Names of values."""
    outputs: tuple[Value, ...] = ()
    function: str = ""
    """Compute and host call: the function's name."""
    source: str = ""
    """The user's ``file:line`` of this use."""
    donated: bool = False
    """Argument: the caller gives its buffer up."""

    @property
    def label(self) -> str:
        """How messages and traces name it: ``b (fig2.py:12)``, ``transfer %x to s1``, ``argument %v``."""
        if self.kind in (Kind.COMPUTE, Kind.HOST_CALL):
            return label(self.function, self.source)
        if self.kind is Kind.TRANSFER:
            return label(f"transfer %{self.inputs[0]} to {self.outputs[0].slice}", self.source)
        if self.kind is Kind.ARGUMENT:
            return label(f"argument %{self.outputs[0].name}", self.source)
        return label("result", self.source)


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes in an order in which nothing is used before it is made; names of slices, functions and values are unique.

    Immutable; made by ``ProgramBuilder``, ``parse`` or a pass, and checked by ``verify``.
    """

    name: str
    slices: tuple[Slice, ...]
    functions: tuple[Function, ...]
    nodes: tuple[Node, ...]
    source: str = ""
    _index: list[_Index] = field(default_factory=list, init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        for name in ("slices", "functions", "nodes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not NAME.fullmatch(self.name):
            raise InvalidProgram(f"a program's name begins with a letter, without spaces, got {self.name!r}")

    @property
    def label(self) -> str:
        return label(self.name, self.source)

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The argument nodes, in the order of the program's arguments."""
        return tuple(node for node in self.nodes if node.kind is Kind.ARGUMENT)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the values that the program gives back, in order."""
        for node in self.nodes:
            if node.kind is Kind.RESULT:
                return node.inputs
        return ()

    @property
    def values(self) -> Mapping[str, Value]:
        """Every value by name."""
        return MappingProxyType(self._indexed().values)

    @property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each value."""
        return MappingProxyType(self._indexed().producers)

    @property
    def users(self) -> Mapping[str, Sequence[Node]]:
        """The nodes that use each value, each node once."""
        return MappingProxyType(self._indexed().users)

    def function(self, name: str) -> Function:
        """
        Raises:
            InvalidProgram: there is none of that name.
        """
        try:
            return self._indexed().functions[name]
        except KeyError:
            raise InvalidProgram(f"program {self.label} has no function {name!r}") from None

    def slice(self, name: str) -> Slice:
        """
        Raises:
            InvalidProgram: there is none of that name.
        """
        try:
            return self._indexed().slices[name]
        except KeyError:
            known = ", ".join(sorted(self._indexed().slices)) or "none"
            raise InvalidProgram(f"program {self.label} has no slice {name!r}; its slices: {known}") from None

    @property
    def is_regular(self) -> bool:
        """Whether all of it can be dispatched at once: no host call."""
        return all(node.kind is not Kind.HOST_CALL for node in self.nodes)

    @property
    def placed(self) -> bool:
        """Whether every slice has its physical devices."""
        return all(part.placed for part in self.slices)

    def changed(
        self,
        *,
        nodes: tuple[Node, ...] | None = None,
        slices: tuple[Slice, ...] | None = None,
        name: str | None = None,
    ) -> Program:
        """This program with other nodes, slices or name."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            slices=self.slices if slices is None else slices,
            name=self.name if name is None else name,
        )

    def __str__(self) -> str:
        from ptpathways.ir._text import to_text

        return to_text(self)

    def _indexed(self) -> _Index:
        if not self._index:
            self._index.append(_Index(self))
        return self._index[0]


class _Index:
    """Tables over a program, made on first use."""

    def __init__(self, program: Program) -> None:
        self.values = {value.name: value for node in program.nodes for value in node.outputs}
        self.producers = {value.name: node for node in program.nodes for value in node.outputs}
        self.functions = {function.name: function for function in program.functions}
        self.slices = {part.name: part for part in program.slices}
        self.users: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in program.nodes:
            for name in dict.fromkeys(node.inputs):
                self.users.setdefault(name, []).append(node)


def topological(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes so that each comes after those it needs; where free, in the order given. The result node comes last.

    Raises:
        InvalidProgram: they form a cycle, which the message names; or a value is used that no node makes.
    """
    producer = {value.name: number for number, node in enumerate(nodes) for value in node.outputs}
    users: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for number, node in enumerate(nodes):
        for name in dict.fromkeys(node.inputs):
            if name not in producer:
                raise InvalidProgram(f"{node.label} uses %{name}, which no node makes")
            users[producer[name]].append(number)
            missing[number] += 1
    ready = [(node.kind is Kind.RESULT, number) for number, node in enumerate(nodes) if not missing[number]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (nodes[user].kind is Kind.RESULT, user))
    if len(order) < len(nodes):
        raise InvalidProgram(f"the graph has a cycle: {_cycle(nodes, producer, set(order))}")
    return tuple(nodes[number] for number in order)


def _cycle(nodes: tuple[Node, ...], producer: Mapping[str, int], done: set[int]) -> str:
    """One cycle among the nodes that could not be put in order, as text."""
    number = min(n for n in range(len(nodes)) if n not in done)
    seen: dict[int, int] = {}
    path: list[int] = []
    while number not in seen:
        seen[number] = len(path)
        path.append(number)
        number = next(producer[name] for name in nodes[number].inputs if producer[name] not in done)
    cycle = path[seen[number] :]
    cycle.reverse()  # from maker to user
    cycle = cycle[cycle.index(min(cycle)) :] + cycle[: cycle.index(min(cycle))]
    return " -> ".join(nodes[n].label for n in [*cycle, cycle[0]])
