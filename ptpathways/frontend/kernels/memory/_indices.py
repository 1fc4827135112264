"""Elements at places that an index tensor names.

Several index tensors of different integer types, which PyTorch/XLA concatenates and XLA refuses; places that are not
there; and gradients of embeddings with ``sparse=True``, of which PyTorch/XLA has no form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _recorded
from ptpathways.frontend.kernels.calls import _fallback, _out_of_range, _shapes, _small
from ptpathways.frontend.kernels.memory import _masks

if TYPE_CHECKING:
    import torch

_MAX = 2
"""A mode of ``embedding_bag``."""

Indices = Sequence["torch.Tensor | None"]


def _of_one_type(indices: Indices) -> list[torch.Tensor | None]:
    """Booleans and bytes are masks, whose places are of int64."""
    import torch

    types = {torch.int64 if _masks.is_mask(index) else index.dtype for index in indices if index is not None}
    if len(types) < 2:
        return list(indices)
    return [index.to(torch.int64) if index is not None and index.dtype == torch.int32 else index for index in indices]


def _check_indices(values: torch.Tensor, indices: Indices) -> None:
    """
    Raises:
        IndexError: one is of another type than torch's; a mask is of another shape than the dimensions that it indexes.
        RuntimeError: there is none.
    """
    import torch

    if all(index is None for index in indices):
        raise RuntimeError("index and index_put need a tensor of indices, got none; take the tensor itself, or copy_()")
    dim = 0
    for index in indices:
        if index is not None and index.dtype not in (torch.int64, torch.int32, torch.bool, torch.uint8):
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {index.dtype}")
        if index is None or not _masks.is_mask(index):
            dim += 1
            continue
        for place, size in enumerate(index.shape, dim):
            if place >= values.dim() or size != values.shape[place]:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {place - dim} does not match the shape of the "
                    f"indexed tensor {list(values.shape)} at index {place}"
                )
        dim += index.dim()


def index(kernel: Callable[..., Any], values: torch.Tensor, indices: Indices) -> Any:
    """``values[indices]``; None takes a whole dimension, and a mask has no places that are not there.

    Raises:
        IndexError: an index of the CPU is out of range; a mask is of another shape than what it indexes.
    """
    import torch

    _check_indices(values, indices)
    given, dim, out = _of_one_type(indices), 0, None
    indexed: list[bool] = []
    for number, item in enumerate(given):
        spans = 1
        if item is not None and _masks.is_mask(item):
            spans = item.dim()
        elif item is not None:
            if item.device.type == "cpu":
                _check_range(item, dim, values.shape[dim])
                given[number] = item = item.to(values.device)
            here = _out_of_range.outside(item, values.shape[dim], negative=True)
            out = here if out is None else out | here
        indexed += [item is not None] * spans
        dim += spans
    first, last = indexed.index(True), len(indexed) - indexed[::-1].index(True)
    behind = values.dim() - last
    if not all(indexed[first:last]):
        # The indexed dimensions come first then. PyTorch/XLA reorders what a part of a tensor is a part of.
        places = range(values.dim())
        order = sorted(places, key=lambda place: place >= len(indexed) or not indexed[place])
        values, given = torch.permute_copy(values, order), [item for item in given if item is not None]
        behind = values.dim() - sum(indexed)
    found = kernel(values, given)
    if out is None or found.numel() == 0:
        return found
    return _out_of_range.put_out(found, out.reshape([*out.shape, *[1] * behind]))


def _check_range(index: torch.Tensor, dim: int, size: int) -> None:
    """Of the CPU, but where a replay would take another one."""
    if _recorded.is_recorded_here() or index.numel() == 0:
        return
    for place in (int(index.max()), int(index.min())):
        if not -size <= place < size:
            raise IndexError(f"index {place} is out of bounds for dimension {dim} with size {size}")


def take(kernel: Callable[..., Any], values: torch.Tensor, index: torch.Tensor) -> Any:
    return _out_of_range.put_out(kernel(values, index), _out_of_range.outside(index, values.numel(), negative=True))


def index_select(kernel: Callable[..., Any], values: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    found = _small.scalar_as_vector(kernel, values, dim, index)
    if found.dim() == 0 or found.numel() == 0:
        return found
    out = _out_of_range.outside(index.reshape(-1), values.shape[dim])
    return _out_of_range.put_out(found, out.reshape(-1, *[1] * (values.dim() - 1 - dim % values.dim())))


def gather(kernel: Callable[..., Any], values: torch.Tensor, dim: int, index: torch.Tensor, **named: Any) -> Any:
    """The result has the index's shape, and either may be 0-dimensional where the other is a vector.

    Raises:
        RuntimeError: the index is of another type than torch's.
    """
    import torch

    if index.numel() == 0:
        return torch.zeros(index.shape, dtype=values.dtype, device=values.device)
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"gather(): Expected dtype int32/int64 for index, got {index.dtype}; convert it (.long())")
    if values.dim() > 0 and index.dim() > 0:
        found = kernel(values, dim, index, **named)
    else:
        found = kernel(values.reshape(-1), 0, index.reshape(-1), **named).reshape(index.shape)
    size = values.shape[dim] if values.dim() > 0 else 1
    return _out_of_range.put_out(found, _out_of_range.outside(index, size))


def embedding(kernel: Callable[..., Any], weight: torch.Tensor, indices: torch.Tensor, *rest: Any) -> Any:
    """
    Raises:
        RuntimeError: the indices are no whole numbers.
    """
    import torch

    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"embedding needs indices that are torch.int64 or torch.int32, got {indices.dtype}")
    if indices.numel() == 0:
        return torch.zeros((*indices.shape, *weight.shape[1:]), dtype=weight.dtype, device=weight.device)
    found = kernel(weight, indices, *rest)
    return _out_of_range.put_out(found, _out_of_range.outside(indices, weight.shape[0]).unsqueeze(-1))


def bags(
    kernel: Callable[..., Any],
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """``embedding_bag`` of a weight that needs no gradient. For PyTorch/XLA no maximum is below 0, and the last bag
    ends where the indices do."""
    import torch

    rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    if mode == _MAX or include_last_offset:
        return _fallback.on_client(torch.ops.aten._embedding_bag_forward_only.default, weight, indices, offsets, *rest)
    return kernel(weight, indices, offsets, *rest)


def index_put(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    indices: Indices,
    source: torch.Tensor,
    accumulate: bool = False,
    *rest: Any,
) -> Any:
    """One number at the places of a mask (``x[x < 0] = 0``) is written there, however many they are.

    PyTorch/XLA takes the places from the client, and compiles again for each count.

    Raises:
        IndexError: a mask is of another shape than what it indexes.
        RuntimeError: the values are of another type, or do not fit.
    """
    import torch

    _check_indices(values, indices)
    if (mask := _masks.of_number(values, indices, source, accumulate)) is not None:
        return torch.where(mask, source.reshape(()).to(values.device, values.dtype), values)
    if source.dtype != values.dtype:
        raise RuntimeError(
            f"index_put requires the source and destination dtypes match, got {values.dtype} for the destination and "
            f"{source.dtype} for the source; convert the source (.to(tensor.dtype))"
        )
    places = _of_one_type(_masks.as_places(indices))
    _shapes.check_index_put("index_put", values, places, source)  # of masks it is known now
    return kernel(values, places, source, accumulate, *rest)


def embedding_gradient(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    count: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> torch.Tensor:
    """
    Raises:
        NotImplementedError: it is to be sparse.
    """
    import torch

    if sparse:
        raise NotImplementedError(
            "the gradient of an Embedding on a device is dense, got sparse=True; make it with sparse=False, and take "
            "Adam in place of SparseAdam"
        )
    made: torch.Tensor = torch.ops.aten.embedding_dense_backward(
        gradient, indices, count, padding_idx, scale_grad_by_freq
    )
    return made


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"embedding_backward": embedding_gradient}
WRAPPED: dict[str, Callable[..., Any]] = {
    "_embedding_bag_forward_only": bags,
    "embedding": embedding,
    "gather": gather,
    "index.Tensor": index,
    "index_put": index_put,
    "index_select": index_select,
    "take": take,
}
