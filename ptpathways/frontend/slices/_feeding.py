"""Host tensors to devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptpathways import native
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _mesh
from ptpathways.frontend.slices._mesh import BatchLayout
from ptpathways.frontend.xla import _xla
from ptpathways.sharding import Tiling

if TYPE_CHECKING:
    import torch

_lock = threading.Lock()
_begun = _uploaded = 0  # tensors; guarded by _lock


@contextmanager
def lying(tiling: Tiling | None) -> Iterator[None]:
    """Inside, what this thread uploads to a slice lies so; None: a copy on each device."""
    if _state.runtime().connection is None:
        yield
        return
    before = native.set_upload_layout("copy" if tiling is None or _mesh.is_copied(tiling) else tiling)
    try:
        yield
    finally:
        native.set_upload_layout(before)


def upload(
    tensors: Sequence[torch.Tensor],
    layout: BatchLayout | Tiling | None = None,
    device: torch.device | None = None,
) -> list[torch.Tensor]:
    """Copies CPU tensors to a slice; returns at once, and may be called from any thread.

    Args:
        tensors: strided CPU tensors.
        layout: how they lie, so that every device is sent its part only; a tiling is for tensors of its rank. None:
            each device gets a copy.
        device: the slice's; default: that of the layout, or ``pw.device()``.
    """
    if device is None and isinstance(layout, BatchLayout):
        device = layout.device
    name = _xla.device_name(0 if device is None else device.index or 0)
    uploaded: list[torch.Tensor] = []
    with _counting(len(tensors)) as count:
        for tiling, group in _alike(tensors, layout):
            with lying(tiling):
                uploaded += _xla.binding()._xla_tensors_from_aten(group, [name] * len(group), None)
            count.done = len(uploaded)
    return uploaded


def upload_alone(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copies a CPU tensor, which nobody changes any more, to a slice, to lie as this thread's uploads do.

    As ``upload``, it may be called from any thread.
    """
    with _counting(1) as count:
        (uploaded,) = _xla.binding()._xla_tensors_from_aten([tensor], [_xla.device_name(_xla.index_of(device))], None)
        count.done = 1
    result: torch.Tensor = uploaded
    return result


def counted(move: Callable[..., Any], tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
    """Calls ``move`` of a CPU tensor; if all that it made is a tensor on a device, that counts as an upload."""
    made = _xla.binding()._xla_counter_value
    with _counting(1) as count:
        before = made("CreateXlaTensor") or 0
        moved = move(tensor, *args, **named)
        count.done = int(moved.device.type == "xla" and made("CreateXlaTensor") == before + 1)
    return moved


class _Count:
    """Of tensors, how many have been uploaded."""

    done = 0


@contextmanager
def _counting(begun: int) -> Iterator[_Count]:
    """Around the upload of so many tensors. Those that are not done after it were none."""
    global _begun, _uploaded
    count = _Count()
    with _lock:
        _begun += begun
    try:
        yield count
    finally:
        with _lock:
            _begun -= begun - count.done
            _uploaded += count.done


def uploaded_count() -> int:
    """How many tensors have been uploaded in this process."""
    return _uploaded


def begun_count() -> int:
    """The same with those that it is making."""
    return _begun


def _alike(
    tensors: Sequence[torch.Tensor], layout: BatchLayout | Tiling | None
) -> Iterator[tuple[Tiling | None, list[torch.Tensor]]]:
    """The tensors in order, those that follow each other and lie alike together."""
    group: list[torch.Tensor] = []
    common: Tiling | None = None
    for tensor in tensors:
        tiling = layout.tiling(tensor.shape) if isinstance(layout, BatchLayout) else layout
        if group and tiling != common:
            yield common, group
            group = []
        common = tiling
        group.append(tensor)
    if group:
        yield common, group
