"""Elements at indices that are out of range, which XLA takes from the nearest place: here they are not a number.

torch looks at each index and raises an error. On a device nobody can look before the step has run, and an element of
another row would train a model on. So what is read out of range is NaN, of integers the smallest number (as
``jax.numpy.take`` has it), and reaches the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def outside(index: torch.Tensor, size: int, negative: bool = False) -> torch.Tensor:
    """Which elements of ``index`` are no places among ``size``. ``negative``: those from the end are."""
    return (_number(index) < float(-size if negative else 0)) | (_number(index) >= float(size))


def is_not(index: torch.Tensor, number: int) -> torch.Tensor:
    return _number(index) != float(number)


def _number(index: torch.Tensor) -> torch.Tensor:
    """As float64, which tells every size from its neighbours.

    PyTorch/XLA makes one input of two equal numbers of one type, and another computation where they part: whole numbers
    are what loops count in.
    """
    import torch

    return index.to(torch.float64)


def put_out(read: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``read`` without what was read there. ``out``: which elements; is broadcast. Booleans stay."""
    import torch

    if read.is_floating_point() or read.is_complex():
        return read.masked_fill(out, float("nan"))
    if read.dtype == torch.bool:
        return read
    return read.masked_fill(out, torch.iinfo(read.dtype).min)
