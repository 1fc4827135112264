"""The negative log likelihood of one sample without a batch, for which PyTorch/XLA reads past a shape's end; and a
gradient that takes what is no number for something below."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels import _precision, _refusals

if TYPE_CHECKING:
    import torch


def nll_loss_forward(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> Any:
    """The loss and the weight that its mean was divided by.

    Raises:
        RuntimeError: the target is of another type than torch's, or the values are no floats.
    """
    import torch

    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(
            f"nll_loss: expected scalar type Long but found {target.dtype}; convert the target (.long())"
        )
    if not values.is_floating_point():
        raise RuntimeError(f"nll_loss is of floats, got values of {values.dtype}; convert them (.float())")
    if weight is not None:
        _refusals.one_type("nll_loss", values, weight)
    if values.dim() > 1:
        return kernel(values, target, weight, reduction, ignore_index)
    loss, total = kernel(values.unsqueeze(0), target.reshape(1), weight, reduction, ignore_index)
    return loss.reshape(()), total


def nll_loss_backward(
    kernel: Callable[..., Any],
    gradient: torch.Tensor,
    values: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> Any:
    if values.dim() > 1:
        return kernel(gradient, values, target, weight, reduction, ignore_index, total_weight)
    gradient = gradient.reshape(1) if reduction == 0 else gradient
    given = kernel(gradient, values.unsqueeze(0), target.reshape(1), weight, reduction, ignore_index, total_weight)
    return given.squeeze(0)


def smooth_l1_loss_backward(
    gradient: torch.Tensor, values: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """``reduction``: torch's number, of which 1 is the mean."""
    import torch

    wide = torch.float32 if _precision.is_short(values.dtype) else values.dtype
    apart, given = values.to(wide) - target.to(wide), gradient.to(wide)
    slope = torch.where(apart <= -beta, -1.0, torch.where(apart >= beta, 1.0, apart / beta if beta else apart))
    return (slope * given / (apart.numel() if reduction == 1 else 1)).to(values.dtype)


REPLACED: dict[str, Callable[..., Any]] = {"smooth_l1_loss_backward": smooth_l1_loss_backward}
WRAPPED: dict[str, Callable[..., Any]] = {
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
}
