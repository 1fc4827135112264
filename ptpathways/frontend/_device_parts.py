"""Tensors on the devices, part by part: what each device has, as the hosts know it. For checkpoints.

Nothing here moves a tensor's bytes, nor waits for them to exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptpathways import core, native, programs
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _buffers, _rng
from ptpathways.sharding import Box

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What a device has of a tensor. Cell and value are those of the whole tensor, the same in all its parts."""

    host: int
    box: Box
    """Its elements, without padding."""
    shard: int
    """Its number in the value."""
    cell: native.BufferCell
    """Where PyTorch/XLA's buffer keeps the value."""
    value: native.DeviceValue
    """What it was when it was asked for."""


def submit_pending() -> None:
    """Submits what was traced so far, so that every tensor is a value; the devices' random numbers are not touched."""
    _buffers.submit_pending()


def parts_of(tensor: torch.Tensor) -> list[DevicePart]:
    """What each device has of a tensor that is a value (``submit_pending``).

    Raises:
        RuntimeError: it is not, or its value was lost.
    """
    cell = _buffers.cell_of(tensor)
    value = cell.value
    if value is None:
        raise core.PathwaysError(f"a tensor of shape {tuple(tensor.shape)} was given up by a computation")
    hosts = programs.hosts_of(session())
    return [
        DevicePart(hosts[device], Box(*box), shard, cell, value)
        for shard, (device, box) in enumerate(zip(value.devices, value.boxes(), strict=True))
    ]


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
    """The state of each slice's random generator, by the number of its torch device."""
    return _buffers.seeds(_rng.in_use())


def set_generator_states(states: Mapping[int, int]) -> None:
    """Sets what ``generator_states`` gave, of devices that are in use now; others go on. Torch's own was set before."""
    _rng.keep_apart()
    here = _rng.in_use()
    _buffers.set_seeds({device: seed for device, seed in states.items() if device in here})
