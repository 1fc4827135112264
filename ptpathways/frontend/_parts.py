"""Tensors on the devices, part by part: what each device has, as the hosts know it. For checkpoints.

Nothing here moves a tensor's bytes, nor waits for them to exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core, native, programs
from ptpathways.frontend import _capture_buffers, _rng, _state, _xla
from ptpathways.sharding import Box

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a device has of a tensor."""

    host: int
    box: Box
    """Its elements, without padding."""
    cell: native.BufferCell
    """Where PyTorch/XLA's buffer keeps its value."""
    value: native.DeviceValue
    """What it was when it was asked for."""


def submit_pending() -> None:
    """Submits what was traced so far, so that every tensor is a value; the devices' random numbers are not touched."""
    _capture_buffers.submit_pending()


def parts_of(tensor: torch.Tensor) -> list[DevicePart]:
    """What each device has of a tensor that is a value (``submit_pending``).

    Raises:
        RuntimeError: it is not, or its value was lost.
    """
    boxes: list[Box] = []
    cells = _capture_buffers.cells_of(tensor)
    whole = Box((0,) * tensor.dim(), tuple(tensor.shape))
    if _state.runtime().mode is _state.Mode.TOGETHER:
        (shards,) = _xla.binding()._get_local_shard_replica_and_indices([tensor])
        boxes = [whole if indices is Ellipsis else _box(indices) for _, indices in shards]
    else:
        boxes = [whole] * len(cells)
    if len(boxes) != len(cells):
        raise core.PathwaysError(f"expected a buffer of each of {len(boxes)} shards of a tensor, got {len(cells)}")
    hosts = programs.hosts_of(session())
    parts = []
    for box, cell in zip(boxes, cells, strict=True):
        value = cell.value
        if value is None:
            raise core.PathwaysError(f"a tensor of shape {tuple(tensor.shape)} was given up by a computation")
        parts.append(DevicePart(hosts[value.device], box, cell, value))
    return parts


def make_own(tensor: torch.Tensor) -> None:
    """Gives a tensor a buffer of its own at the next submission: PyTorch/XLA shares those of equal small numbers."""
    import torch

    with torch.no_grad():
        tensor.copy_(tensor.clone())


def session() -> native.Session:
    """This process's session.

    Raises:
        NotInitialized: there is no cluster of ours.
    """
    this = _state.runtime()
    if this.connection is None:
        raise core.NotInitialized(
            f"devices of backend {this.options.backend!r} are in this process; call pw.init() first"
        )
    return this.connection.session


def generator_states() -> dict[int, int]:
    """The state of each device's random generator, by the device's number; one of number 0 for all together."""
    ask = _xla.binding()._xla_get_rng_seed
    return {index: int(ask(_xla.device_name(index))) for index in range(_state.runtime().torch_device_count)}


def set_generator_states(states: Mapping[int, int]) -> None:
    """Sets what ``generator_states`` gave; devices that it does not name go on. Torch's own was set before."""
    _rng.keep_apart()
    for index in range(_state.runtime().torch_device_count):
        if index in states:
            _xla.binding()._xla_set_rng_seed(states[index], _xla.device_name(index))


def _box(indices: Any) -> Box:
    start = tuple(int(part.start) for part in indices)
    return Box(start, tuple(int(part.stop) - first for part, first in zip(indices, start, strict=True)))
