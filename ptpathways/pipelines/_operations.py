"""Operations that a stage runs in another form, because PyTorch/XLA has none for them that needs no values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

_aten = torch.ops.aten


def _fill(x: Tensor, value: Tensor) -> Tensor:
    """PyTorch/XLA takes the number out of a tensor to fill with."""
    return value.to(x.dtype).expand(x.shape).clone()


def _fill_(x: Tensor, value: Tensor) -> Tensor:
    return x.copy_(value.expand(x.shape))


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
    cudnn: bool,
) -> Tensor:
    """With fixed statistics; PyTorch/XLA's own form has no backward pass then."""
    assert not training and mean is not None and variance is not None

    def wide(value: Tensor) -> Tensor:
        return value.reshape(1, -1, *(1 for _ in range(x.dim() - 2)))

    scale = torch.rsqrt(variance + epsilon)
    made = (x - wide(mean)) * wide(scale if weight is None else scale * weight)
    return made if bias is None else made + wide(bias)


INSTEAD: dict[Any, Callable[..., Any]] = {
    _aten.fill.Tensor: _fill,
    _aten.fill_.Tensor: _fill_,
    _aten.batch_norm.default: _batch_norm,
    **get_decompositions([_aten.gru.input]),  # PyTorch/XLA's own form is a loop, whose parts are not recorded
}
"""What is run instead of an operation, with its arguments."""
