"""Functions of numbers, of booleans: PyTorch/XLA computes a number of another type and says that it is a boolean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.FLOATING)
def sign(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """``sign`` and ``sgn``, which leave booleans as they are; ``~`` of PyTorch/XLA's sign was true of each."""
    import torch

    return values.clone() if values.dtype == torch.bool else kernel(values)


WRAPPED: dict[str, Callable[..., Any]] = {"sgn": sign, "sign": sign}
