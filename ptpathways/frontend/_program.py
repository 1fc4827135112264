"""``@pw.program``: many calls of compiled functions as one program, traced once and replayed (paper 3, 4.2)."""

from __future__ import annotations

import functools
import gc
import inspect
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from ptpathways import core, ir, native, programs
from ptpathways.frontend import _arguments, _capture_walk, _function, _save, _slice
from ptpathways.frontend._arguments import HostValue, Static
from ptpathways.frontend._capture import CapturedStep
from ptpathways.frontend._future import Future, Layout
from ptpathways.frontend._graph import Feed, HostCall, Stage, Trace
from ptpathways.frontend._run import Environment, Passed, functions_of, key_of, rebuild, run_host_call, submit
from ptpathways.frontend._upload import upload
from ptpathways.frontend._value import Key, Value

_active = threading.local()


def current_trace() -> Trace | None:
    """The program that this thread is tracing."""
    return getattr(_active, "trace", None)


@dataclass(slots=True)
class _Entry:
    """A program traced for certain types of its arguments."""

    first: Stage | None = None
    whole: ir.Program | None = None
    devices: dict[str, tuple[int, ...]] | None = None
    modules: dict[str, bytes] | None = None
    fast: tuple[int, ...] | None = None
    """The leaves that the only stage takes, in its order, when it needs nothing else."""


class Program:
    """A traced program. Made by ``program``.

    A call submits one run, one message per host that takes part, and returns futures in the structure that the Python
    returned. It is traced once per structure, types and static values of its arguments; a replay runs none of its
    Python. With irregular functions in it, see ``docs/programs.md``.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        donate: Sequence[int] = (),
        name: str = "",
        source: str = "",
        sequential: bool = False,
    ) -> None:
        functools.update_wrapper(self, body, updated=())
        self.name = name or _function.ir_name(getattr(body, "__name__", "program"))
        self.source = source or _function.source_of(body)
        self.donate = tuple(donate)
        self.sequential = sequential
        self._body = body
        self._entries: dict[Any, _Entry] = {}
        self._quick: dict[tuple[Layout, ...], _Entry] = {}
        self._moves = _slice.moves()
        self._lock = threading.RLock()
        self._signature: inspect.Signature | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submits a run; futures at once.

        Raises:
            CapturedTensor, ImpureFunction, InvalidProgram, InvalidSharding: by the call that traces it.
            UsedAfterDonation, WrongCluster, SliceUnavailable, NotInitialized: something cannot be used any more.
        """
        if current_trace() is not None:
            return self._body(*args, **kwargs)  # inlined
        if self._moves != _slice.moves():  # it is bound to devices that a slice may have left
            self._forget()
        if not kwargs:
            try:
                entry = self._quick[tuple([arg._layout for arg in args])]
            except (AttributeError, KeyError):
                pass
            else:
                return self._replay(entry, args)
        return self._call(args, kwargs)

    def _forget(self) -> None:
        with self._lock:
            self._moves = _slice.moves()
            self._entries.clear()
            self._quick.clear()

    def trace(self, *args: Any, **kwargs: Any) -> ir.Program:
        """The program's graph for such arguments; nothing runs. ``print`` it.

        Raises:
            InvalidProgram: it has an irregular function, whose results nobody knows yet; call it once before.
        """
        leaves, structure = self._prepare(args, kwargs)
        entry = self._entry(leaves, structure)
        assert entry.whole is not None
        return entry.whole

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The graph after each pass of its lowering, and the plan of each host. Raises as ``trace`` does."""
        leaves, structure = self._prepare(args, kwargs)
        entry = self._entry(leaves, structure)
        assert entry.whole is not None
        return ir.explain(entry.whole, entry.devices, programs.hosts_of(_slice.current_session()))

    def svg(self, path: str | Path, *args: Any, **kwargs: Any) -> Path:
        """Writes a picture of the graph for such arguments, nodes coloured by slice. Raises as ``trace`` does."""
        target = Path(path)
        target.write_text(ir.to_svg(self.trace(*args, **kwargs)), encoding="utf-8")
        return target

    def save(self, path: str | Path, *args: Any, weights: Sequence[int] | None = None, **kwargs: Any) -> Path:
        """Writes the program into one file, which ``ptpathways replay`` runs without torch; the path.

        Args:
            args: example arguments. Without any, the program must have been traced for one kind of arguments, and no
                values are saved.
            weights: positions of the arguments whose values go into the file; default: all that were given.

        Raises:
            InvalidProgram: it has irregular functions, computes nothing, or was traced for several kinds of arguments.
        """
        return self._bundle(args, kwargs, weights, "save()").save(path)

    def compile_for(self, target: str, *args: Any, plugin: str = "", **kwargs: Any) -> programs.CompiledFor:
        """Compiles the program for chips that need not be here; nothing runs. ``ptpathways compile`` does the same.

        Args:
            target: chip and shape: ``"h200:2x8"`` is 2 hosts of 8 GPUs, ``"v5e:4x4"`` a torus of 16 TPUs.
            args: example arguments, of which only the types matter. Without any, the program must have been traced for
                one kind of arguments.
            plugin: path of the PJRT plugin that compiles; default: the best that is installed.

        Raises:
            InvalidOption: no such target, or one with fewer devices than a slice of the program.
            PluginNotFound: the plugin that compiles for it is not installed.
            CompileFailed: the compiler ended without an answer.
            InvalidProgram: as ``save``.
        """
        with tempfile.TemporaryDirectory() as folder:
            saved = self._bundle(args, kwargs, (), "compile_for()").save(Path(folder) / "program.zip")
            return programs.compile_apart(saved, target, plugin)

    def _bundle(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], weights: Sequence[int] | None, caller: str
    ) -> programs.Bundle:
        if args or kwargs:
            leaves, structure = self._prepare(args, kwargs)
            entry = self._entry(leaves, structure)
            kept = _save.kept_leaves(weights, structure, self.label)
        else:
            if len(self._entries) != 1:
                raise core.InvalidProgram(
                    f"program {self.label} was traced for {len(self._entries)} kinds of arguments; give {caller} "
                    "example arguments, to say which is meant"
                )
            (entry,) = self._entries.values()
            leaves, kept = [], set()
        assert entry.first is not None and entry.modules is not None
        return _save.bundle(entry.first, entry.modules, leaves, kept, self.label)

    @property
    def label(self) -> str:
        """``f (file.py:12)``"""
        return f"{self.name} ({self.source})" if self.source else self.name

    def __repr__(self) -> str:
        kinds = len(self._entries)
        return f"<program {self.label}, traced for {kinds} kind{'' if kinds == 1 else 's'} of arguments>"

    def _repr_svg_(self) -> str | None:
        """In a notebook: the graph for the kind of arguments that it was traced for last."""
        graphs = [entry.whole for entry in self._entries.values() if entry.whole is not None]
        return ir.to_svg(graphs[-1]) if graphs else None

    def __str__(self) -> str:
        """The graph of every kind of arguments that it was traced for; before that, what ``repr`` gives."""
        graphs = [str(entry.whole).rstrip() for entry in self._entries.values() if entry.whole is not None]
        return "\n\n".join(graphs) or repr(self)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure = self._prepare(args, kwargs)
        key = key_of(leaves, structure)
        entry = self._entries.get(key)
        if entry is None or entry.first is None:
            return self._trace_and_run(leaves, structure, key)
        result = self._run(entry, leaves, structure)
        self._remember_quick(entry, args, kwargs, leaves)
        return result

    def _entry(self, leaves: Sequence[Any], structure: Any) -> _Entry:
        """The entry for such arguments, traced without running if it is new."""
        key = key_of(leaves, structure)
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                entry = _Tracing(self, leaves, structure, run=False).go()
                self._entries[key] = entry
        return entry

    def _trace_and_run(self, leaves: Sequence[Any], structure: Any, key: Any) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                tracing = _Tracing(self, leaves, structure, run=True)
                self._entries[key] = tracing.go()
                return tracing.result
        return self._run(entry, leaves, structure)

    def _run(self, entry: _Entry, leaves: Sequence[Any], structure: Any) -> Any:
        """Walks the stages; where an irregular function gives shapes not seen before, traces what follows."""
        environment: Environment = {("leaf", number, 0): leaf for number, leaf in enumerate(leaves)}
        stage = entry.first
        path: list[Passed] = []
        while stage is not None:
            submit(stage, environment, self.label)
            if stage.call is None:
                assert stage.result is not None
                return rebuild(stage.result, environment)
            passed = run_host_call(stage, environment, len(path))
            path.append(passed)
            stage = stage.call.following.get(passed.signature)
        with self._lock:
            tracing = _Tracing(self, leaves, structure, run=True, entry=entry, path=path, environment=environment)
            tracing.go()
            return tracing.result

    def _replay(self, entry: _Entry, futures: tuple[Future, ...]) -> Any:
        """The quick way: one stage, all of whose inputs are futures."""
        stage = entry.first
        assert stage is not None and stage.bound is not None and stage.result is not None and entry.fast is not None
        session = _slice.current_session()
        for used in stage.slices:
            used.check(session)
        buffers = [futures[number].buffer() for number in entry.fast]
        try:
            made = stage.bound.run(buffers)
        except native.NativeError as error:
            raise native.translate(error) from None
        fresh = [Future(buffer, layout) for buffer, (_, layout) in zip(made, stage.outputs, strict=True)]
        if len(fresh) == 1 and stage.result[1].is_leaf():
            return fresh[0]
        return rebuild(stage.result, {key: one for one, (key, _) in zip(fresh, stage.outputs, strict=True)})

    def _remember_quick(
        self, entry: _Entry, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
    ) -> None:
        """Makes the next call with such futures quick, if nothing but futures goes in and nothing is given up."""
        stage = entry.first
        if kwargs or self.donate or stage is None or stage.call is not None or stage.bound is None:
            return
        if (
            not args
            or any(arg is not leaf for arg, leaf in zip(args, leaves, strict=False))
            or len(args) != len(leaves)
        ):
            return
        if not all(isinstance(leaf, Future) for leaf in leaves) or any(feed.key[0] != "leaf" for feed in stage.feeds):
            return
        assert stage.result is not None
        if any(not isinstance(leaf, Static) and leaf[0] == "leaf" for leaf in stage.result[0]):
            return
        entry.fast = tuple(feed.key[1] for feed in stage.feeds)
        self._quick[tuple(leaf.layout for leaf in leaves)] = entry

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        if kwargs:
            bound = self.signature().bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        raw, structure = _arguments.flatten((args, kwargs))
        leaves = [
            _arguments.leaf(item, lambda number=number: f"argument leaf {number} of {self.label}")  # type: ignore[misc]
            for number, item in enumerate(raw)
        ]
        session = _slice.current_session()
        for leaf in leaves:
            if isinstance(leaf, Future):
                leaf.buffer()  # raises when it was given up
                if leaf.slice.session is not session:
                    raise core.WrongCluster(f"{leaf!r} belongs to another cluster; pass its value, from result()")
        return leaves, structure

    def signature(self) -> inspect.Signature:
        if self._signature is None:
            self._signature = inspect.signature(self._body)
        return self._signature

    def argument_names(self, leaves: Sequence[Any], structure: Any) -> list[str]:
        """A name per leaf: the parameter's, with a number where it has several."""
        args, kwargs = _arguments.unflatten(range(len(leaves)), structure)
        names = ["arg"] * len(leaves)
        try:
            bound = self.signature().bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            return names
        for name, tree in bound.items():
            numbers = _arguments.flatten(tree, lists=False)[0]
            for place, number in enumerate(numbers):
                names[number] = _function.ir_name(name if len(numbers) == 1 else f"{name}.{place}")
        return names

    def body(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._body(*args, **kwargs)


class _Tracing:
    """One trace of a program, which runs its stages as it meets their ends."""

    def __init__(
        self,
        program: Program,
        leaves: Sequence[Any],
        structure: Any,
        *,
        run: bool,
        entry: _Entry | None = None,
        path: Sequence[Passed] = (),
        environment: Environment | None = None,
    ) -> None:
        self._program = program
        self._leaves = leaves
        self._structure = structure
        self._run = run
        self._entry = entry or _Entry()
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

    def go(self) -> _Entry:
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


Kind = Literal["dataflow", "step"]


@overload
def program(
    fn: None = None, *, donate: Sequence[int] = (), name: str = "", dispatch: str = "parallel", kind: Kind | None = None
) -> Callable[[Callable[..., Any]], Any]: ...


@overload
def program(
    fn: Callable[..., Any],
    *,
    donate: Sequence[int] = (),
    name: str = "",
    dispatch: str = "parallel",
    kind: Literal["dataflow"],
) -> Program: ...


@overload
def program(
    fn: Callable[..., Any],
    *,
    donate: Sequence[int] = (),
    name: str = "",
    dispatch: str = "parallel",
    kind: Literal["step"],
    ignore: Collection[str] = (),
) -> CapturedStep: ...


@overload
def program(
    fn: Callable[..., Any],
    *,
    donate: Sequence[int] = (),
    name: str = "",
    dispatch: str = "parallel",
    kind: None = None,
    ignore: Collection[str] = (),
) -> Any: ...


def program(
    fn: Callable[..., Any] | None = None,
    *,
    donate: Sequence[int] = (),
    name: str = "",
    dispatch: str = "parallel",
    kind: Kind | None = None,
    ignore: Collection[str] = (),
) -> Any:
    """Makes one program of what ``fn`` does; use as ``@pw.program``.

    - *dataflow*: ``fn`` calls compiled functions (``pw.function``). A ``Program``: traced once, its calls give futures.
    - *step*: ``fn`` is a training step on ``pw.device()``. A ``CapturedStep``: traced until two calls agree, then
      replayed with parameters and optimizer state re-bound in place.

    Args:
        donate: of a dataflow program, positions of arguments whose futures the caller gives up with the call.
        name: what errors and status call it; default: its own name.
        dispatch: of a dataflow program. ``"parallel"``: one message per host for all nodes. ``"sequential"``: node by
            node, each when what it needs exists, so that a call waits; to compare with, and to find a node that fails.
        kind: one of the two. None: dataflow if ``fn``, or the user's code that it names, refers to a compiled function
            or a dataflow program at this time; else a step.
        ignore: of a step, names of numbers, texts and switches as its warnings call them (``"self.calls"``), that are
            no concern of what it computes. They are not compared, and replays do not change them.
    """

    if dispatch not in ("parallel", "sequential"):
        raise ValueError(f"dispatch must be 'parallel' or 'sequential', got {dispatch!r}")
    if kind not in (None, "dataflow", "step"):
        raise ValueError(f"kind must be 'dataflow' or 'step', got {kind!r}")
    asked = bool(donate) or dispatch == "sequential"  # which only dataflow programs know
    if kind == "step" and asked:
        raise ValueError("a step is replayed whole and gives up no argument: leave out donate and dispatch")

    def decorate(given: Callable[..., Any]) -> Program | CapturedStep:
        if not callable(given):
            raise TypeError(f"@pw.program needs a callable, got {given!r}")
        kinds = (_function.CompiledFunction, Program)
        if kind == "step" or (kind is None and not asked and not _capture_walk.reaches(given, kinds)):
            return CapturedStep(given, name=name, ignore=ignore)
        return Program(
            given,
            donate=donate,
            name=_function.ir_name(name) if name else "",
            sequential=dispatch == "sequential",
        )

    return decorate if fn is None else decorate(fn)
