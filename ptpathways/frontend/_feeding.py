"""Host tensors to devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptpathways.frontend import _mesh, _state, _xla

if TYPE_CHECKING:
    import torch


def upload(tensors: Sequence[torch.Tensor], split: Sequence[bool]) -> list[torch.Tensor]:
    """Copies CPU tensors to the devices; returns at once, and may be called from any thread.

    Args:
        tensors: strided CPU tensors.
        split: for each, whether its first dimension is divided over the devices (it must be a multiple of their
            number), or every device gets a copy. Without a mesh there is one device, and it makes no difference.
    """

    names = ["xla:0"] * len(tensors)
    shardings = None
    if _state.runtime().mode is _state.Mode.TOGETHER:
        shardings = [_mesh.sharding(tensor, flag) for tensor, flag in zip(tensors, split, strict=True)]
    uploaded: list[torch.Tensor] = _xla.binding()._xla_tensors_from_aten(list(tensors), names, shardings)
    return uploaded
