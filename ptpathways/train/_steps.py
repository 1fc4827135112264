"""Functions among what ``prepare`` is given: the training step, or the evaluation, of a loop."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

from ptpathways import frontend


def is_step(thing: Any) -> bool:
    """Whether this is a function: one of Python, a bound method, a partial call, or a captured step."""
    return isinstance(thing, types.FunctionType | types.MethodType | functools.partial | frontend.CapturedStep)


def captured(thing: Any) -> Any:
    """A function as a captured step; one that is captured already, and everything else, as it is."""
    if not is_step(thing) or isinstance(thing, frontend.CapturedStep):
        return thing
    return frontend.program(thing, kind="step")


def check_given(objects: Sequence[Any]) -> None:
    """Raises TypeError, for ``capture=True``, unless one of the objects is a function."""
    if any(is_step(thing) for thing in objects):
        return
    got = ", ".join(type(thing).__name__ for thing in objects)
    raise TypeError(
        f"prepare(capture=True) captures the training step, a function among what it is given, and got only: {got}. "
        "Put what the loop does with a batch into a function:\n"
        "    def train_step(x, y): ...  # zero_grad, forward, backward, optimizer.step; returns the loss\n"
        "    model, optimizer, loader, train_step = pw.prepare(model, optimizer, loader, train_step, capture=True)"
    )
