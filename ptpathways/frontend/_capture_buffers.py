"""Torch tensors and the plugin's buffers: which value a tensor holds, and a tensor for a value."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import native
from ptpathways.frontend import _state, _transfer, _xla

if TYPE_CHECKING:
    import torch


def cell_of(tensor: torch.Tensor) -> Any:
    """The place of the tensor's value in the plugin (``native.BufferCell``). The tensor must not be pending."""
    _xla.binding()._unsafe_buffer_pointer(tensor)
    cell = native.last_asked_cell()
    assert cell is not None, "PyTorch/XLA asks the plugin for a buffer on the calling thread"
    return cell


def handles(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """A number per tensor that changes when PyTorch/XLA gives it another buffer; None when one is pending."""
    try:
        return list(_xla.binding()._get_tensors_handle(tensors))
    except RuntimeError:
        return None


def adopt(tokens: Sequence[int], shapes: Sequence[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
    """New tensors for values that tokens own. ``shapes``: for each an empty CPU tensor of its shape, and its device."""
    made: list[torch.Tensor] = []
    upload = _xla.binding()._xla_tensors_from_aten
    with _transfer.keep_untouched()():
        for token, (shape, device) in zip(tokens, shapes, strict=True):
            native.adopt_next_upload(token)
            try:
                made += upload([shape], [_xla.device_name(device)])
            finally:
                native.adopt_next_upload(0)
    return made


def live_tensors() -> Iterator[torch.Tensor]:
    """Every XLA tensor that Python knows in this process. Takes a fraction of a second."""
    import torch

    for thing in gc.get_objects():
        # type() and not isinstance(): the latter asks objects for __class__, which may be anything.
        if issubclass(type(thing), torch.Tensor) and thing.device.type == "xla":
            yield thing


def created_count() -> int:
    """How many tensors PyTorch/XLA has made: as long as it stays, no operation was traced."""
    return int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0)


def submit_pending() -> None:
    """Submits what was traced so far, without the rest of a cut: the random generator goes on where it was."""
    for index in range(_state.runtime().torch_device_count):
        name = _xla.device_name(index)
        seed = _xla.binding()._xla_get_rng_seed(name)
        _xla.binding()._xla_sync_live_tensors(name, [], True)
        _xla.binding()._xla_set_rng_seed(seed, name)


@functools.cache
def cluster_devices() -> tuple[int, ...]:
    """The cluster's numbers of the devices that torch sees, in its order. They stay what they were at first."""
    this = _state.runtime()
    assert this.connection is not None
    alive = [number for host in this.connection.hosts() if host["alive"] for number in host["devices"]]
    return tuple(alive[: this.device_count])


def seeds() -> dict[int, int]:
    """The state of each device's random generator, by the cluster's number of the device."""
    ask = _xla.binding()._xla_get_rng_seed
    return {device: int(ask(_xla.device_name(index))) for index, device in enumerate(cluster_devices())}


def dense_bytes(tensor: torch.Tensor) -> Any:
    """A CPU tensor's bytes as a NumPy array, row-major; a view of them where it lies so."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
