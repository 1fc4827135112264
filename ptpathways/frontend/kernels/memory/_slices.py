"""Slices that begin or end before the first element, which PyTorch/XLA refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.NONNEGATIVE | Plain.WITH_DIMENSIONS)
def slice_copy(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    return kernel(values, dim, *_within(values, dim, start, end), step)


@hands_on(Plain.NONNEGATIVE | Plain.WITH_DIMENSIONS | Plain.SAME_TYPES)
def slice_scatter(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    source: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """A source of another type is converted."""
    return kernel(values, source.to(values.dtype), dim, *_within(values, dim, start, end), step)


def _within(values: torch.Tensor, dim: int, *bounds: int | None) -> list[int | None]:
    """Bounds that are at least zero, as Python's slices have it.

    Raises:
        IndexError: there are no dimensions.
    """
    if values.dim() == 0:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    size = values.shape[dim]
    return [bound if bound is None or bound >= 0 else max(bound + size, 0) for bound in bounds]


WRAPPED: dict[str, Callable[..., Any]] = {"slice_copy.Tensor": slice_copy, "slice_scatter": slice_scatter}
