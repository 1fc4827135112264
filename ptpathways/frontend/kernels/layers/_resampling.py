"""Resampling of images: of PyTorch's kinds PyTorch/XLA has two, without gradients, and takes no notice of scales.

Resampling is linear, and goes dimension by dimension. The weights depend on nothing but sizes, so the client asks torch
for them, by resampling the unit matrix; the device multiplies. For the nearest kinds it picks elements instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _fallback

if TYPE_CHECKING:
    import torch


def _linear(unit: torch.Tensor, size: int, align_corners: bool, scale: float | None) -> torch.Tensor:
    import torch

    found: torch.Tensor = torch.ops.aten.upsample_linear1d(unit.unsqueeze(0), [size], align_corners, scale)[0]
    return found


def _of_images(operation: str) -> Callable[..., torch.Tensor]:
    """By an operation of two dimensions, of which the second stays as it is."""

    def resampled(unit: torch.Tensor, size: int, align_corners: bool, scale: float | None) -> torch.Tensor:
        import torch

        call = getattr(torch.ops.aten, operation)
        images = unit.unsqueeze(0).unsqueeze(-1).repeat(1, 1, 1, 2)
        found: torch.Tensor = call(images, [size, 2], align_corners, scale, None)[0, :, :, 0]
        return found

    return resampled


def _nearest(places: torch.Tensor, size: int, scale: float | None) -> torch.Tensor:
    import torch

    found: torch.Tensor = torch.ops.aten.upsample_nearest1d(places, [size], scale)
    return found


def _nearest_of_images(places: torch.Tensor, size: int, scale: float | None) -> torch.Tensor:
    """Where the size doubles, or stays, this one takes no notice of the scale; nor do the gradients of the others."""
    import torch

    found: torch.Tensor = torch.ops.aten.upsample_nearest2d(places.unsqueeze(-1), [size, 1], scale, None)
    return found


def _nearest_exact(places: torch.Tensor, size: int, scale: float | None) -> torch.Tensor:
    import torch

    found: torch.Tensor = torch.ops.aten._upsample_nearest_exact1d(places, [size], scale)
    return found


def _weights(
    kind: Callable[..., torch.Tensor],
    like: torch.Tensor,
    before: int,
    after: int,
    align_corners: bool,
    scale: float | None,
) -> torch.Tensor:
    """(before, after), on the client: a resampled dimension is a product with it."""
    import torch

    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return kind(torch.eye(before, dtype=dtype), after, align_corners, scale)


def _multiply(matrix: torch.Tensor, values: torch.Tensor, dim: int) -> torch.Tensor:
    """``matrix`` (after, before) times ``values`` along ``dim``."""
    import torch

    shape = list(values.shape)
    flat = values.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))
    matrix = matrix.contiguous().to(values.device).unsqueeze(0).expand(flat.shape[0], -1, -1)
    shape[dim] = matrix.shape[1]
    return torch.bmm(matrix, flat).reshape(shape)


def by_weights(kind: Callable[..., torch.Tensor], operation: str) -> dict[str, Callable[..., Any]]:
    """The kernels of a kind that computes means, and of its gradient."""

    def forward(values: torch.Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
        import torch

        if not values.is_floating_point():
            call = getattr(torch.ops.aten, operation).default
            return _fallback.on_client(call, values, output_size, align_corners, *scales)
        found = values.to(torch.float64 if values.dtype == torch.float64 else torch.float32)
        for number, (size, scale) in enumerate(zip(output_size, _filled(scales, output_size), strict=True)):
            matrix = _weights(kind, values, values.shape[2 + number], size, align_corners, scale)
            found = _multiply(matrix.transpose(0, 1), found, 2 + number)
        return found.to(values.dtype)

    def backward(
        gradient: torch.Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> Any:
        import torch

        found = gradient.to(torch.float64 if gradient.dtype == torch.float64 else torch.float32)
        for number, (size, scale) in enumerate(zip(output_size, _filled(scales, output_size), strict=True)):
            matrix = _weights(kind, gradient, input_size[2 + number], size, align_corners, scale)
            found = _multiply(matrix, found, 2 + number)
        return found.to(gradient.dtype)

    return {operation: forward, f"{operation}_backward": backward}


def by_index(
    kind: Callable[..., torch.Tensor], operation: str, of_gradient: Callable[..., torch.Tensor] | None = None
) -> dict[str, Callable[..., Any]]:
    """The kernels of a kind that picks elements, and of its gradient, whose kind may be another one."""

    def sources(
        kind: Callable[..., torch.Tensor], device: Any, before: int, after: int, scale: float | None
    ) -> torch.Tensor:
        import torch

        places = torch.arange(before, dtype=torch.float64).reshape(1, 1, -1)
        return kind(places, after, scale).flatten().to(torch.int64).to(device)

    def forward(values: torch.Tensor, output_size: Sequence[int], *scales: float | None) -> Any:
        for number, (size, scale) in enumerate(zip(output_size, _filled(scales, output_size), strict=True)):
            dim = 2 + number
            values = values.index_select(dim, sources(kind, values.device, values.shape[dim], size, scale))
        return values

    def backward(
        gradient: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
    ) -> Any:
        import torch

        for number, (size, scale) in enumerate(zip(output_size, _filled(scales, output_size), strict=True)):
            dim = 2 + number
            shape = list(gradient.shape)
            shape[dim] = input_size[dim]
            zeros = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device)
            places = sources(of_gradient or kind, gradient.device, input_size[dim], size, scale)
            gradient = zeros.index_add(dim, places, gradient)
        return gradient

    return {operation: forward, f"{operation}_backward": backward}


def _filled(scales: Sequence[float | None], output_size: Sequence[int]) -> list[float | None]:
    return [*scales, *[None] * (len(output_size) - len(scales))]


REPLACED: dict[str, Callable[..., Any]] = {
    **by_weights(_linear, "upsample_linear1d"),
    **by_weights(_linear, "upsample_bilinear2d"),
    **by_weights(_linear, "upsample_trilinear3d"),
    **by_weights(_of_images("upsample_bicubic2d"), "upsample_bicubic2d"),
    **by_weights(_of_images("_upsample_bilinear2d_aa"), "_upsample_bilinear2d_aa"),
    **by_weights(_of_images("_upsample_bicubic2d_aa"), "_upsample_bicubic2d_aa"),
    **by_index(_nearest, "upsample_nearest1d", _nearest_of_images),
    **by_index(_nearest_of_images, "upsample_nearest2d"),
    **by_index(_nearest, "upsample_nearest3d", _nearest_of_images),
}
for _rank in (1, 2, 3):
    REPLACED |= by_index(_nearest_exact, f"_upsample_nearest_exact{_rank}d")
