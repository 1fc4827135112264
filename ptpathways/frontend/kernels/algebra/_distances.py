"""Distances between rows: PyTorch/XLA's take two tensors of one batch shape, and have no gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ROWS_FOR_PRODUCT = 25
"""From so many rows on, torch computes Euclidean distances by a matrix product, unless it is told not to."""


def cdist_forward(
    left: torch.Tensor, right: torch.Tensor, p: float = 2.0, compute_mode: int | None = None
) -> torch.Tensor:
    """The p-norm distances of rows: (..., r, m) and (..., s, m) give (..., r, s); batch shapes are broadcast."""
    import torch

    if 0 in (left.shape[-2], right.shape[-2], left.shape[-1]):
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return torch.zeros([*batch, left.shape[-2], right.shape[-2]], dtype=left.dtype, device=left.device)
    many = left.shape[-2] > _ROWS_FOR_PRODUCT or right.shape[-2] > _ROWS_FOR_PRODUCT
    if p == 2 and (compute_mode == 1 or (compute_mode in (None, 0) and many)):
        squares = left.square().sum(-1, keepdim=True) + right.square().sum(-1).unsqueeze(-2)
        return (squares - 2 * torch.matmul(left, right.transpose(-1, -2))).clamp(min=0).sqrt()
    apart = left.unsqueeze(-2) - right.unsqueeze(-3)
    found: torch.Tensor = torch.linalg.vector_norm(apart, p, -1)
    return found


def cdist_backward(
    gradient: torch.Tensor, left: torch.Tensor, right: torch.Tensor, p: float, distances: torch.Tensor
) -> torch.Tensor:
    """The gradient of ``left``, whose batch shape is the broadcast one."""
    import torch

    if gradient.numel() == 0 or left.numel() == 0:
        return torch.zeros_like(left)
    return _towards(left.unsqueeze(-2) - right.unsqueeze(-3), gradient, p, distances).sum(-2)


def _towards(apart: torch.Tensor, gradient: torch.Tensor, p: float, distances: torch.Tensor) -> torch.Tensor:
    """The gradient of the norms ``distances`` of ``apart`` over its last dimension; zero where they are."""
    import torch

    gradient, distances = gradient.unsqueeze(-1), distances.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(apart)
    if p == 1:
        return gradient * apart.sign()
    if math.isinf(p):
        return gradient * apart.sign() * (apart.abs() == distances)
    nowhere = distances == 0 if p >= 1 else (distances == 0) | (apart == 0)
    scale = gradient / torch.where(nowhere, torch.ones_like(apart), distances.expand_as(apart)).pow(p - 1)
    if p == 2:
        step = apart * scale
    else:
        length = torch.where(apart == 0, torch.ones_like(apart), apart.abs())
        step = apart.sign() * length.pow(p - 1) * scale
    return torch.where(nowhere, torch.zeros_like(step), step)


def pdist_forward(rows: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """The distances of all pairs of ``rows`` (n, m), in the order of ``torch.triu_indices``: (n * (n - 1) / 2,)."""
    import torch

    first, second = _pairs(rows)
    apart = rows.index_select(0, first) - rows.index_select(0, second)
    found: torch.Tensor = torch.linalg.vector_norm(apart, p, -1)
    return found


def _pairs(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    first, second = torch.triu_indices(rows.shape[0], rows.shape[0], 1)
    return first.to(rows.device), second.to(rows.device)


def pdist_backward(gradient: torch.Tensor, rows: torch.Tensor, p: float, distances: torch.Tensor) -> torch.Tensor:
    """The gradient of ``rows``."""
    import torch

    first, second = _pairs(rows)
    steps = _towards(rows.index_select(0, first) - rows.index_select(0, second), gradient, p, distances)
    return torch.zeros_like(rows).index_add(0, first, steps).index_add(0, second, -steps)


REPLACED: dict[str, Callable[..., Any]] = {
    "_cdist_forward": cdist_forward,
    "_cdist_backward": cdist_backward,
    "_pdist_forward": pdist_forward,
    "_pdist_backward": pdist_backward,
}
