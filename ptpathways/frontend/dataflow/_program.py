"""Many calls of compiled functions as one program, traced once and replayed (paper 3, 4.2)."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ptpathways import core, ir, native, programs
from ptpathways.frontend.dataflow import _arguments, _function, _save
from ptpathways.frontend.dataflow._arguments import Static
from ptpathways.frontend.dataflow._program_trace import Entry, Tracing, current_trace
from ptpathways.frontend.dataflow._run import Environment, Passed, key_of, rebuild, run_host_call, submit
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.slices._future import Future, Layout


class Program:
    """A traced dataflow program (Pathways, sections 3 and 4.2). Made by ``program``.

    A call submits one run, with one message per host that takes part, and returns futures in the structure that the
    Python function returned. It is traced once per structure, types and static values of its arguments; a replay runs
    none of its Python, except for irregular functions (``docs/programs.md``). Inside another program, a call is
    inlined.

    Attributes:
        name: name in errors and status.
        source: where it is defined, ``file.py:12``.
        donate: positions of the donated arguments.
        sequential: whether nodes are dispatched one by one.
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
        self._entries: dict[Any, Entry] = {}
        self._quick: dict[tuple[Layout, ...], Entry] = {}
        self._moves = _slice.moves()
        self._lock = threading.RLock()
        self._signature: inspect.Signature | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submits a run and returns futures at once.

        Raises:
            CapturedTensor, ImpureFunction, InvalidProgram, InvalidSharding: by the call that traces it.
            UsedAfterDonation, WrongCluster, SliceUnavailable, NotInitialized: an argument or a slice cannot be used.
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
        """Returns the program's graph for such arguments; nothing runs. ``print`` it.

        Raises:
            InvalidProgram: it has an irregular function, whose result shapes are not known yet; call the program once
                before.
        """
        leaves, structure = self._prepare(args, kwargs)
        entry = self._entry(leaves, structure)
        assert entry.whole is not None
        return entry.whole

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Returns the graph after each lowering pass, and the plan of each host, as text. Raises as ``trace`` does."""
        leaves, structure = self._prepare(args, kwargs)
        entry = self._entry(leaves, structure)
        assert entry.whole is not None
        return ir.explain(entry.whole, entry.devices, programs.hosts_of(_slice.current_session()))

    def svg(self, path: str | Path, *args: Any, **kwargs: Any) -> Path:
        """Writes the graph for such arguments as an SVG picture, nodes coloured by slice. Raises as ``trace`` does.

        Returns:
            The path of the file.
        """
        target = Path(core.path_text(path))
        target.write_text(ir.to_svg(self.trace(*args, **kwargs)), encoding="utf-8")
        return target

    def save(self, path: str | Path, *args: Any, weights: Sequence[int] | None = None, **kwargs: Any) -> Path:
        """Writes the program into one file, which ``ptpathways replay`` runs without torch.

        Args:
            path: the file to write.
            args: example arguments, as are ``kwargs``. Without any, the program must have been traced for one kind of
                arguments, and no values are saved.
            weights: positions of the arguments whose values are saved; default: all example arguments.

        Returns:
            The path of the file.

        Raises:
            InvalidProgram: it has irregular functions, computes nothing, or was traced for several kinds of arguments.
            TypeError, ValueError: ``path`` is not a path, or ``weights`` has a position without an argument.
        """
        target = core.path_text(path)
        return self._bundle(args, kwargs, weights, "save()").save(target)

    def compile_for(self, target: str, *args: Any, plugin: str = "", **kwargs: Any) -> programs.CompiledFor:
        """Compiles the program for chips that need not be here, as ``ptpathways compile`` does; nothing runs.

        Args:
            target: chip and shape: ``"h200:2x8"`` is 2 hosts of 8 GPUs, ``"v5e:4x4"`` a torus of 16 TPUs.
            args: example arguments, as are ``kwargs``; only their types matter. Without any, the program must have been
                traced for one kind of arguments.
            plugin: path of the PJRT plugin that compiles; default: the best that is installed.

        Returns:
            Peak memory per device in bytes and an estimated time of a run in seconds. Functions that the compiler
            refuses are reported there (``verdict``), not raised.

        Raises:
            InvalidOption: no such target, or one with fewer devices than a slice of the program.
            PluginNotFound: the plugin that compiles for it is not installed.
            CompileFailed: the compiler ended without an answer.
            InvalidProgram: as ``save``.
        """
        return programs.compile_apart(self._bundle(args, kwargs, (), "compile_for()"), target, plugin)

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
        """Name and source, ``f (file.py:12)``, as in errors."""
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

    def _entry(self, leaves: Sequence[Any], structure: Any) -> Entry:
        """The entry for such arguments, traced without running if it is new."""
        key = key_of(leaves, structure)
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                entry = Tracing(self, leaves, structure, run=False).go()
                self._entries[key] = entry
        return entry

    def _trace_and_run(self, leaves: Sequence[Any], structure: Any, key: Any) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                tracing = Tracing(self, leaves, structure, run=True)
                self._entries[key] = tracing.go()
                return tracing.result
        return self._run(entry, leaves, structure)

    def _run(self, entry: Entry, leaves: Sequence[Any], structure: Any) -> Any:
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
            tracing = Tracing(self, leaves, structure, run=True, entry=entry, path=path, environment=environment)
            tracing.go()
            return tracing.result

    def _replay(self, entry: Entry, futures: tuple[Future, ...]) -> Any:
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
        self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
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
        """Returns the signature of the Python function."""
        if self._signature is None:
            self._signature = inspect.signature(self._body)
        return self._signature

    def argument_names(self, leaves: Sequence[Any], structure: Any) -> list[str]:
        """Returns a name per leaf: that of the parameter, with a number if it has several."""
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
        """Runs the Python function."""
        return self._body(*args, **kwargs)
