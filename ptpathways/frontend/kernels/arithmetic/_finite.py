"""Numbers in place of those that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def nan_to_num(
    values: torch.Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> torch.Tensor:
    """PyTorch/XLA refuses replacements that are not finite, and rounds the largest finite bfloat16 to infinity."""
    import torch

    if values.is_complex():
        parts = torch.view_as_real_copy(values)
        return torch.view_as_complex_copy(nan_to_num(parts, nan, posinf, neginf))
    if not values.is_floating_point():
        return values.clone()
    limits = torch.finfo(values.dtype)
    result = torch.where(values != values, _number(0.0 if nan is None else nan, values), values)
    result = torch.where(values == float("inf"), _number(limits.max if posinf is None else posinf, values), result)
    return torch.where(values == -float("inf"), _number(limits.min if neginf is None else neginf, values), result)


def _number(value: float, values: torch.Tensor) -> torch.Tensor:
    """Of the same type; what is too large for it is infinite."""
    import torch

    rounded = torch.tensor(value, dtype=torch.float64).to(values.dtype).item()
    return _xla.number(rounded, values.dtype, values.device)


REPLACED: dict[str, Callable[..., Any]] = {"nan_to_num": nan_to_num}
