"""Tracing a program: Python runs once on values without elements, and what it calls becomes a graph.

An irregular function cannot be passed over: what comes after it depends on what it gives. So the graph is cut there.
The *stage* before it is submitted while the trace goes on, the function runs on the client, and its results' shapes
choose the next stage. A program without irregular functions has one stage.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptpathways import core, ir
from ptpathways.frontend.base import _locator
from ptpathways.frontend.dataflow import _arguments, _function
from ptpathways.frontend.dataflow._arguments import HostValue, Static
from ptpathways.frontend.dataflow._value import Key, Value
from ptpathways.frontend.slices._future import Future, Layout, layout_of
from ptpathways.frontend.slices._slice import VirtualSlice
from ptpathways.frontend.xla._trace import SEED
from ptpathways.sharding import Sharding

if TYPE_CHECKING:
    from ptpathways.frontend.dataflow._function import CompiledFunction
    from ptpathways.programs import BoundProgram, SequentialProgram


@dataclass(slots=True)
class Feed:
    """An argument of a stage: which value it is, and how it has to lie."""

    key: Key
    layout: Layout
    constant: Any = None
    """The buffer of a number that the program's text contains, uploaded once."""


@dataclass(slots=True)
class HostCall:
    """An irregular function between two stages."""

    function: CompiledFunction
    leaves: list[Key | Static]
    structure: Any
    source: str
    following: dict[Any, Stage] = field(default_factory=dict)
    """By structure and types of what it returned: what comes next."""


CallHost = Callable[["Trace", HostCall], tuple[list[Layout | Static], Any]]


@dataclass(slots=True)
class Stage:
    """A regular part of a program, and what ends it: an irregular function, or the program's result."""

    program: ir.Program | None = None
    bound: BoundProgram | SequentialProgram | None = None
    feeds: list[Feed] = field(default_factory=list)
    outputs: list[tuple[Key, Layout]] = field(default_factory=list)
    call: HostCall | None = None
    result: tuple[list[Key | Static], Any] | None = None
    slices: tuple[VirtualSlice, ...] = ()


class Graph:
    """Collects nodes into a program of the IR, once for all of it and once for each stage."""

    def __init__(self, name: str, source: str, argument_names: Sequence[str], donated: Iterable[int]) -> None:
        self.name = name
        self.builder = ir.ProgramBuilder(name, source)
        self.modules: dict[str, bytes] = {}
        self.feeds: list[Key] = []
        self.slices: dict[str, VirtualSlice] = {}
        self._handles: dict[Key, ir.Handle] = {}
        self._argument_names = argument_names
        self._donated = frozenset(donated)

    def know(self, slice: VirtualSlice) -> None:
        """Raises InvalidProgram when another slice has its name."""
        self.slices[slice.name] = slice
        self.builder.slice(slice.name, slice.mesh)

    def handle(self, value: Value) -> ir.Handle:
        """``value`` in this graph; an argument of it if it is made elsewhere."""
        found = self._handles.get(value.key)
        if found is None:
            if value.layout is not None:
                self.know(value.layout.slice)
            found = self._handles[value.key] = self.builder.argument(
                value.spec.dtype,
                value.spec.shape,
                name=self._name_of(value.key),
                slice=value.layout.slice.name if value.layout is not None else "",
                sharding=value.layout.sharding if value.layout is not None else None,
                donated=self._owned(value),
            )
            self.feeds.append(value.key)
        return found

    def add(self, function: ir.Function, inputs: Sequence[Value], outputs: Sequence[Value], source: str) -> None:
        """A node. ``outputs``: the values that it makes."""
        made = self.builder.compute(function, [self.handle(value) for value in inputs], source=source)
        for value, handle in zip(outputs, made, strict=True):
            self._handles[value.key] = handle

    def made(self, value: Value) -> bool:
        """Whether ``value`` is an argument or a result of something in this graph."""
        return value.key in self._handles

    def build(self, results: Sequence[Value]) -> ir.Program:
        return self.builder.build([self.handle(value) for value in results])

    def layout(self, value: Value) -> Layout:
        """Where an argument of this graph lies, after its first use decided it."""
        if value.layout is not None:
            return value.layout
        handle = self._handles[value.key]
        kind = self.builder.type_of(handle)
        if kind is None:
            raise core.InvalidProgram(f"an argument of program {self.name} is used by no function")
        return layout_of(value.spec, kind.sharding, self.slices[self.builder.slice_of(handle)])

    def _owned(self, value: Value) -> bool:
        """Whether a run may take the argument's memory: uploaded for it, or given up by the caller."""
        kind, number, _ = value.key
        return kind == "seed" or (kind == "leaf" and (value.layout is None or number in self._donated))

    def _name_of(self, key: Key) -> str:
        kind, number, second = key
        if kind == "leaf":
            return self._argument_names[number]
        return f"{kind}{number}" if kind in ("seed", "constant") else f"{kind}{number}.{second}"


class Trace:
    """One run of a program's Python with values in place of tensors.

    ``call_host`` is called where an irregular function is met: it closes the stage, and gives the leaves and structure
    of what the function returned. Without it an irregular function is an error.
    """

    def __init__(
        self,
        name: str,
        source: str,
        leaves: Sequence[Any],
        argument_names: Sequence[str],
        donated: Iterable[int],
        call_host: CallHost | None,
    ) -> None:
        self.name = name
        self.source = source
        self.whole = Graph(name, source, argument_names, donated)
        self.stage_number = 0
        self.constants: dict[Key, HostValue] = {}
        self._argument_names = argument_names
        self._donated = frozenset(donated)
        self.graph = self._new_graph()
        self._leaves = leaves
        self._made = 0
        self._seeds = 0
        self._alive: dict[Key, weakref.ref[Value]] = {}
        self._call_host = call_host
        self.over = False

    def argument(self, number: int) -> Any:
        """What the program's Python gets for its ``number``-th leaf."""
        leaf = self._leaves[number]
        if isinstance(leaf, Static):
            return leaf.value
        if isinstance(leaf, Future):
            layout = leaf.layout
            return self.value(("leaf", number, 0), layout.spec, layout)
        return self.value(("leaf", number, 0), leaf.spec, None)

    def value(self, key: Key, spec: Any, layout: Layout | None) -> Value:
        """A value of this trace. It is remembered for as long as the program's Python holds it."""
        made = Value(self, key, spec, layout)
        self._alive[key] = weakref.ref(made)
        return made

    def call(self, function: CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a compiled function inside the program.

        Raises:
            CapturedTensor: an argument is a tensor or future from outside the program.
            ImpureFunction: a value of another trace.
        """
        _function.check_usable(function.slice)
        source = _function.short_source(_locator.user_source_line())
        args, kwargs = function.bind(args, kwargs)
        raw, structure = _arguments.flatten((args, kwargs))
        leaves = [self._leaf(item, number, function) for number, item in enumerate(raw)]
        types = [leaf.spec if isinstance(leaf, Value) else leaf for leaf in leaves]
        found = function.specialise(types, structure, source)
        if found is None:
            return self._host_call(function, leaves, structure, source)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Value)]
        inputs = [self._seed() if position == SEED else tensors[position] for position in found.parameters]
        outputs: list[Any] = []
        for result in found.results:
            if isinstance(result, Layout):
                self._made += 1
                outputs.append(self.value(("out", self.stage_number, self._made), result.spec, result))
            else:
                outputs.append(result.value)
        values = [output for output in outputs if isinstance(output, Value)]
        self._add(found.function, found.module, function.slice, inputs, values, source)
        return _arguments.unflatten(outputs, found.structure)

    def alive(self) -> list[Value]:
        """Values that the current stage made and that the program's Python can still use."""
        found = (born() for born in self._alive.values())
        return [value for value in found if value is not None and value.key[:2] == ("out", self.stage_number)]

    def next_stage(self) -> None:
        """What follows goes into a graph of its own."""
        self.stage_number += 1
        self.graph = self._new_graph()

    def finish(self, result: Any) -> tuple[list[Key | Static], Any, list[Value]]:
        """Ends the trace: keys of the result's leaves, their structure, and the values among them."""
        raw, structure = _arguments.flatten(result, lists=False)
        leaves: list[Key | Static] = []
        values: dict[Key, Value] = {}
        for item in raw:
            if isinstance(item, Value):
                self._check_mine(item, "the result")
                leaves.append(item.key)
                values[item.key] = item
            elif isinstance(item, Future):
                raise core.CapturedTensor(
                    f"program {self._label} returns a future ({item!r}) that is not one of its arguments; "
                    "pass it as one"
                )
            else:
                leaves.append(Static(type(item), item))
        self.over = True
        return leaves, structure, list(values.values())

    def check_nothing_kept(self, returned: Sequence[Value]) -> None:
        """Raises ImpureFunction when a value outlives the trace."""
        mine = {id(value) for value in returned}
        for born in list(self._alive.values()):
            value = born()
            if value is not None and id(value) not in mine:
                raise core.ImpureFunction(
                    f"program {self._label} keeps a value of its trace after it ended ({value!r}): a global, an "
                    "attribute or a list outside still has it. Such a value has no elements; return it instead"
                )

    @property
    def _label(self) -> str:
        return f"{self.name} ({self.source})" if self.source else self.name

    def _new_graph(self) -> Graph:
        return Graph(self.name, self.source, self._argument_names, self._donated)

    def _leaf(self, item: Any, number: int, function: CompiledFunction) -> Value | Static:
        if isinstance(item, Value):
            self._check_mine(item, f"argument leaf {number} of function {function.label}")
            return item
        where = f"argument leaf {number} of function {function.label} in program {self._label}"
        if isinstance(item, Future) or _arguments.is_array(item):
            raise core.CapturedTensor(
                f"{where} is a {type(item).__name__} that is not one of the program's arguments, so that its value "
                "would be fixed when the program is traced; pass it to the program as an argument"
            )
        leaf: HostValue | Static = _arguments.leaf(item, lambda: where)
        if isinstance(leaf, HostValue):  # a number in the program's text
            key = ("constant", len(self.constants), 0)
            self.constants[key] = leaf
            return self.value(key, leaf.spec, None)
        return leaf

    def _seed(self) -> Value:
        self._seeds += 1
        return self.value(("seed", self._seeds, 0), _function.SEED_SPEC, None)

    def _add(
        self,
        function: ir.Function,
        module: bytes,
        slice: VirtualSlice,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        source: str,
    ) -> None:
        for graph in (self.whole, self.graph):
            graph.know(slice)
            graph.modules[function.digest] = module
            graph.add(function, inputs, outputs, source)

    def _host_call(
        self, function: CompiledFunction, leaves: Sequence[Value | Static], structure: Any, source: str
    ) -> Any:
        if self._call_host is None:
            raise core.InvalidProgram(
                f"program {self._label} calls {function.label}, which is irregular: what follows depends on the values "
                "it gives, so there is no graph of all of it before it has run"
            )
        keys = [leaf.key if isinstance(leaf, Value) else leaf for leaf in leaves]
        call = HostCall(function, keys, structure, source)
        stage = self.stage_number
        parts, shape = self._call_host(self, call)
        outputs: list[Any] = []
        for number, part in enumerate(parts):
            if isinstance(part, Layout):
                outputs.append(self.value(("host", stage, number), part.spec, part))
            else:
                outputs.append(part.value)
        self._show_host_call(function, leaves, [out for out in outputs if isinstance(out, Value)], source)
        return _arguments.unflatten(outputs, shape)

    def _show_host_call(
        self, function: CompiledFunction, leaves: Sequence[Any], outputs: Sequence[Value], source: str
    ) -> None:
        inputs = [leaf for leaf in leaves if isinstance(leaf, Value)]
        mesh = function.slice.mesh
        node = ir.Function(
            name=function.name,
            slice=function.slice.name,
            inputs=tuple(
                ir.ValueType(value.spec.dtype, value.spec.shape, Sharding.replicated(mesh)) for value in inputs
            ),
            outputs=tuple(_function.value_type(value.layout) for value in outputs if value.layout is not None),
            source=function.source,
            format="host",
            regular=False,
        )
        self.whole.know(function.slice)
        self.whole.add(node, inputs, outputs, source)

    def _check_mine(self, value: Value, where: str) -> None:
        if value.trace is not self:
            raise core.ImpureFunction(
                f"{where} is a value of an earlier trace ({value!r}), which somebody kept; values live only while "
                "their program is traced"
            )
