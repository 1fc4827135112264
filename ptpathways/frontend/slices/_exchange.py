"""Tensors of slices as futures, and futures as tensors: two handles of one logical buffer, without a copy or a wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptpathways import core, native
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _shard, _transfer
from ptpathways.frontend.slices._future import Future, layout_of
from ptpathways.frontend.xla import _dtypes, _xla
from ptpathways.frontend.xla._trace import TensorSpec
from ptpathways.sharding import Sharding, sharding_of, tiling_of

if TYPE_CHECKING:
    import torch


def as_future(tensor: torch.Tensor) -> Future:
    """The value that a tensor on a slice has now, as a future; what was traced for it is submitted.

    A tensor that lies in a way that no sharding of its slice says is laid out as copies first, on its slice.

    Raises:
        SliceUnavailable: its slice was released.
    """
    import torch

    table = _state.runtime().slices
    slice = table.slice_at(tensor.device.index or 0)
    tensor = tensor.detach()
    _submit(tensor)
    value = _transfer.value_of(tensor)
    spec = TensorSpec(tuple(value.dims), value.dtype)
    sharding = Sharding.replicated(slice.mesh) if value.tiling is None else sharding_of(value.tiling, slice.mesh)
    try:
        if sharding is not None:
            return Future(value.buffer(kept=True), layout_of(spec, sharding, slice))
    except core.InvalidSharding:
        pass  # padded
    copies = ((1,) * len(value.dims), (0,) * len(value.devices))
    with torch.no_grad():
        laid = _shard.laid(tensor, copies)
    _submit(laid)
    buffer = _transfer.value_of(laid).buffer(kept=True)
    return Future(buffer, layout_of(spec, Sharding.replicated(slice.mesh), slice))


def _submit(tensor: torch.Tensor) -> None:
    if _xla.binding()._check_tensor_need_materialization([tensor])[0]:
        _transfer.settle(tensor)


def as_tensor(future: Future) -> torch.Tensor:
    """The future's value as a tensor on its slice's device. Raises UsedAfterDonation, SliceUnavailable."""
    import torch

    layout = future.layout
    rank = len(layout.spec.shape)
    index = layout.slice.index
    tiling = tiling_of(layout.sharding, rank) if len(layout.slice.devices) > 1 else None
    with native.translated():
        token = native.adopt_buffer(future.buffer(), index, layout.spec.shape, tiling, kept=True)
    like = torch.empty(layout.spec.shape, dtype=_dtypes.torch_dtype(layout.spec.dtype), device="meta")
    return _transfer.adopt(token, like, index)
