"""Views by strides, parts of tensors, and diagonals: of the first two dimensions PyTorch/XLA takes the last two's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _refusals

if TYPE_CHECKING:
    import torch


def _last(rank: int, dim1: int, dim2: int) -> list[int]:
    """The order of dimensions in which the two named come last."""
    dim1, dim2 = dim1 % rank, dim2 % rank
    return [dim for dim in range(rank) if dim not in (dim1, dim2)] + [dim1, dim2]


def diagonal_copy(
    kernel: Callable[..., Any], values: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    if values.dim() <= 2:
        return kernel(values, offset, dim1, dim2)
    import torch

    return kernel(torch.permute_copy(values, _last(values.dim(), dim1, dim2)), offset, -2, -1)


def diagonal_scatter(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    source: torch.Tensor,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
) -> Any:
    """A diagonal without elements changes nothing; PyTorch/XLA's fails when it is compiled."""
    if source.numel() == 0:
        return values.clone()
    if values.dim() <= 2:
        return kernel(values, source, offset, dim1, dim2)
    import torch

    order = _last(values.dim(), dim1, dim2)
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.permute_copy(kernel(torch.permute_copy(values, order), source, offset, -2, -1), back)


def as_strided_scatter(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    source: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """PyTorch/XLA's is for strides without gaps, and for a source of the values' type."""
    import torch

    source = source.to(values.dtype)
    if _is_dense(size, stride):
        return kernel(values, source, size, stride, storage_offset)
    places = torch.full([1] * len(size), storage_offset or 0, device=values.device)
    for dim, (length, step) in enumerate(zip(size, stride, strict=True)):
        shape = [length if other == dim else 1 for other in range(len(size))]
        places = places + (torch.arange(length, device=values.device) * step).reshape(shape)
    flat = values.reshape(-1).scatter(0, places.reshape(-1), source.reshape(-1))
    return flat.reshape(values.shape)


def chunk_cat(tensors: Sequence[torch.Tensor], dim: int, num_chunks: int) -> torch.Tensor:
    """Each tensor in ``num_chunks`` parts along ``dim``, filled up with zeros, and all next to each other.

    Returns:
        A tensor of the shape before ``dim``, and then (num_chunks, elements of a part of each tensor).
    """
    import torch

    _refusals.one_type("_chunk_cat", *tensors)
    dim %= tensors[0].dim()
    parts = []
    for tensor in tensors:
        missing = -tensor.shape[dim] % num_chunks
        whole = torch.constant_pad_nd(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, missing], 0)
        parts.append(whole.reshape([*tensor.shape[:dim], num_chunks, -1]))
    return torch.cat(parts, dim + 1)


def pixel_shuffle(values: torch.Tensor, upscale_factor: int) -> torch.Tensor:
    """(..., c * r * r, h, w) to (..., c, h * r, w * r).

    PyTorch/XLA forgets the factor when it looks for a compiled computation, and for a shape.
    """
    import torch

    r = upscale_factor
    *batch, channels, height, width = values.shape
    parts = values.reshape(*batch, channels // (r * r), r, r, height, width)
    order = [*range(len(batch) + 1), *(len(batch) + dim for dim in (3, 1, 4, 2))]
    return torch.permute_copy(parts, order).reshape(*batch, channels // (r * r), height * r, width * r)


def pixel_unshuffle(values: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    """The inverse of ``pixel_shuffle``."""
    import torch

    r = downscale_factor
    *batch, channels, height, width = values.shape
    parts = values.reshape(*batch, channels, height // r, r, width // r, r)
    order = [*range(len(batch) + 1), *(len(batch) + dim for dim in (2, 4, 1, 3))]
    return torch.permute_copy(parts, order).reshape(*batch, channels * r * r, height // r, width // r)


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for step, length in sorted((step, length) for length, step in zip(size, stride, strict=True) if length != 1):
        if step != expected:
            return False
        expected *= length
    return True


REPLACED: dict[str, Callable[..., Any]] = {
    "_chunk_cat": chunk_cat,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
}
WRAPPED: dict[str, Callable[..., Any]] = {
    "as_strided_scatter": as_strided_scatter,
    "diagonal_copy": diagonal_copy,
    "diagonal_scatter": diagonal_scatter,
}
