"""The negative log likelihood of one sample without a batch, for which PyTorch/XLA reads past a shape's end, of classes
that are bytes or are not there; and a gradient that takes what is no number for something below."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _out_of_range, _refusals

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
    """The loss and the weight that its mean was divided by; also of ``nll_loss2d``.

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
    target = _wide(target)
    vector = values.dim() == 1
    if vector:
        values, target = values.unsqueeze(0), target.reshape(1)
    loss, total = kernel(values, target, weight, reduction, ignore_index)
    loss = _of_classes(loss, values, target, ignore_index)
    return loss.reshape(()) if vector else loss, total


def _wide(target: torch.Tensor) -> torch.Tensor:
    """Bytes, in which PyTorch/XLA counts the classes, too, and looks for ``ignore_index``, -100."""
    import torch

    return target.to(torch.int64) if target.dtype == torch.uint8 else target


def _of_classes(loss: torch.Tensor, values: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Not a number where a target is no class, which PyTorch/XLA leaves out of the sum."""
    out = _no_classes(target, values, ignore_index)
    return _out_of_range.put_out(loss, out if loss.shape == out.shape else out.any())


def _no_classes(target: torch.Tensor, values: torch.Tensor, ignore_index: int) -> torch.Tensor:
    return _out_of_range.outside(target, values.shape[1]) & _out_of_range.is_not(target, ignore_index)


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
    """Also of ``nll_loss2d``."""
    target, vector = _wide(target), values.dim() == 1
    if vector:
        gradient = gradient.reshape(1) if reduction == 0 else gradient
        values, target = values.unsqueeze(0), target.reshape(1)
    given = kernel(gradient, values, target, weight, reduction, ignore_index, total_weight)
    given = _out_of_range.put_out(given, _no_classes(target, values, ignore_index).unsqueeze(1))
    return given.squeeze(0) if vector else given


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
    "nll_loss2d_backward": nll_loss_backward,
    "nll_loss2d_forward": nll_loss_forward,
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
}
