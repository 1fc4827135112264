"""The negative log likelihood of one sample without a batch, for which PyTorch/XLA reads past a shape's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.MATRICES)
def nll_loss_forward(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> Any:
    """The loss and the weight that its mean was divided by."""
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


WRAPPED: dict[str, Callable[..., Any]] = {
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
}
