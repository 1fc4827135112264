"""Moving a slice to other devices, with everything that lies on it (paper 3: virtual devices are bound late).

The tensors stay the same Python objects, on the same torch device; what the device stands for changes. Values go from
worker to worker, each shard to the device that takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import core, native, programs
from ptpathways.frontend.slices import _reshard, _transfer
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    from ptpathways.frontend.slices._slice import VirtualSlice

_ROUNDS_MAX = 16
_TOGETHER_MAX = 256
"""Values that one program moves."""


def host_numbers(session: native.Session, names: Sequence[str]) -> list[int]:
    """The numbers of hosts by name. Raises SliceUnavailable for one that is not there."""
    known = {host["name"]: host["host"] for host in session.hosts() if host["alive"]}
    missing = [name for name in names if name not in known]
    if missing:
        raise core.SliceUnavailable(
            f"there is no live host {', '.join(map(repr, missing))} in the cluster; it has {', '.join(known)}"
        )
    return [known[name] for name in names]


def submit_traced(index: int) -> None:
    """So that all values of torch device ``index`` are on their way."""
    _xla.binding()._xla_sync_live_tensors(_xla.device_name(index), [], True)


def move_values(slice: VirtualSlice, index: int, devices: Sequence[int]) -> int:
    """Makes torch device ``index``, which stands for ``slice``, stand for ``devices``, and moves its values there.

    What lies on a host that is lost stays behind.

    Returns:
        The bytes that were moved, all shards together.
    """
    moved = 0
    target = list(devices)
    lost = not _lost_devices(slice.session).isdisjoint(slice.devices)
    if lost:
        native.bind_device(index, target)
    for _ in range(_ROUNDS_MAX):  # what other threads upload meanwhile may still go to the old devices
        waiting = _values_on(index, slice.devices) if not lost and target != list(slice.devices) else {}
        if not waiting and moved_binding(index, target):
            return moved
        native.bind_device(index, target)
        groups = list(waiting.values())
        for first in range(0, len(groups), _TOGETHER_MAX):
            moved += _move(index, target, groups[first : first + _TOGETHER_MAX])
    raise core.PathwaysError(
        f"{slice!r} cannot be moved: other threads go on making tensors on its old devices; let them wait"
    )


def _lost_devices(session: native.Session) -> set[int]:
    return {
        host["first_device"] + place
        for host in session.hosts()
        if not host["alive"]
        for place in range(len(host["devices"]))
    }


def moved_binding(index: int, target: Sequence[int]) -> bool:
    """Whether nothing can still be made on the old devices of ``index``: an upload of now goes to ``target``."""
    import torch

    probe = torch.zeros((), dtype=torch.uint8)
    (made,) = _xla.binding()._xla_tensors_from_aten([probe], [_xla.device_name(index)])
    return list(_transfer.value_of(made).devices) == list(target)


def _values_on(index: int, devices: Sequence[int]) -> dict[int, list[Any]]:
    """The cells of each value of torch device ``index`` that lies on ``devices``, by the value's token."""
    found: dict[int, list[Any]] = {}
    for cell in native.live_cells(index):
        value = cell.value
        if value is None or value.is_uploaded_scalar or list(value.devices) != list(devices):
            continue
        if _has_value(value):
            found.setdefault(cell.token, []).append(cell)
    return found


def _has_value(value: native.DeviceValue) -> bool:
    """Whether there is something to move: not of what failed, or was given to a run."""
    try:
        return not value.buffer().given_up
    except native.NativeError:
        return False


def _move(index: int, target: list[int], groups: Sequence[Sequence[Any]]) -> int:
    values = [cells[0].value for cells in groups]
    buffers = _reshard.move(values, [_reshard.type_there(value, index, target, value.tiling) for value in values])
    moved = 0
    for cells, value, buffer in zip(groups, values, buffers, strict=True):
        made = native.value_of_buffer(buffer, index, list(value.dims), value.tiling)
        for cell in cells:
            cell.replace(made)
        moved += programs.numpy_dtype(value.dtype).itemsize * math.prod(value.shard_dims) * len(target)
    return moved
