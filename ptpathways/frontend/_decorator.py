"""``@pw.program``: a dataflow program or a captured step, by what the function calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, overload

from ptpathways import core
from ptpathways.frontend.capture._captured_step import CapturedStep
from ptpathways.frontend.capture.objects import _walk
from ptpathways.frontend.dataflow import _function
from ptpathways.frontend.dataflow._program import Program

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
    """Compiles what ``fn`` does into one program; use as ``@pw.program``.

    - *dataflow*: ``fn`` calls compiled functions (``function``). Makes a ``Program``: traced once, its calls return
      futures (Pathways, sections 3 and 4.2).
    - *step*: ``fn`` is a training step on ``device()``. Makes a ``CapturedStep``: traced until two calls agree, then
      replayed on the current parameters and optimizer state, which it changes in place.

    Args:
        fn: a function, or for a step also a module; None: returns a decorator.
        donate: of a dataflow program, positions of arguments whose futures the caller donates with the call.
        name: name in errors and status; default: the function's own.
        dispatch: of a dataflow program. ``"parallel"``: one message per host for all nodes (Pathways, section 4.5).
            ``"sequential"``: node by node, each when its inputs exist, so a call waits; for comparison, and to find a
            node that fails.
        kind: ``"dataflow"`` or ``"step"``. None: dataflow if ``fn``, or the user's code that it names, refers to a
            compiled function or a dataflow program at this time, or if ``donate`` or ``dispatch="sequential"`` is
            given; else a step.
        ignore: of a step, names of Python numbers, strings and booleans that do not affect what it computes, as its
            warnings name them (``"self.calls"``). Guards do not check them, and replays do not change them.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an unknown ``kind`` or ``dispatch``, a negative position, or an argument of the other kind.
    """
    core.check_text(name, "name")
    donate = _function.check_donate(donate)
    ignore = core.texts(ignore, "ignore")
    if dispatch not in ("parallel", "sequential"):
        raise ValueError(f"dispatch must be 'parallel' or 'sequential', got {dispatch!r}")
    if kind not in (None, "dataflow", "step"):
        raise ValueError(f"kind must be 'dataflow' or 'step', got {kind!r}")
    asked = bool(donate) or dispatch == "sequential"  # which only dataflow programs know
    if kind == "step" and asked:
        raise ValueError("a step is replayed whole and gives up no argument: leave out donate and dispatch")

    def decorate(given: Callable[..., Any]) -> Program | CapturedStep:
        _function.check_callable(given, "@pw.program")
        kinds = (_function.CompiledFunction, Program)
        if kind == "step" or (kind is None and not asked and not _walk.reaches(given, kinds)):
            return CapturedStep(_as_function(given), name=name, ignore=ignore)
        if ignore:
            raise ValueError("a dataflow program compares no numbers or texts between calls: leave out ignore")
        return Program(
            given,
            donate=donate,
            name=_function.ir_name(name) if name else "",
            sequential=dispatch == "sequential",
        )

    return decorate if fn is None else decorate(fn)


def _as_function(given: Callable[..., Any]) -> Callable[..., Any]:
    """A module as a function that calls it: what torch's own code does around ``forward`` is then not part of it."""
    import torch

    if not isinstance(given, torch.nn.Module):
        return given

    def call(*args: Any, **kwargs: Any) -> Any:
        return given(*args, **kwargs)

    call.__name__ = call.__qualname__ = type(given).__name__
    call.written_as = type(given).forward  # type: ignore[attr-defined]  # for warnings
    return call
