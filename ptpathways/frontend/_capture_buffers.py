"""Torch tensors and the plugin's buffers: which value a tensor holds, and a tensor for a value."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import native
from ptpathways.frontend import _feeding, _rng, _transfer, _xla

if TYPE_CHECKING:
    import torch


def cell_of(tensor: torch.Tensor) -> native.BufferCell:
    """The place of the tensor's value in the plugin.

    PyTorch/XLA tells of no buffer, but looks at it when it is asked for certain other things.
    Raises RuntimeError when the tensor is pending.
    """
    binding = _xla.binding()
    (cell,) = native.asked_cells(lambda: binding._get_tensors_handle([tensor]))
    return cell


def handles(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """A number per tensor that changes when PyTorch/XLA gives it another buffer; None when one is pending."""
    try:
        return list(_xla.binding()._get_tensors_handle(tensors))
    except RuntimeError:
        return None


def sharing(tensors: Mapping[str, torch.Tensor]) -> frozenset[tuple[str, ...]]:
    """Which of the tensors, by name, have one buffer in common; none of them is pending."""
    found = handles(list(tensors.values()))
    if found is None:
        submit_pending()
        found = handles(list(tensors.values()))
    groups: dict[int, list[str]] = {}
    for name, handle in zip(tensors, found or (), strict=False):
        groups.setdefault(handle, []).append(name)
    return frozenset(tuple(names) for names in groups.values() if len(names) > 1)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a new tensor for a value is like."""

    empty: torch.Tensor
    """On the CPU, of the same shape."""
    device: str


def shape_of(tensor: torch.Tensor) -> Shape:
    """Of a tensor on a device."""
    import torch

    return Shape(torch.empty(tensor.shape, dtype=tensor.dtype), _xla.device_name(tensor.device.index or 0))


def adopt(tokens: Sequence[int], shapes: Sequence[Shape]) -> list[torch.Tensor]:
    """New tensors for the values that the tokens own."""
    upload = _xla.binding()._xla_tensors_from_aten
    native.adopt_next_uploads(tokens)
    try:
        with _transfer.keep_untouched()():
            return [upload([shape.empty], [shape.device], None)[0] for shape in shapes]
    finally:
        native.adopt_next_uploads([])


def live_tensors() -> Iterator[torch.Tensor]:
    """Every XLA tensor that Python knows in this process. Takes a fraction of a second."""
    import torch

    for thing in gc.get_objects():
        # type() and not isinstance(): the latter asks objects for __class__, which may be anything. is_xla and not
        # device: a kernel of ours may be given an undefined tensor, for an argument that is left out, which has none.
        if issubclass(type(thing), torch.Tensor) and thing.is_xla:
            thing._fix_weakref()  # torch may be about to let go of the Python object that is found here
            yield thing


def most_created() -> int:
    """How many tensors PyTorch/XLA has made but for uploads, with those that other threads are uploading.

    When this is what ``least_created`` was before, no operation was traced between the two.
    """
    uploaded = _feeding.uploaded_count()
    return int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0) - uploaded


def least_created() -> int:
    """The same, less all that other threads are uploading."""
    created = int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0)
    return created - _feeding.begun_count()


def submit_pending() -> None:
    """Submits what was traced so far, without the rest of a cut: the random generators go on where they were."""
    for device, seed in seeds(_rng.in_use()).items():
        _xla.binding()._xla_sync_live_tensors(_xla.device_name(device), [], True)
        set_seeds({device: seed})


def seeds(devices: Iterable[int]) -> dict[int, int]:
    """The state of each of these torch devices' random generators."""
    ask = _xla.binding()._xla_get_rng_seed
    return {device: int(ask(_xla.device_name(device))) for device in devices}


def set_seeds(seeds: Mapping[int, int]) -> None:
    """Sets what ``seeds`` gives."""
    for device, seed in seeds.items():
        _xla.binding()._xla_set_rng_seed(seed, _xla.device_name(device))


def dense_bytes(tensor: torch.Tensor) -> Any:
    """A CPU tensor's bytes as a NumPy array, row-major; a view of them where it lies so."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
