"""One trace of a program: its Python runs on placeholders, and what it calls becomes a graph, stage by stage."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core, ir, programs
from ptpathways.frontend.dataflow import _arguments, _function
from ptpathways.frontend.dataflow._arguments import HostValue, Static
from ptpathways.frontend.dataflow._graph import Feed, HostCall, Stage, Trace
from ptpathways.frontend.dataflow._run import Environment, Passed, functions_of, rebuild, run_host_call, submit
from ptpathways.frontend.dataflow._upload import upload
from ptpathways.frontend.dataflow._value import Key, Value
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.slices._future import Layout

if TYPE_CHECKING:
    from ptpathways.frontend.dataflow._program import Program

_active = threading.local()


def current_trace() -> Trace | None:
    """The program that this thread is tracing."""
    return getattr(_active, "trace", None)


@dataclass(slots=True)
class Entry:
    """A program traced for certain types of its arguments."""

    first: Stage | None = None
    whole: ir.Program | None = None
    devices: dict[str, tuple[int, ...]] | None = None
    modules: dict[str, bytes] | None = None
    fast: tuple[int, ...] | None = None
    """The leaves that the only stage takes, in its order, when it needs nothing else."""


class Tracing:
    """One trace of a program, which runs its stages as it meets their ends."""

    def __init__(
        self,
        program: Program,
        leaves: Sequence[Any],
        structure: Any,
        *,
        run: bool,
        entry: Entry | None = None,
        path: Sequence[Passed] = (),
        environment: Environment | None = None,
    ) -> None:
        self._program = program
        self._leaves = leaves
        self._structure = structure
        self._run = run
        self._entry = entry or Entry()
        self._path = list(path)  # what has run already, and is traced again only to get to what follows
        self._environment: Environment = environment or {("leaf", i, 0): leaf for i, leaf in enumerate(leaves)}
        donated = _function.leaves_at(program.donate, structure, f"donate of {program.label}")
        self._trace = Trace(
            program.name,
            program.source,
            leaves,
            program.argument_names(leaves, structure),
            donated,
            self._call_host if run else None,
        )
        self.result: Any = None

    def go(self) -> Entry:
        before = current_trace()
        _active.trace = self._trace
        try:
            values = [self._trace.argument(number) for number in range(len(self._leaves))]
            args, kwargs = _arguments.unflatten(values, self._structure)
            del values
            returned = self._program.body(args, kwargs)
        finally:
            _active.trace = before
        del args, kwargs
        leaves, structure, results = self._trace.finish(returned)
        del returned
        made = [value for value in results if value.key[0] != "leaf"]
        stage = self._close([value for value in made if self._trace.graph.made(value)])
        stage.result = (leaves, structure)
        self._check_nothing_kept(results)
        if any(self._trace.whole.made(value) for value in results):
            self._entry.whole = self._trace.whole.build([value for value in results if self._trace.whole.made(value)])
        else:
            self._entry.whole = self._trace.whole.build([])
        self._entry.devices = {name: slice.devices for name, slice in self._trace.whole.slices.items()}
        self._entry.modules = self._trace.whole.modules
        self._attach(stage)
        if self._run:
            submit(stage, self._environment, self._program.label)
            self.result = rebuild(stage.result, self._environment)
        return self._entry

    def _check_nothing_kept(self, results: Sequence[Value]) -> None:
        try:
            self._trace.check_nothing_kept(results)
        except core.ImpureFunction:
            gc.collect()  # a cycle is no fault
            self._trace.check_nothing_kept(results)

    def _call_host(self, trace: Trace, call: HostCall) -> tuple[list[Layout | Static], Any]:
        number = trace.stage_number
        if number < len(self._path):
            passed = self._path[number]
            self._check_same(passed.stage)
        else:
            stage = self._close(trace.alive())
            stage.call = call
            self._attach(stage)
            submit(stage, self._environment, self._program.label)
            passed = run_host_call(stage, self._environment, number)
            self._path.append(passed)
        trace.next_stage()
        return passed.parts, passed.structure

    def _close(self, results: Sequence[Value]) -> Stage:
        """The current graph as a stage, registered with the session."""
        graph = self._trace.graph
        stage = Stage(slices=tuple(graph.slices.values()))
        if not results:
            return stage
        stage.program = graph.build(results)
        session = _slice.current_session()
        for used in stage.slices:
            used.check(session)
        bind = programs.SequentialProgram if self._program.sequential else programs.BoundProgram
        stage.bound = bind(
            functions_of(session),
            session,
            stage.program,
            {name: used.devices for name, used in graph.slices.items()},
            graph.modules,
        )
        spec_of = {key: self._spec(key) for key in graph.feeds}
        for key in graph.feeds:
            layout = graph.layout(Value(self._trace, key, *spec_of[key]))
            feed = Feed(key, layout)
            if key[0] == "constant":
                feed.constant = upload(self._trace.constants[key].tensor, layout)
            stage.feeds.append(feed)
        for value in results:
            assert value.layout is not None
            stage.outputs.append((value.key, value.layout))
        return stage

    def _spec(self, key: Key) -> tuple[Any, Layout | None]:
        """Type and place of an argument of a stage."""
        if key[0] == "constant":
            return self._trace.constants[key].spec, None
        if key[0] == "seed":
            return _function.SEED_SPEC, None
        found = self._environment[key]
        return (found.spec, None) if isinstance(found, HostValue) else (found.layout.spec, found.layout)

    def _attach(self, stage: Stage) -> None:
        number = self._trace.stage_number
        if number == 0:
            self._entry.first = stage
        else:
            before = self._path[number - 1]
            assert before.stage.call is not None
            before.stage.call.following[before.signature] = stage

    def _check_same(self, stage: Stage) -> None:
        """Raises ImpureFunction when tracing again gave another graph than before."""
        graph = self._trace.graph
        values = {value.key: value for value in self._trace.alive()}
        wanted = [key for key, _ in stage.outputs]
        same = all(key in values for key in wanted)
        if same and stage.program is not None:
            same = graph.build([values[key] for key in wanted]) == stage.program
        if not same:
            raise core.ImpureFunction(
                f"program {self._program.label} called other functions when it was traced again for the same "
                "arguments; what it calls may depend only on their structure, types and static values, and on what "
                "irregular functions gave"
            )
