"""Reflected and replicated padding of empty tensors, and by negative widths, which cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _fallback
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def _sources(size: int, low: int, high: int, reflect: bool) -> torch.Tensor:
    """Where the elements of a padded dimension of ``size`` come from: int64, on the client."""
    import torch

    places = torch.arange(-low, size + high)
    if not reflect:
        return places.clamp(0, size - 1)
    places = places.abs()
    return torch.where(places < size, places, 2 * (size - 1) - places)


def _dimensions(values: torch.Tensor, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """The padded dimensions, each with its widths; ``padding`` begins with the last dimension's."""
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return [(values.dim() - 1 - number, low, high) for number, (low, high) in enumerate(pairs)]


def padding_of(reflect: bool, operation: str) -> Callable[..., Any]:
    """
    Raises:
        RuntimeError: of ``pad``: there is nothing to pad with, or nothing is left.
    """

    def pad(kernel: Callable[..., Any], values: torch.Tensor, padding: Sequence[int]) -> Any:
        if values.numel() == 0:
            return _fallback.on_client(_xla.operator(operation), values, padding)
        if min(padding) >= 0:
            return kernel(values, padding)
        for dim, low, high in _dimensions(values, padding):
            size = values.shape[dim]
            if size + low + high < 1:
                raise RuntimeError(f"input of size {size} is too small. Calculated output size: {size + low + high}")
            sources = _sources(values.shape[dim], low, high, reflect)
            values = values.index_select(dim, sources.to(values.device))
        return values

    return pad


def gradient_of(reflect: bool) -> Callable[..., Any]:
    def backward(
        kernel: Callable[..., Any], gradient: torch.Tensor, values: torch.Tensor, padding: Sequence[int]
    ) -> Any:
        import torch

        if values.numel() > 0 and min(padding) >= 0:
            return kernel(gradient, values, padding)
        for dim, low, high in _dimensions(values, padding):
            sources = _sources(values.shape[dim], low, high, reflect).to(values.device)
            shape = list(gradient.shape)
            shape[dim] = values.shape[dim]
            gradient = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device).index_add(
                dim, sources, gradient
            )
        return gradient

    return backward


WRAPPED: dict[str, Callable[..., Any]] = {}
for _kind in ("reflection", "replication"):
    for _count in (1, 2, 3):
        WRAPPED[f"{_kind}_pad{_count}d"] = padding_of(_kind == "reflection", f"{_kind}_pad{_count}d")
        WRAPPED[f"{_kind}_pad{_count}d_backward"] = gradient_of(_kind == "reflection")
