"""``unfold``, whose writes torch's functionalisation takes for gradients: what no window covers became 0.

A view is written by the inverses of the operations that make it. That of ``unfold`` adds up what overlaps and starts
from zeros, so here windows that do not overlap are made of other views.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class _Gradient(threading.local):
    """Whether this thread computes one."""

    asked = False


_gradient = _Gradient()


def unfold(kernel: Callable[..., Any], values: torch.Tensor, dimension: int, size: int, step: int) -> Any:
    """Windows along a dimension: their number in its place, and their elements behind all others."""
    dims = values.dim()
    if dims == 0 or not -dims <= dimension < dims or not 0 < size <= values.shape[dimension] or step < 1:
        return kernel(values, dimension, size, step)
    dimension %= dims
    length = values.shape[dimension]
    count = (length - size) // step + 1
    if count == 1:
        return values.narrow(dimension, 0, size).unsqueeze(dimension).movedim(dimension + 1, -1)
    if step < size:
        return kernel(values, dimension, size, step)
    if count * step <= length:
        whole = values.narrow(dimension, 0, count * step).unflatten(dimension, (count, step))
        return whole.narrow(dimension + 1, 0, size).movedim(dimension + 1, -1)
    # The last one ends before another would begin. Strides of a device's tensor are those of its elements in order.
    shape, strides = list(values.shape), [math.prod(values.shape[dim + 1 :]) for dim in range(dims)]
    shape[dimension], strides[dimension] = count, strides[dimension] * step
    return values.as_strided([*shape, size], [*strides, strides[dimension] // step], 0)


def gradient(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Of ``unfold``; which torch calls here, and the inverse below."""
    before, _gradient.asked = _gradient.asked, True
    try:
        return kernel(*arguments)
    finally:
        _gradient.asked = before


def inverse(kernel: Callable[..., Any], values: torch.Tensor, sizes: Any, dimension: int, size: int, step: int) -> Any:
    """
    Raises:
        RuntimeError: windows were written that a view cannot be written through.
    """
    if not _gradient.asked:
        raise RuntimeError(
            f"windows that share elements cannot be written in place, got unfold(..., size={size}, step={step}); write "
            "a clone() of them, or the tensor that they are of, which has no value after this error"
        )
    return kernel(values, sizes, dimension, size, step)


WRAPPED: dict[str, Callable[..., Any]] = {"unfold_backward": inverse}
WRAPPED_FUNCTIONALIZATION: dict[str, Callable[..., Any]] = {"unfold": unfold, "unfold_backward": gradient}
