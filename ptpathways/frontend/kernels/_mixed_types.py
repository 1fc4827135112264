"""Operators of several tensors whose types differ: torch converts them to one type, PyTorch/XLA often to the first's.

``torch.where(mask, integers, floats)`` gave integers, ``integers % floats`` was 0, and tensors without dimensions of a
wider type made a computation's results another type than PyTorch/XLA said they had.
``python -m tests.fuzz.promotions`` compares pairs of all types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def _converted(arguments: tuple[Any, ...], dtype: torch.dtype) -> list[Any]:
    """Torch gives a wrapper a number in place of a tensor that was made of one."""
    import torch

    device = next(item.device for item in arguments if isinstance(item, torch.Tensor))
    return [
        item.to(dtype) if isinstance(item, torch.Tensor) else torch.full((), item, dtype=dtype, device=device)
        for item in arguments
    ]


def _common(arguments: tuple[Any, ...]) -> torch.dtype:
    """The type that torch computes with, of two or three tensors of which some may be numbers."""
    import torch

    first, *others = arguments
    for other in others:
        # Tensors without dimensions decide less than others.
        shape = [1] * any(isinstance(item, torch.Tensor) and item.dim() > 0 for item in (first, other))
        first = torch.empty(shape, dtype=torch.result_type(first, other), device="meta")
    dtype: torch.dtype = first.dtype
    return dtype


@hands_on(Plain.SAME_TYPES)
def of_one_type(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """``kernel`` of all tensors in their common type."""
    return kernel(*_converted(arguments, _common(arguments)), **named)


@hands_on(Plain.SAME_TYPES | Plain.MASKED)
def where(kernel: Callable[..., Any], mask: torch.Tensor, values: Any, other: Any) -> Any:
    """The mask keeps its type."""
    return kernel(mask, *_converted((values, other), _common((values, other))))


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        "add.Tensor",
        "addcdiv",
        "addcmul",
        "bitwise_and.Tensor",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
        "eq.Tensor",
        "fmod.Tensor",
        "ge.Tensor",
        "gt.Tensor",
        "le.Tensor",
        "lt.Tensor",
        "maximum",
        "minimum",
        "mul.Tensor",
        "ne.Tensor",
        "pow.Tensor_Tensor",
        "remainder.Tensor",
        "sub.Tensor",
        "xlogy.Tensor",
    ),
    of_one_type,
)
WRAPPED["where.self"] = where
