"""Running the stages of a program: what goes in is uploaded where it must be, what comes out are futures."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core, native, programs
from ptpathways.frontend.dataflow import _arguments
from ptpathways.frontend.dataflow._arguments import HostValue, Static
from ptpathways.frontend.dataflow._graph import Stage
from ptpathways.frontend.dataflow._upload import upload
from ptpathways.frontend.dataflow._value import Key
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.slices._future import DEFAULT_TIMEOUT_S, Future, Layout

if TYPE_CHECKING:
    from ptpathways.native import Session

Environment = dict[Key, Any]
"""What the values of one run are: futures, host values, or buffers."""


@dataclass(slots=True)
class Passed:
    """An irregular function that has run."""

    stage: Stage
    signature: Any
    parts: list[Layout | Static]
    structure: Any


def submit(stage: Stage, environment: Environment, label: str) -> None:
    """Submits a stage's run; its results are put into ``environment`` as futures."""
    if stage.bound is None:
        return
    session = _slice.current_session()
    for used in stage.slices:
        used.check(session)
    buffers = []
    given_up: list[Future] = []
    donated = stage.bound.donated
    for number, feed in enumerate(stage.feeds):
        source: Any = environment.get(feed.key)
        if feed.constant is not None:
            buffers.append(feed.constant)
        elif feed.key[0] == "seed":
            buffers.append(upload(_fresh_seed(), feed.layout))
        elif isinstance(source, Future):
            buffers.append(source.buffer())
            if number in donated:
                given_up.append(source)
        else:
            buffers.append(upload(source.tensor, feed.layout))
    times = collections.Counter(id(environment.get(feed.key)) for feed in stage.feeds) if given_up else {}
    for future in given_up:
        if times[id(future)] > 1:
            raise core.UsedAfterDonation(f"{label} was given {future!r} twice, and once to give up; pass another value")
    with native.translated():
        made = stage.bound.run(buffers)
    for future in given_up:
        future.give_up(f"a call of {label}")
    for buffer, (key, layout) in zip(made, stage.outputs, strict=True):
        environment[key] = Future(buffer, layout)


def run_host_call(stage: Stage, environment: Environment, number: int) -> Passed:
    """Fetches an irregular function's arguments, runs it here, and puts its results on its slice."""
    call = stage.call
    assert call is not None
    values: list[Any] = []
    for leaf in call.leaves:
        if isinstance(leaf, Static):
            values.append(leaf.value)
            continue
        found = environment[leaf]
        values.append(found.result(DEFAULT_TIMEOUT_S) if isinstance(found, Future) else found.tensor)
    returned = call.function.call_on_host(values, call.structure)
    raw, structure = _arguments.flatten(returned, lists=False)
    items: list[Any] = [
        _arguments.leaf(item, lambda: f"a result of irregular function {call.function.label}")
        if _arguments.is_array(item)
        else Static(type(item), item)
        for item in raw
    ]
    types = [item.spec if isinstance(item, HostValue) else item for item in items]
    parts = call.function.results_on_slice(types, structure)
    for place, (item, part) in enumerate(zip(items, parts, strict=True)):
        if isinstance(part, Layout):
            environment["host", number, place] = Future(upload(item.tensor, part), part)
    return Passed(stage, (structure, tuple(types)), parts, structure)


def rebuild(result: tuple[list[Key | Static], Any], environment: Environment) -> Any:
    leaves, structure = result
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Static):
            found.append(leaf.value)
        else:
            value = environment[leaf]
            found.append(value.tensor if isinstance(value, HostValue) else value)
    return _arguments.unflatten(found, structure)


def key_of(leaves: Sequence[Any], structure: Any) -> Any:
    parts = (
        leaf.layout if isinstance(leaf, Future) else leaf.spec if isinstance(leaf, HostValue) else leaf
        for leaf in leaves
    )
    return structure, tuple(parts)


def _fresh_seed() -> Any:
    """The next seed, out of torch's own generator, so that ``torch.manual_seed`` decides it."""
    import torch

    return torch.empty((), dtype=torch.int64).random_()


_of_session: dict[int, programs.Functions] = {}


def functions_of(session: Session) -> programs.Functions:
    """The compiled functions of this process's session. There is one session in a process's life."""
    found = _of_session.get(id(session))
    if found is None:
        _of_session.clear()
        found = _of_session[id(session)] = programs.Functions(session)
    return found
