"""``sort``, ``topk`` and ``kthvalue`` in torch's order: every NaN is the largest number, and both zeros are equal.

PyTorch/XLA compares by IEEE 754's total order, in which a NaN whose sign bit is set (``0 / 0`` on an x86 CPU, or the
negative of a NaN) comes before all numbers, and -0.0 before 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls._small import scalar_as_vector

if TYPE_CHECKING:
    import torch


def _with_one_nan(values: torch.Tensor) -> torch.Tensor:
    """With the NaN that comes after all numbers in place of each."""
    import torch

    return torch.where(values != values, float("nan"), values) if values.is_floating_point() else values


def _of_own(values: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices by an operation of their own.

    PyTorch/XLA takes the shape of both results for that of an index that is one of them, and XLA ends the process
    (``values.index_select(0, x.argsort())``, ``index_add``, ``index_copy``, ``embedding``).
    """
    return values, indices + 0


def ordered(kernel: Callable[..., Any], values: torch.Tensor, *arguments: Any, **named: Any) -> Any:
    """``topk``, ``kthvalue``, and ``sort`` of which no order of equal elements is asked."""
    return _of_own(*scalar_as_vector(kernel, _with_one_nan(values), *arguments, **named))


def ordered_stably(kernel: Callable[..., Any], values: torch.Tensor, *, stable: bool | None, **named: Any) -> Any:
    """``sort(stable=True)``: 0.0 stands for -0.0 while they are compared, and the values are read afterwards."""
    import torch

    if not stable or not values.is_floating_point() or values.dim() == 0:
        return ordered(kernel, values, stable=stable, **named)
    keys = torch.where(values == 0, 0.0, _with_one_nan(values))
    _, indices = _of_own(*kernel(keys, stable=stable, **named))
    return values.gather(named.get("dim", -1), indices), indices


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(("kthvalue", "sort", "topk"), ordered)
WRAPPED |= {"sort.stable": ordered_stably}
