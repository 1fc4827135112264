"""``@pw.function``: a PyTorch function compiled for a slice, pure in its arguments (paper 3)."""

from __future__ import annotations

import functools
import inspect
import os
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from ptpathways import core, ir
from ptpathways.frontend.base import _locator, _state
from ptpathways.frontend.dataflow import _arguments
from ptpathways.frontend.dataflow._arguments import Static
from ptpathways.frontend.slices import _placements
from ptpathways.frontend.slices._future import Layout, layout_of
from ptpathways.frontend.slices._slice import VirtualSlice
from ptpathways.frontend.xla import _trace
from ptpathways.frontend.xla._trace import SEED, DataDependent, TensorSpec

if TYPE_CHECKING:
    import torch

SEED_SPEC = TensorSpec((), "s64")


class IrregularFunctionWarning(UserWarning):
    """Warns that a function's result shapes or branches depend on values, so it is not compiled (Pathways, appendix B).

    It runs on the client after its arguments have been fetched, and what follows waits for it. Given once per function.
    Pass ``regular=False`` if this is intended, or rewrite the line with operations of known output size.
    """


@dataclass(frozen=True, slots=True)
class Specialisation:
    """A function compiled for certain types of its arguments."""

    function: ir.Function
    module: bytes
    parameters: tuple[int, ...]
    """What the compiled function takes: positions among the tensor leaves of the arguments, or ``SEED``."""
    results: tuple[Layout | Static, ...]
    """By leaf of what the function returns."""
    structure: Any
    """Of what the function returns."""

    @property
    def layouts(self) -> list[Layout]:
        return [result for result in self.results if isinstance(result, Layout)]


class CompiledFunction:
    """A function compiled for a slice (Pathways, section 3). Made by ``function``.

    Called alone, it runs as a program of one node; inside a ``program``, a call adds a node to its graph. A call
    returns futures in the structure that the function returns.

    Attributes:
        slice: the slice it runs on.
        name: name in programs and errors.
        source: where it is defined, ``file.py:12``.
        donate: positions of the donated arguments.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        slice: VirtualSlice,
        *,
        in_placements: Any = None,
        out_placements: Any = None,
        donate: Sequence[int] = (),
        regular: bool | None = None,
        name: str = "",
        seed: int | None = None,
    ) -> None:
        """Makes a compiled function, as ``function`` does.

        Args:
            seed: which tensor argument, an int64 scalar, seeds its random numbers; None: each call draws a seed of its
                own.
        """
        functools.update_wrapper(self, function, updated=())
        self.slice = slice
        self.name = name or ir_name(getattr(function, "__name__", "function"))
        self.source = source_of(function)
        self.donate = tuple(donate)
        self._function = function
        self._in_placements = in_placements
        self._out_placements = out_placements
        self._regular = regular
        self._seed = seed
        self._specialisations: dict[Any, Specialisation] = {}
        self._signature: inspect.Signature | None = None
        self._lock = threading.RLock()
        from ptpathways.frontend.dataflow import _program, _program_trace

        self._alone = _program.Program(self, donate=self.donate, name=self.name, source=self.source)
        self._current_trace = _program_trace.current_trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submits a run and returns futures at once.

        The first call with new types of arguments traces the function. An irregular function waits for its arguments.

        Raises:
            CapturedTensor, ImpureFunction: tracing finds that the function is not pure.
            InvalidProgram: the function depends on values, and ``regular=True``.
            InvalidSharding: a placement does not fit the slice or does not divide a shape.
            UsedAfterDonation, WrongCluster, SliceUnavailable, NotInitialized: an argument or the slice cannot be used.
            TypeError: an argument can be neither a value nor hashed, or the function returns no tensor.
        """
        if _trace.tracing():
            return self._function(*args, **kwargs)
        trace = self._current_trace()
        if trace is not None:
            return trace.call(self, args, kwargs)
        return self._alone(*args, **kwargs)

    @property
    def label(self) -> str:
        """Name and source, ``f (file.py:12)``, as in errors."""
        return f"{self.name} ({self.source})" if self.source else self.name

    @property
    def irregular(self) -> bool:
        """Whether it runs on the client; known from ``regular=``, or after its first trace."""
        return self._regular is False

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with keyword arguments moved to their positions. Raises TypeError as a call would."""
        if not kwargs:
            return args, kwargs
        bound = self.signature().bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def signature(self) -> inspect.Signature:
        """Returns the signature of the Python function."""
        if self._signature is None:
            self._signature = inspect.signature(self._function)
        return self._signature

    def call_on_host(self, leaves: Sequence[Any], structure: Any) -> Any:
        """Runs the Python function on the client, without gradients.

        Args:
            leaves: of ``(args, kwargs)``: CPU tensors and other values.
            structure: that of ``(args, kwargs)``.
        """
        args, kwargs = _arguments.unflatten(leaves, structure)
        import torch

        with torch.no_grad():
            return self._function(*args, **kwargs)

    def specialise(
        self, leaves: Sequence[TensorSpec | Static], structure: Any, source: str = ""
    ) -> Specialisation | None:
        """Returns the function compiled for these leaves of ``(args, kwargs)``; None if it is irregular."""
        if self.irregular:
            return None
        key = (structure, tuple(leaves))
        found = self._specialisations.get(key)
        if found is None:
            with self._lock:
                found = self._specialisations.get(key)
                if found is None:
                    try:
                        found = self._specialisations[key] = self._trace(leaves, structure)
                    except DataDependent as reason:
                        self._become_irregular(reason)
                        return None
        return found

    def in_shardings(self, leaves: Sequence[TensorSpec | Static], structure: Any) -> list[Any]:
        """Returns the sharding that each leaf of ``(args, kwargs)`` must have; None for a leaf that is not a tensor.

        Raises:
            InvalidSharding: a placement does not fit the slice or divide a shape; the message names the argument.
        """
        args, kwargs = _arguments.unflatten(range(len(leaves)), structure)
        given = self._in_placements
        what = f"in_placements of function {self.label}"
        if _placements.is_layout(given):
            chosen = [given] * len(leaves)
        elif isinstance(given, dict):
            names = {**dict(zip(self.signature().parameters, args, strict=False)), **kwargs}
            chosen = [None] * len(leaves)
            for name, layout in given.items():
                if name not in names:
                    raise core.InvalidSharding(f"{what}: it has no argument {name!r}; it has {', '.join(names)}")
                self._assign(chosen, layout, names[name], what)
        else:
            chosen = [None] * len(leaves)
            self._assign(chosen, given, args, what)
        return [
            self._layout(leaf, layout, f"argument leaf {number} of function {self.label}").sharding
            if isinstance(leaf, TensorSpec)
            else None
            for number, (leaf, layout) in enumerate(zip(leaves, chosen, strict=True))
        ]

    @staticmethod
    def _assign(chosen: list[Any], given: Any, numbered: Any, what: str) -> None:
        numbers = _arguments.flatten(numbered, lists=False)[0]
        for number, layout in zip(numbers, _placements.spread(given, numbered, what), strict=True):
            chosen[number] = layout

    def _layout(self, spec: TensorSpec, given: Any, what: str) -> Layout:
        try:
            return layout_of(spec, _placements.sharding(given, self.slice.mesh, len(spec.shape)), self.slice)
        except core.InvalidSharding as error:
            raise core.InvalidSharding(f"{what}, {spec}, on {self.slice!r}: {error}") from None

    def _trace(self, leaves: Sequence[TensorSpec | Static], structure: Any) -> Specialisation:
        shardings = self.in_shardings(leaves, structure)  # before tracing: the cheaper error first
        tensors = [number for number, leaf in enumerate(leaves) if isinstance(leaf, TensorSpec)]
        returned: list[Any] = []

        def call(placeholders: list[torch.Tensor]) -> list[torch.Tensor]:
            values: list[Any] = [leaf.value if isinstance(leaf, Static) else None for leaf in leaves]
            for number, placeholder in zip(tensors, placeholders, strict=True):
                values[number] = placeholder
            args, kwargs = _arguments.unflatten(values, structure)
            parts, shape = _arguments.flatten(self._function(*args, **kwargs), lists=False)
            found = [part for part in parts if _is_tensor(part)]
            if not found:
                raise TypeError(
                    f"{self.label} must return a tensor, or something with tensors in it, got "
                    f"{_arguments.unflatten(parts, shape)!r}; return what it computes"
                )
            returned.extend([shape, [None if _is_tensor(part) else _static(part, self.label) for part in parts]])
            return found

        donated = self._donated_leaves(structure, tensors)
        specs = [leaf for leaf in leaves if isinstance(leaf, TensorSpec)]
        lowered = _trace.lower(call, specs, name=self.name, donated=donated)
        shape, parts = returned
        fresh = iter(lowered.results)
        results = self._results([next(fresh) if part is None else part for part in parts], shape)
        position_of = {number: position for position, number in enumerate(tensors)}
        sharding_of = {position_of[number]: shardings[number] for number in tensors}
        parameters = tuple(self._seed if p == SEED and self._seed is not None else p for p in lowered.parameters)
        inputs = tuple(self._input(p, specs, sharding_of) for p in parameters)
        outputs = tuple(value_type(result) for result in results if isinstance(result, Layout))
        made = ir.Function(
            name=self.name,
            slice=self.slice.name,
            inputs=inputs,
            outputs=outputs,
            source=self.source,
            digest=ir.digest_of(lowered.module),
            donated=tuple(i for i, position in enumerate(parameters) if position in donated),
        )
        return Specialisation(made, lowered.module, parameters, tuple(results), shape)

    def _input(self, position: int, specs: Sequence[TensorSpec], sharding_of: dict[int, Any]) -> ir.ValueType:
        if position == SEED:
            return value_type(self._layout(SEED_SPEC, None, "the seed"))
        return ir.ValueType(specs[position].dtype, specs[position].shape, sharding_of[position])

    def results_on_slice(self, leaves: Sequence[TensorSpec | Static], structure: Any) -> list[Layout | Static]:
        """Returns the layouts of what an irregular function returned, once it is on the slice."""
        return self._results(leaves, structure)

    def _results(self, leaves: Sequence[TensorSpec | Static], structure: Any) -> list[Layout | Static]:
        numbered = _arguments.unflatten(range(len(leaves)), structure)
        chosen: list[Any] = [None] * len(leaves)
        if _placements.is_layout(self._out_placements):
            chosen = [self._out_placements] * len(leaves)
        else:
            self._assign(chosen, self._out_placements, numbered, f"out_placements of function {self.label}")
        return [
            self._layout(leaf, layout, f"result leaf {number} of function {self.label}")
            if isinstance(leaf, TensorSpec)
            else leaf
            for number, (leaf, layout) in enumerate(zip(leaves, chosen, strict=True))
        ]

    def donated_leaves(self, structure: Any) -> set[int]:
        """Returns the positions of the leaves of ``(args, kwargs)`` that the caller donates."""
        return leaves_at(self.donate, structure, f"donate of {self.label}")

    def _donated_leaves(self, structure: Any, tensors: Sequence[int]) -> set[int]:
        """As ``donated_leaves``, counted among the tensors."""
        donated = self.donated_leaves(structure)
        return {position for position, number in enumerate(tensors) if number in donated}

    def _become_irregular(self, reason: DataDependent) -> None:
        where = f" at {reason.source}" if reason.source else ""
        if self._regular is True:
            raise core.InvalidProgram(
                f"function {self.label} was said to be regular, but {reason.operation}{where} depends on the values of "
                "its arguments; rewrite it with operations of known output size, or leave regular= out"
            )
        self._regular = False
        message = (
            f"function {self.label} is irregular: {reason.operation}{where} depends on values, so it runs on the "
            "client each time, and what follows waits for it (regular=False says that this is meant)"
        )
        frame = _locator.user_frame()
        if frame is None:
            warnings.warn(message, IrregularFunctionWarning, stacklevel=2)
        else:
            warnings.warn_explicit(
                message, IrregularFunctionWarning, frame.f_code.co_filename, frame.f_lineno, registry={}
            )

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        raise TypeError(
            f"@pw.function {self.label} is a method: an object has state that a compiled function cannot know; make it "
            "a plain function and pass the tensors it needs"
        )

    def __repr__(self) -> str:
        return f"<function {self.label} on {self.slice!r}>"


@overload
def function(
    fn: None = None,
    *,
    slice: VirtualSlice,
    in_placements: Any = None,
    out_placements: Any = None,
    donate: Sequence[int] = (),
    regular: bool | None = None,
    name: str = "",
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...


@overload
def function(
    fn: Callable[..., Any],
    *,
    slice: VirtualSlice,
    in_placements: Any = None,
    out_placements: Any = None,
    donate: Sequence[int] = (),
    regular: bool | None = None,
    name: str = "",
) -> CompiledFunction: ...


def function(
    fn: Callable[..., Any] | None = None,
    *,
    slice: VirtualSlice,
    in_placements: Any = None,
    out_placements: Any = None,
    donate: Sequence[int] = (),
    regular: bool | None = None,
    name: str = "",
) -> CompiledFunction | Callable[[Callable[..., Any]], CompiledFunction]:
    """Compiles a PyTorch function for a slice (Pathways, section 3); use as ``@pw.function(slice=s)``.

    Its first call with new argument types traces it. It must be pure: it uses only its arguments, and returns all that
    it makes. Arguments that are floats (float32), lists of numbers, arrays and tensors are values; others, such as ints
    and strings, are compiled into the function. Factory functions such as ``torch.zeros`` make tensors on the slice.

    Args:
        fn: the function; None: returns a decorator.
        slice: where it runs.
        in_placements: how arguments lie on the slice. Per mesh axis ``torch.distributed.tensor``'s ``Shard(dim)`` or
            ``Replicate()`` in a list; or a partition spec, a tuple of axis names per dimension. One for all; or a list
            with one per argument; or a dict by argument name. Default: a replica on each device.
        out_placements: the same for what it returns.
        donate: positions of arguments that the caller donates, so that results may use their memory.
        regular: whether result shapes are known before it runs; None: found out by tracing. An irregular function runs
            on the client.
        name: name in programs and errors; default: the function's own.

    Raises:
        TypeError: an argument has the wrong type, such as a ``slice`` that is not a ``VirtualSlice``.
        ValueError: a position in ``donate`` is negative.
    """
    if not isinstance(slice, VirtualSlice):
        raise TypeError(f"slice must be a slice from cluster.slice(), got {slice!r}")
    donate = check_donate(donate)
    core.check_text(name, "name")
    if regular is not None and not isinstance(regular, bool):
        raise TypeError(f"regular must be True, False, or None to find out, got {regular!r}")

    def decorate(given: Callable[..., Any]) -> CompiledFunction:
        check_callable(given, "@pw.function")
        return CompiledFunction(
            given,
            slice,
            in_placements=in_placements,
            out_placements=out_placements,
            donate=donate,
            regular=regular,
            name=ir_name(name) if name else "",
        )

    return decorate if fn is None else decorate(fn)


def check_callable(given: Any, decorator: str) -> None:
    """Raises TypeError unless it is something to call that is no class."""
    if not callable(given) or isinstance(given, type):
        raise TypeError(f"{decorator} needs a callable, got {given!r}")


def check_donate(donate: Any) -> tuple[int, ...]:
    """Positions of arguments as ints.

    Raises:
        TypeError: they are no list, or no numbers.
        ValueError: they count from the end.
    """
    if isinstance(donate, str | bytes) or not isinstance(donate, Sequence):
        raise TypeError(f"donate must be a list of positions of arguments, from 0, got {donate!r}")
    found = []
    for position in donate:
        try:
            found.append(core.whole_number(position, "a position"))
        except TypeError:
            raise TypeError(f"donate takes positions of arguments, from 0, got {position!r}") from None
        if found[-1] < 0:
            raise ValueError(f"donate takes positions of arguments, from 0, got {position!r}")
    return tuple(found)


def value_type(layout: Layout) -> ir.ValueType:
    """The IR's type of a layout."""
    return ir.ValueType(layout.spec.dtype, layout.spec.shape, layout.sharding)


def leaves_at(positions: Sequence[int], structure: Any, what: str) -> set[int]:
    """Leaves of ``(args, kwargs)`` under the arguments at ``positions``.

    Raises:
        TypeError, ValueError: there is no such argument. ``what`` says who named it: ``"donate of f"``.
    """
    if isinstance(positions, str | bytes) or not isinstance(positions, Sequence):
        raise TypeError(f"{what} takes positions of arguments, from 0, got {positions!r}")
    if not positions:
        return set()
    args, _ = _arguments.unflatten(range(structure.num_leaves), structure)
    found: set[int] = set()
    for position in positions:
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"{what} takes positions of arguments, from 0, got {position!r}")
        if not 0 <= position < len(args):
            raise ValueError(f"{what} names argument {position}, and there are {len(args)}; they count from 0")
        found.update(_arguments.flatten(args[position], lists=False)[0])
    return found


def ir_name(name: str) -> str:
    """``name`` with letters that the IR's names have."""
    made = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
    return made if made[:1].isalpha() or made[:1] == "_" else f"f_{made}"


def source_of(function: Callable[..., Any]) -> str:
    """``file:line`` of a function; empty for one that has no Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return short_source(f"{code.co_filename}:{code.co_firstlineno}") if code is not None else ""


def short_source(source: str) -> str:
    """``file:line`` relative to the working directory, where it lies below that."""
    folder = os.getcwd() + os.sep
    return source.removeprefix(folder)


def _is_tensor(part: Any) -> bool:
    import torch

    return isinstance(part, torch.Tensor)


def _static(part: Any, label: str) -> Static:
    try:
        hash(part)
    except TypeError:
        raise TypeError(
            f"function {label} returned a {type(part).__name__}, which is neither a tensor nor a plain value"
        ) from None
    return Static(type(part), part)


def check_usable(slice: VirtualSlice) -> None:
    """Raises NotInitialized, WrongCluster or SliceUnavailable unless something can be submitted to ``slice`` now."""
    connection = _state.runtime().connection
    if connection is not None:
        slice.check(connection.session)
