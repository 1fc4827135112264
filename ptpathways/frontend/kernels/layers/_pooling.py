"""Pooling with sizes rounded up, with a divisor of its own, or dilated: PyTorch/XLA has these partly, or wrongly.

Sizes are known while tracing, so what is divided by, and where windows lie, are constants.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _fallback

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Axis:
    """One dimension's windows."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    count: int
    """Of windows, which is the result's size."""

    @property
    def after(self) -> int:
        """What is needed after the last element, so that the last window is whole; negative: not reached."""
        return (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - self.padding - self.size

    def starts(self) -> list[int]:
        """Where the windows start; negative in the padding."""
        return [number * self.stride - self.padding for number in range(self.count)]


def _axes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[_Axis]:
    def full(given: Sequence[int], default: Sequence[int]) -> list[int]:
        given = list(given) or list(default)
        return given * len(sizes) if len(given) == 1 else given

    kernels = full(kernel, ())
    found = []
    for size, k, s, p, d in zip(
        sizes, kernels, full(stride, kernels), full(padding, (0,)), full(dilation, (1,)), strict=True
    ):
        room = size + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= size + p:  # the last window must begin inside, or in the padding before
            count -= 1
        found.append(_Axis(size, k, s, p, d, count))
    return found


def _padded(values: torch.Tensor, axes: Sequence[_Axis], filling: float) -> torch.Tensor:
    """With what the windows need before and after; what they do not reach is cut off."""
    import torch

    widths = [width for axis in reversed(axes) for width in (axis.padding, axis.after)]
    return torch.constant_pad_nd(values, widths, filling)


def average(
    kernel_of_xla: Callable[..., Any],
    values: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``avg_pool2d`` and ``avg_pool3d``; of integers on the client, for divisions are rounded there."""
    rank = len(kernel)
    if not values.is_floating_point():
        import torch

        call = (torch.ops.aten.avg_pool2d if rank == 2 else torch.ops.aten.avg_pool3d).default
        return _fallback.on_client(
            call, values, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
        )
    if not ceil_mode and divisor_override is None:
        return kernel_of_xla(values, kernel, stride, padding, False, count_include_pad, None)
    axes = _axes(values.shape[-rank:], kernel, stride, padding, (1,), ceil_mode)
    kernels, strides = [axis.kernel for axis in axes], [axis.stride for axis in axes]
    means = kernel_of_xla(_padded(values, axes, 0.0), kernels, strides, [0] * rank, False, True, None)
    return means * _weights(means, axes, count_include_pad, divisor_override)


def average_backward(
    kernel_of_xla: Callable[..., Any],
    gradient: torch.Tensor,
    values: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    rank = len(kernel)
    if not ceil_mode and divisor_override is None:
        return kernel_of_xla(gradient, values, kernel, stride, padding, False, count_include_pad, None)
    axes = _axes(values.shape[-rank:], kernel, stride, padding, (1,), ceil_mode)
    kernels, strides = [axis.kernel for axis in axes], [axis.stride for axis in axes]
    weighted = gradient * _weights(gradient, axes, count_include_pad, divisor_override)
    padded = kernel_of_xla(weighted, _padded(values, axes, 0.0), kernels, strides, [0] * rank, False, True, None)
    return _unpadded(padded, axes)


def _unpadded(gradient: torch.Tensor, axes: Sequence[_Axis]) -> torch.Tensor:
    import torch

    widths = [-width for axis in reversed(axes) for width in (axis.padding, axis.after)]
    return torch.constant_pad_nd(gradient, widths, 0.0)


def _weights(
    like: torch.Tensor, axes: Sequence[_Axis], count_include_pad: bool, divisor_override: int | None
) -> torch.Tensor | float:
    """What the mean of a whole window is multiplied with, because another number is to be divided by."""
    import torch

    whole = math.prod(axis.kernel for axis in axes)
    if divisor_override is not None:
        return whole / divisor_override
    weights = torch.ones((), dtype=like.dtype, device=like.device)
    for number, axis in enumerate(axes):
        begin, end = (-axis.padding, axis.size + axis.padding) if count_include_pad else (0, axis.size)
        covered = [min(start + axis.kernel, end) - max(start, begin) for start in axis.starts()]
        shares = torch.tensor([axis.kernel / count for count in covered], dtype=like.dtype).to(like.device)
        weights = weights.unsqueeze(-1) * shares if number else shares
    return weights


def largest(
    kernel_of_xla: Callable[..., Any],
    values: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``max_pool2d_with_indices`` and ``max_pool3d_with_indices``: the values, and where they lie in their plane."""
    import torch

    rank = len(kernel)
    axes = _axes(values.shape[-rank:], kernel, stride, padding, dilation, ceil_mode)
    if not _needs_own(values, axes, ceil_mode):
        return _as_int64(*kernel_of_xla(values, kernel, stride, padding, dilation, ceil_mode))
    lowest = -math.inf if values.is_floating_point() else torch.iinfo(values.dtype).min
    padded = _padded(values, axes, lowest)
    places = torch.arange(math.prod(axis.size for axis in axes)).reshape([axis.size for axis in axes])
    padded_places = _padded(places, axes, -1)
    windows, where = [], []
    for offsets in itertools.product(*(range(axis.kernel) for axis in axes)):
        part: tuple[slice, ...] = tuple(
            slice(offset * axis.dilation, offset * axis.dilation + (axis.count - 1) * axis.stride + 1, axis.stride)
            for offset, axis in zip(offsets, axes, strict=True)
        )
        windows.append(padded[(slice(None),) * (padded.dim() - rank) + part])
        where.append(padded_places[part])
    stacked = torch.stack(windows, -1)
    found, chosen = stacked.max(-1)
    table = torch.stack(where, -1).to(values.device).expand(stacked.shape)
    return found, table.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def _as_int64(found: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch/XLA says that its places are int64, and they are uint32: negatives are wrong, and casts fail."""
    return found, places + 0


def largest_backward(
    kernel_of_xla: Callable[..., Any],
    gradient: torch.Tensor,
    values: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> Any:
    import torch

    rank = len(kernel)
    axes = _axes(values.shape[-rank:], kernel, stride, padding, dilation, ceil_mode)
    if not _needs_own(values, axes, ceil_mode):
        return kernel_of_xla(gradient, values, kernel, stride, padding, dilation, ceil_mode, indices)
    planes = list(values.shape[:-rank])
    zeros = torch.zeros([*planes, math.prod(values.shape[-rank:])], dtype=gradient.dtype, device=gradient.device)
    placed = zeros.scatter_add(-1, indices.reshape([*planes, -1]), gradient.reshape([*planes, -1]))
    return placed.reshape(values.shape)


def with_own_gradient(operation: str) -> Callable[..., Any]:
    """``max_pool2d`` or ``max_pool3d``: PyTorch/XLA's have a gradient of their own, which does not know dilation."""

    def pool(
        kernel_of_xla: Callable[..., Any],
        values: torch.Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Any:
        import torch

        if not ceil_mode and values.numel() > 0 and set(dilation) == {1}:
            return kernel_of_xla(values, kernel, stride, padding, dilation, ceil_mode)
        call = getattr(torch.ops.aten, f"{operation}_with_indices").default
        return call(values, kernel, stride, padding, dilation, ceil_mode)[0]

    return pool


def to_size(operation: str) -> Callable[..., Any]:
    """A pool of a given size: PyTorch/XLA divides by the result's size, also where that is 0."""

    def pool(kernel_of_xla: Callable[..., Any], values: torch.Tensor, output_size: Sequence[int]) -> Any:
        import torch

        if 0 not in output_size:
            found = kernel_of_xla(values, output_size)
            return _as_int64(*found) if isinstance(found, tuple) else found
        return _fallback.on_client(getattr(torch.ops.aten, operation).default, values, output_size)

    return pool


def _needs_own(values: torch.Tensor, axes: Sequence[_Axis], ceil_mode: bool) -> bool:
    return ceil_mode or values.numel() == 0 or any(axis.dilation > 1 for axis in axes)


WRAPPED: dict[str, Callable[..., Any]] = {}
WRAPPED_ABOVE_AUTOGRAD = {name: with_own_gradient(name) for name in ("max_pool2d", "max_pool3d")}
for _rank in (2, 3):
    WRAPPED |= {name: to_size(name) for name in (f"adaptive_max_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")}
    WRAPPED[f"avg_pool{_rank}d"] = _precision.of_float32(average)
    WRAPPED[f"avg_pool{_rank}d_backward"] = _precision.of_float32(average_backward)
    WRAPPED[f"max_pool{_rank}d_with_indices"] = largest
    WRAPPED[f"max_pool{_rank}d_with_indices_backward"] = largest_backward
