"""Torch tensors and the plugin's buffers: which value a tensor holds, and a tensor for a value."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import native
from ptpathways.frontend import _feeding, _mesh, _state, _transfer, _xla

if TYPE_CHECKING:
    import torch

_REPLICATED = "{replicated}"


def cells_of(tensor: torch.Tensor) -> list[Any]:
    """The places of the tensor's value in the plugin (``native.BufferCell``), one per device that it lies on.

    PyTorch/XLA tells of no single buffers, but looks at each of them when it is asked for certain other things.
    Raises RuntimeError when the tensor is pending.
    """
    binding = _xla.binding()
    if _state.runtime().mode is not _state.Mode.TOGETHER:
        return native.asked_cells(lambda: binding._get_tensors_handle([tensor]))
    if not binding._get_xla_sharding_spec(tensor):
        _mesh.replicate_unless_marked(tensor)  # as it would do itself at the tensor's first use
    return native.asked_cells(lambda: binding._get_local_shard_replica_and_indices([tensor]))


def handles(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """A number per tensor that changes when PyTorch/XLA gives it another buffer; None when one is pending."""
    try:
        return list(_xla.binding()._get_tensors_handle(tensors))
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class Shape:
    """What a new tensor for a value is like."""

    empty: torch.Tensor
    """On the CPU, of the whole shape."""
    device: int
    """Its torch device."""
    shards: int
    sharding: Any
    """PyTorch/XLA's ``OpSharding`` of one that is divided."""


def shape_of(tensor: torch.Tensor, shards: int) -> Shape:
    """Of a tensor on the devices."""
    import torch

    sharding = _mesh.sharding_of(tensor)
    if sharding is not None and _xla.binding()._get_xla_sharding_spec(tensor) == _REPLICATED:
        sharding = None
    return Shape(torch.empty(tensor.shape, dtype=tensor.dtype), tensor.device.index or 0, shards, sharding)


def adopt(tokens: Sequence[int], shapes: Sequence[Shape]) -> list[torch.Tensor]:
    """New tensors for values whose shards the tokens own, one value after the other."""
    made: list[torch.Tensor] = []
    upload = _xla.binding()._xla_tensors_from_aten
    first = 0
    for shape in shapes:
        native.adopt_next_uploads(tokens[first : first + shape.shards])
        first += shape.shards
        try:
            if shape.sharding is not None:
                made.append(_feeding.upload_as(shape.empty, shape.sharding))
                continue
            with _transfer.keep_untouched()():
                made += upload([shape.empty], [_xla.device_name(shape.device)], _replicated(shape))
        finally:
            native.adopt_next_uploads([])
    return made


def _replicated(shape: Shape) -> Any:
    if _state.runtime().mode is not _state.Mode.TOGETHER:
        return None
    return [_mesh.upload_sharding(shape.empty, None)]


def live_tensors() -> Iterator[torch.Tensor]:
    """Every XLA tensor that Python knows in this process. Takes a fraction of a second."""
    import torch

    for thing in gc.get_objects():
        # type() and not isinstance(): the latter asks objects for __class__, which may be anything.
        if issubclass(type(thing), torch.Tensor) and thing.device.type == "xla":
            yield thing


def created_count() -> int:
    """How many tensors PyTorch/XLA has made but for uploads: as long as it stays, no operation was traced.

    With uploads under way on other threads it may be too large, never too small.
    """
    uploaded = _feeding.uploaded_count()
    return int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0) - uploaded


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
    if _state.runtime().mode is _state.Mode.TOGETHER:  # one generator for all
        return dict.fromkeys(cluster_devices(), int(ask(_xla.device_name(0))))
    return {device: int(ask(_xla.device_name(index))) for index, device in enumerate(cluster_devices())}


def set_seeds(seeds: Mapping[int, int]) -> None:
    """Sets what ``seeds`` gives."""
    for device, index in zip(cluster_devices(), range(_state.runtime().torch_device_count), strict=False):
        _xla.binding()._xla_set_rng_seed(seeds[device], _xla.device_name(index))


def dense_bytes(tensor: torch.Tensor) -> Any:
    """A CPU tensor's bytes as a NumPy array, row-major; a view of them where it lies so."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def parts(tensor: torch.Tensor, dims: Sequence[int]) -> list[torch.Tensor]:
    """A CPU tensor cut into parts of one shape, in row-major order; empty when it cannot be cut so."""
    if tensor.dim() != len(dims) or 0 in dims or any(w % d for w, d in zip(tensor.shape, dims, strict=True)):
        return []
    found = [tensor]
    for dimension, size in enumerate(dims):
        found = [piece for part in found for piece in part.split(size, dimension)]
    return found
