"""Compiles after warm-up: noticed where PyTorch/XLA asks for them, told of once with their cause.

The plugin says what it is given to compile (a summary of the module); nothing else happens there. What is new is
compared with the modules before at the end of the cut or fetch that caused it, so the loop pays only for compiles.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.base import _frames, _locator, _state
from ptpathways.frontend.diagnostics._compile_diff import (
    ARGUMENTS_HINT,
    Cause,
    Instruction,
    Module,
    cause_of,
    most_alike,
)
from ptpathways.frontend.xla import _dtypes

if TYPE_CHECKING:
    import torch

WARM_UP = 3
"""A line's first so many runs may compile: not every optimizer has its state at the first (``_optimizer_state``)."""
KNOWN_MAX = 64
KEPT_MAX = 1000
_NAMES_MAX = 2000


class RecompileWarning(UserWarning):
    """Warns that a computation was compiled after its loop's warm-up, and why. Given once per compile.

    Warm-up is the first three runs of a line. ``recompile_limit`` compiles are reported one by one.
    """


@dataclass(frozen=True, slots=True)
class Recompile:
    """Describes a compile after warm-up. Listed by ``recompiles``."""

    line: str
    """Line of the user's program that caused it, ``file:line``; empty if it is not known."""
    run: int
    """Which run of the line that submitted it, counted from 1."""
    kind: str
    """What differs from earlier computations: ``shape``, ``dtype``, ``number``, ``slice``, ``kept`` or
    ``structure``."""
    cause: str
    """The difference in words."""
    hint: str
    """How to avoid it."""


class Watch:
    """What was compiled so far, and where. One per process; compiles come from any thread."""

    def __init__(self, mode: str, limit: int) -> None:
        self._mode = mode
        self._limit = limit
        self._lock = threading.Lock()
        self._arrived: deque[Module] = deque()
        self._runs: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._compiles: dict[str, int] = {}
        self._known: deque[Module] = deque(maxlen=KNOWN_MAX)
        self._contents: set[int] = set()
        self._kept: deque[Recompile] = deque(maxlen=KEPT_MAX)
        self._count = 0

    def arrive(
        self,
        name: str,
        parameters: list[str],
        results: list[str],
        instructions: list[Instruction],
        line: str,
        numbers: int,
    ) -> None:
        """The plugin compiles this. Only noted: the caller is in the middle of something."""
        if getattr(_thread, "expects", False):
            return
        said = [(sys.intern(a), sys.intern(b), sys.intern(c), sys.intern(d)) for a, b, c, d in instructions]
        self._arrived.append(Module(name, tuple(parameters), tuple(results), tuple(said), line, numbers))

    def run(self, line: str, step: int | None = None) -> None:
        """The user's line is about to submit something; with ``step``, again and again in one run of a step."""
        if step is None or self._steps.get(line) != step:
            self._runs[line] = self._runs.get(line, 0) + 1
        if step is not None:
            self._steps[line] = step

    def begin_anew(self) -> None:
        """What runs from here on is a new loop, with a warm-up of its own."""
        with self._lock:
            self._runs.clear()
            self._steps.clear()
            self._compiles.clear()

    def report(self) -> None:
        """Warns of what arrived since the last time, if it is after warm-up.

        Raises:
            TooManyRecompiles: there are more than the limit, and ``init`` was told to raise then.
        """
        while self._arrived:
            with self._lock:
                if not self._arrived:
                    return
                found = self._look_at(self._arrived.popleft())
            if found is not None:
                self._tell(found)

    def recompiles(self) -> tuple[Recompile, ...]:
        """Those so far, of many the last."""
        return tuple(self._kept)

    def _look_at(self, module: Module) -> Recompile | None:
        contents = hash(module.contents)
        if contents in self._contents:
            return None  # the same for another device
        self._contents.add(contents)
        compiles = self._compiles[module.line] = self._compiles.get(module.line, 0) + 1
        run = self._runs.get(module.line, compiles)  # a compile on another thread may find a line that has not run
        alike = most_alike(module, self._known)
        self._known.append(module)
        if run <= WARM_UP or alike is None:
            return None
        if not module.numbers:
            self._count += 1
        if self._count > self._limit + 1:
            cause = Cause("structure", "not looked into: there were too many before", "")
        else:
            cause = cause_of(module, alike, _names_in(_user_frames()))
        own = cause.line and not _locator.is_library(cause.line.rpartition(":")[0])
        hint = ARGUMENTS_HINT if module.numbers else cause.hint
        made = Recompile(cause.line if own else module.line, run, cause.kind, cause.text, hint)
        self._kept.append(made)
        return None if module.numbers else made

    def _tell(self, found: Recompile) -> None:
        if self._count > self._limit:
            if self._mode == "raise":
                raise core.TooManyRecompiles(
                    f"{self._count} computations were compiled after warm-up, and recompile_limit is {self._limit}; "
                    f"the last one, at run {found.run} of {found.line or 'some line'}: {found.cause}; {found.hint}"
                )
            if self._count == self._limit + 1:
                _warn(
                    found.line,
                    f"more than {self._limit} computations were compiled after warm-up (recompile_limit): further ones "
                    "are not told of; pw.recompiles() lists them",
                )
            return
        _warn(
            found.line,
            f"compiled again at run {found.run} of this line: {found.cause}; {found.hint} (docs/recompilation.md)",
        )


_watch: Watch | None = None
_thread = threading.local()


def register(mode: str, limit: int) -> None:
    """Listens to the plugin, unless ``mode`` is ``ignore``."""
    global _watch
    from ptpathways import native

    _watch = Watch(mode, limit) if mode != "ignore" else None
    native.set_compile_listener(_watch.arrive if _watch is not None else None)


def unregister() -> None:
    """Listens no longer; what was found stays."""
    from ptpathways import native

    native.set_compile_listener(None)


@contextlib.contextmanager
def expected() -> Iterator[None]:
    """What this thread compiles inside is no part of a loop, and not told of."""
    before = getattr(_thread, "expects", False)
    _thread.expects = True
    try:
        yield
    finally:
        _thread.expects = before


def about_to_run() -> None:
    """This thread is about to submit or fetch something for the user."""
    if _watch is not None:
        _watch.run(_locator.user_source_line())


def about_to_read(cuts: int) -> None:
    """As ``about_to_run``, for a value. What one step of an optimizer reads (LBFGS) is one run of the line.

    Args:
        cuts: how often the trace was cut so far.
    """
    if _watch is not None:
        _watch.run(_locator.user_source_line(), cuts if _locator.is_inside("/torch/optim/") else None)


def begin_anew() -> None:
    """Warm-up begins again: there is a new model or optimizer, or other values in an optimizer's state."""
    if _watch is not None:
        _watch.begin_anew()


def report() -> None:
    """Tells of what was compiled. Raises TooManyRecompiles, if asked for."""
    if _watch is not None:
        _watch.report()


def recompiles() -> tuple[Recompile, ...]:
    """Returns the compiles after warm-up so far, each with its cause; the last 1000 if there are more.

    Empty with ``init(recompiles="ignore")`` and with ``backend="xla-cpu"``, which does not report compiles.

    Raises:
        NotInitialized: before ``init``.
        TooManyRecompiles: with ``init(recompiles="raise")``, for a compile that no step boundary has reported yet.
    """
    _state.runtime()
    report()
    return _watch.recompiles() if _watch is not None else ()


def _warn(line: str, text: str) -> None:
    filename, _, number = line.rpartition(":")
    warnings.warn_explicit(text, RecompileWarning, filename or "<unknown>", int(number) if number.isdigit() else 1)


def _user_frames() -> Iterator[FrameType]:
    """The user's frames of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _locator.is_library(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _names_in(frames: Iterator[FrameType]) -> Any:
    """What a tensor on a device, of a type, is called in these frames' variables."""
    scopes = [_frames.variables_of(frame) for frame in frames]

    def name_of(type: str) -> str:
        for scope in scopes:
            names = [name for name, tensor in _tensors(scope) if _type_text(tensor) == type]
            if len(set(names)) == 1:
                return f"`{names[0]}`"
            if names:
                return " or ".join(f"`{name}`" for name in dict.fromkeys(names[:3]))
        return ""

    return name_of


def _tensors(scope: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors on devices that the variables name, directly or in a collection; then the parameters of modules."""
    import torch

    left = _NAMES_MAX
    modules: list[tuple[str, torch.nn.Module]] = []
    for name, value in scope.items():
        if isinstance(value, torch.nn.Module):
            modules.append((name, value))
        for where, item in _items(name, value):
            left -= 1
            if left < 0:
                return
            if isinstance(item, torch.Tensor) and item.device.type == "xla":
                yield where, item
    for name, module in modules:
        for where, parameter in module.named_parameters():
            left -= 1
            if left < 0:
                return
            yield f"{name}.{where}", parameter


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", item) for key, item in list(value.items()) if isinstance(key, str | int))
    elif isinstance(value, tuple | list) and len(value) <= 64:
        yield from ((f"{name}[{at}]", item) for at, item in enumerate(value))
    else:
        yield name, value


def _type_text(tensor: torch.Tensor) -> str:
    try:
        return f"{_dtypes.name_of(tensor.dtype)}[{','.join(map(str, tensor.shape))}]"
    except TypeError:
        return ""
