"""Moving values between any two slices and layouts: a program of copies, registered once for each kind of movement."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from ptpathways import native, programs
from ptpathways.frontend.base import _state
from ptpathways.frontend.plans import _plan
from ptpathways.frontend.plans._wiring import Feed, Op, Result, Type, Wiring
from ptpathways.frontend.slices import _slice
from ptpathways.frontend.slices._future import Layout
from ptpathways.sharding import Tiling, tiling_of

_KNOWN_MAX = 4096
_known: collections.OrderedDict[Any, native.Program] = collections.OrderedDict()
_known_of: Any = None
"""The session whose programs these are."""


def type_of(value: native.DeviceValue) -> Type:
    """The type of a value that is on the devices, and how it lies."""
    return Type(value.dtype, value.dims, value.device, value.devices, value.shard_dims, value.tiling)


def type_there(value: native.DeviceValue, index: int, devices: Sequence[int], tiling: Tiling | None) -> Type:
    """The type of ``value`` on other devices, which torch's device ``index`` stands for."""
    parts = tiling[0] if tiling is not None else (1,) * len(value.dims)
    shard = tuple(-(-size // count) for size, count in zip(value.dims, parts, strict=True))
    return Type(value.dtype, value.dims, index, tuple(devices), shard, tiling)


def move(values: Sequence[native.DeviceValue], targets: Sequence[Type]) -> list[native.Buffer]:
    """``values`` as the types of ``targets`` say; one message per host, worker to worker, at once."""
    session = _slice.current_session()
    kinds = tuple((type_of(value), target) for value, target in zip(values, targets, strict=True))
    with native.translated():
        return session.run_program(_program(session, kinds), [value.buffer() for value in values])


def follow(buffer: native.Buffer, layout: Layout) -> native.Buffer:
    """What lies as ``layout`` says on the devices that its slice had, on those that it has now."""
    session = _slice.current_session()
    spec, rank = layout.spec, len(layout.spec.shape)
    shard = layout.sharding.shard_shape(spec.shape)
    devices = tuple(buffer.devices)
    tiling = tiling_of(layout.sharding, rank) if len(devices) > 1 else None
    source, target = (
        Type(spec.dtype, spec.shape, 0, where, shard, tiling) for where in (devices, layout.slice.devices)
    )
    with native.translated():
        return session.run_program(_program(session, ((source, target),)), [buffer])[0]


def _program(session: native.Session, kinds: tuple[tuple[Type, Type], ...]) -> native.Program:
    global _known_of
    with _state.lock:
        if _known_of is not session:
            _known.clear()
            _known_of = session
        found = _known.get(kinds)
        if found is None:
            found = _known[kinds] = _register(session, kinds)
            if len(_known) > _KNOWN_MAX:
                _known.popitem(last=False)
        else:
            _known.move_to_end(kinds)
        return found


def _register(session: native.Session, kinds: Sequence[tuple[Type, Type]]) -> native.Program:
    ops = tuple(
        Op("transfer", -1, -1, (Feed(number),), (source,), (target,), (number,), (number,))
        for number, (source, target) in enumerate(kinds)
    )
    wiring = Wiring(ops, {}, tuple(Result(number, 0) for number in range(len(ops))))
    lowered = _plan.lower(wiring, programs.hosts_of(session))
    return session.register_program(
        "transfer", lowered.plans, lowered.input_ports(), lowered.output_ports(), functions=[]
    )
