"""Host tensors to devices."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend import _mesh, _state, _xla

if TYPE_CHECKING:
    import torch

_lock = threading.Lock()
_uploaded = 0


def upload_as(tensor: torch.Tensor, sharding: Any) -> torch.Tensor:
    """Copies a CPU tensor to the devices, lying there as an ``OpSharding`` says. There must be a mesh."""
    placed = tensor.to("xla:0")  # with a mesh, its bytes wait for a sharding
    _mesh.mark(placed, sharding)
    return placed


def upload(tensors: Sequence[torch.Tensor], layout: _mesh.BatchLayout | None = None) -> list[torch.Tensor]:
    """Copies CPU tensors to the devices; returns at once, and may be called from any thread.

    Args:
        tensors: strided CPU tensors.
        layout: how they lie, so that every device is sent its part only; None: each gets a copy. Without a mesh there
            is one device, and it makes no difference.
    """

    names = ["xla:0"] * len(tensors)
    shardings = None
    if _state.runtime().mode is _state.Mode.TOGETHER:
        shardings = [_mesh.upload_sharding(tensor, layout) for tensor in tensors]
    uploaded: list[torch.Tensor] = _xla.binding()._xla_tensors_from_aten(list(tensors), names, shardings)
    global _uploaded
    with _lock:
        _uploaded += len(uploaded)
    return uploaded


def uploaded_count() -> int:
    """How many tensors ``upload`` has made in this process."""
    return _uploaded
