"""Whether each stage fits into the memory of its slice's devices, before anything is sent there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ptpathways import core, frontend, schedules
from ptpathways.frontend import TensorSpec
from ptpathways.pipelines._layouts import SliceLayouts
from ptpathways.pipelines._parts import StageParts


def check(
    parts: Sequence[StageParts],
    layouts: Sequence[SliceLayouts],
    order: schedules.Order,
    size: schedules.Size,
    limits: Mapping[int, int],
    state_of: Mapping[str, float],
    placements: Mapping[str, Any],
) -> None:
    """Raises OutOfDeviceMemory, with the sizes, if the stages of a rank need more than a device of its slice has.

    Counted are parameters, their gradients, the optimizer's state, and the activations that the schedule keeps at the
    same time; not what a single computation needs while it runs.

    Args:
        limits: bytes by device; 0 or missing: not known.
        state_of: the optimizer's elements for each element of a parameter, by the model's name.
        placements: of parameters, by the model's name.
    """
    kept = schedules.activations(order)
    for rank, layout in enumerate(layouts):
        mine = [one for one in parts if size.rank_of(one.stage.number) == rank]
        known = [limit for device in layout.slice.devices if (limit := limits.get(device, 0))]
        if not known:
            continue
        parameters, gradients, state, saved = (
            sum(column) for column in zip(*(_bytes(one, layout, state_of, placements) for one in mine), strict=True)
        )
        activations = saved / len(mine) * kept[rank]
        needed = parameters + gradients + state + activations
        if needed <= min(known):
            continue
        numbers = ", ".join(str(one.stage.number) for one in mine)
        raise core.OutOfDeviceMemory(
            f"stage {numbers} needs {_text(needed)} on each device of {layout.slice!r}, which have "
            f"{_text(min(known))}: "
            f"{_text(parameters)} of parameters, {_text(gradients)} of gradients, {_text(state)} of the optimizer's "
            f"state, {_text(activations)} of activations of {kept[rank]} microbatches; use more stages or more "
            "microbatches, recompute=True, or a schedule that keeps fewer activations"
        )


def _bytes(
    parts: StageParts, layout: SliceLayouts, state_of: Mapping[str, float], placements: Mapping[str, Any]
) -> tuple[float, float, float, float]:
    """Of one stage on one device: parameters, gradients, optimizer's state, activations of a microbatch."""
    specs = parts.recording.specs
    parameters = gradients = state = 0.0
    for name in (*parts.stage.parameters, *parts.stage.buffers):
        own = parts.stage.graph.parameters.get(name, "")
        size = _size(specs[parts.arguments[name]]) / layout.shards(placements.get(own))
        parameters += size
        if name in parts.parameter_gradients:
            gradients += size
            state += size * state_of.get(own, 0.0)
    held = {*parts.backward.inputs} - {
        parts.arguments[name] for name in (*parts.stage.parameters, *parts.stage.buffers)
    }
    saved = 0.0
    for number in held:
        divided = layout.activation(specs[number]) is not None
        saved += _size(specs[number]) / (layout.slice.shape[0] if divided else 1)
    return parameters, gradients, state, saved


_WIDTHS = {
    "pred": 1,
    "u8": 1,
    "s8": 1,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "s64": 8,
    "u64": 8,
    "f64": 8,
    "c64": 8,
    "c128": 16,
}


def _size(spec: TensorSpec) -> float:
    return math.prod(spec.shape) * _WIDTHS.get(spec.dtype, 4)


def _text(size: float) -> str:
    return core.format_bytes(round(size))


def limits_of(slices: Sequence[frontend.VirtualSlice]) -> dict[int, int]:
    """Bytes of memory of each device of the cluster that ``slices`` belong to."""
    session: Any = slices[0].session
    return {
        host["first_device"] + index: device["memory_limit_bytes"]
        for host in session.hosts()
        for index, device in enumerate(host["devices"])
    }
