"""ProgramBuilder: a program node by node, as calls are traced."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ptpathways.core import InvalidProgram
from ptpathways.ir._program import Kind, Node, Program, Value
from ptpathways.ir._types import Function, Slice, ValueType, label
from ptpathways.ir._verify import verify
from ptpathways.sharding import Mesh, Sharding

_builders = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Handle:
    """A value of a program that is being built."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    builder: int

    def __str__(self) -> str:
        return f"%{self.name}"


class ProgramBuilder:
    """Collects nodes in the order of the calls; ``build`` gives the checked program.

    A value is used where and as it lies: transfers are inferred later. Errors name the caller's lines, given as
    ``source``. Not for use from several threads.

    Example::

        builder = ProgramBuilder("f", source="fig2.py:9")
        s0 = builder.slice("s0", Mesh((2,), ("x",)))
        v = builder.argument("f32", (2,), name="v")
        (x,) = builder.compute(double, [v])  # double: ir.Function on slice "s0"
        program = builder.build([x])
    """

    def __init__(self, name: str, source: str = "") -> None:
        self._name = name
        self._source = source
        self._number = next(_builders)
        self._slices: dict[str, Slice] = {}
        self._functions: dict[str, Function] = {}
        self._nodes: list[Node] = []
        self._values: dict[str, Value] = {}
        self._open: dict[str, tuple[int, str, tuple[int, ...]]] = {}  # arguments without a place: node, dtype, shape

    def slice(self, name: str, mesh: Mesh, devices: Sequence[int] = (), hosts: Sequence[int] = ()) -> str:
        """Makes a slice known, once; its name.

        Raises:
            InvalidProgram: another one has that name.
        """
        made = Slice(name, mesh, tuple(devices), tuple(hosts))
        if self._slices.setdefault(name, made) != made:
            raise InvalidProgram(f"program {self._label} has another slice called {name!r}")
        return name

    def argument(
        self,
        dtype: str,
        shape: Sequence[int],
        *,
        name: str = "",
        slice: str = "",
        sharding: Sharding | None = None,
        donated: bool = False,
        source: str = "",
    ) -> Handle:
        """The program's next argument. Without a slice it lies where, and as, its first user wants it.

        ``donated``: the caller gives the buffer up with the call, and the program may reuse its memory.
        """
        name = self._fresh(name or f"arg{sum(node.kind is Kind.ARGUMENT for node in self._nodes)}")
        shape = tuple(int(size) for size in shape)
        node = Node(Kind.ARGUMENT, source=source, donated=donated)
        if slice:
            value = Value(name, ValueType(dtype, shape, sharding or self._replicated(slice)), slice)
            node = Node(Kind.ARGUMENT, (), (value,), source=source, donated=donated)
            self._values[name] = value
        else:
            self._open[name] = (len(self._nodes), dtype, shape)
        self._nodes.append(node)
        return Handle(name, dtype, shape, self._number)

    def compute(
        self, function: Function, arguments: Sequence[Handle], *, names: Sequence[str] = (), source: str = ""
    ) -> tuple[Handle, ...]:
        """A call of ``function``; handles of what it gives. An irregular function becomes a host call.

        A function is known by its content; two different ones of one name are told apart by a number. ``names``: what
        to call the values; by default the function's name.

        Raises:
            InvalidProgram: arguments do not fit the function, or belong to another program; no such slice.
        """
        where = f"call of {label(function.name, source or function.source)}"
        if function.slice not in self._slices:
            raise InvalidProgram(f"{where}: program {self._label} does not know slice {function.slice!r}")
        if len(arguments) != len(function.inputs):
            raise InvalidProgram(f"{where}: takes {len(function.inputs)} arguments, got {len(arguments)}")
        for position, (given, wanted) in enumerate(zip(arguments, function.inputs, strict=True)):
            self._check_mine(given, where)
            if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
                got = f"{given.dtype}[{','.join(map(str, given.shape))}]"
                raise InvalidProgram(f"{where}: argument {position} must be {wanted.tensor}, got {got} of {given}")
            self._settle(given, wanted, function.slice)
        known = self._known(function)
        values = []
        for number, given_type in enumerate(function.outputs):
            name = self._fresh(names[number] if number < len(names) else known.name)
            values.append(self._values.setdefault(name, Value(name, given_type, function.slice)))
        inputs = tuple(given.name for given in arguments)
        kind = Kind.COMPUTE if function.regular else Kind.HOST_CALL
        self._nodes.append(Node(kind, inputs, tuple(values), known.name, source or function.source))
        return tuple(Handle(value.name, value.type.dtype, value.type.shape, self._number) for value in values)

    def transfer(
        self, value: Handle, slice: str, sharding: Sharding | None = None, *, name: str = "", source: str = ""
    ) -> Handle:
        """The same tensor on ``slice``, lying as ``sharding`` says (default: a copy at each position).

        Raises:
            InvalidProgram: the value belongs to another program; no such slice.
        """
        self._check_mine(value, "transfer")
        wanted = ValueType(value.dtype, value.shape, sharding or self._replicated(slice))
        self._settle(value, wanted, slice)
        made = Value(self._fresh(name or f"{value.name}.{slice}"), wanted, slice)
        self._values[made.name] = made
        self._nodes.append(Node(Kind.TRANSFER, (value.name,), (made,), source=source))
        return Handle(made.name, value.dtype, value.shape, self._number)

    def type_of(self, value: Handle) -> ValueType | None:
        """How a value lies; None for an argument that nobody has used yet."""
        self._check_mine(value, "type_of")
        found = self._values.get(value.name)
        return found.type if found else None

    def slice_of(self, value: Handle) -> str:
        """Where a value lies; empty for an argument that nobody has used yet."""
        self._check_mine(value, "slice_of")
        found = self._values.get(value.name)
        return found.slice if found else ""

    def build(self, results: Sequence[Handle], source: str = "") -> Program:
        """The program that gives back ``results``.

        Raises:
            InvalidProgram: a rule is broken (see ``verify``); an argument without a slice is used by no function.
        """
        for given in results:
            self._check_mine(given, "result")
        for name in self._open:
            raise InvalidProgram(
                f"argument %{name} of program {self._label} is used by no function, so there is no slice for it to lie "
                "on; leave it out, or say its slice"
            )
        result = Node(Kind.RESULT, tuple(given.name for given in results), source=source)
        program = Program(
            self._name,
            tuple(self._slices.values()),
            tuple(self._functions.values()),
            (*self._nodes, result),
            self._source,
        )
        return verify(program)

    @property
    def _label(self) -> str:
        return label(self._name, self._source)

    def _replicated(self, slice: str) -> Sharding:
        if slice not in self._slices:
            raise InvalidProgram(f"program {self._label} does not know slice {slice!r}")
        return Sharding.replicated(self._slices[slice].mesh)

    def _check_mine(self, value: Handle, where: str) -> None:
        if not isinstance(value, Handle) or value.builder != self._number:
            raise InvalidProgram(f"{where}: {value} is not a value of program {self._label}, which is being built")

    def _fresh(self, name: str) -> str:
        """``name``, or with a number if it is taken."""
        taken = self._values.keys() | self._open.keys()
        if name not in taken:
            return name
        return next(made for number in itertools.count(1) if (made := f"{name}.{number}") not in taken)

    def _known(self, function: Function) -> Function:
        """The function under the name it has in this program."""
        for number in itertools.count():
            name = f"{function.name}.{number}" if number else function.name
            found = self._functions.setdefault(name, function.renamed(name))
            if found == function.renamed(name):
                return found
        raise AssertionError("unreachable")

    def _settle(self, value: Handle, wanted: ValueType, slice: str) -> None:
        """An argument without a place gets that of its first user."""
        waiting = self._open.pop(value.name, None)
        if waiting is None:
            return
        number = waiting[0]
        made = self._values[value.name] = Value(value.name, wanted, slice)
        old = self._nodes[number]
        self._nodes[number] = Node(Kind.ARGUMENT, (), (made,), source=old.source, donated=old.donated)
