"""Elements that a mask chooses, where no shape hangs on how many they are.

PyTorch/XLA's ``masked_scatter`` makes shapes that only the step knows, of which XLA knows few operations, and torch
computes its gradient by ``masked_select``, which has such a shape too. Here a running count says which element of the
source a place takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _out_of_range, _refusals
from ptpathways.frontend.xla import _trace
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def _order(mask: torch.Tensor) -> torch.Tensor:
    """At each chosen place, how many are chosen before it. Flat."""
    return mask.flatten().cumsum(0) - 1


def is_mask(index: torch.Tensor) -> bool:
    import torch

    return index.dtype in (torch.bool, torch.uint8)


def of_number(
    values: torch.Tensor, indices: Sequence[torch.Tensor | None], source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor | None:
    """The mask of ``values[mask] = number``, of a shape that broadcasts to that of ``values``; None for any other
    assignment."""
    if not _trace.is_number_at_mask(indices, source, accumulate) or (source.is_complex() and not values.is_complex()):
        return None
    dim, mask = next((dim, index) for dim, index in enumerate(indices) if index is not None)
    return mask.to(values.device).reshape(*mask.shape, *[1] * (values.dim() - dim - mask.dim()))


def as_places(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Each mask as the places that it chooses, of which the client finds out how many they are."""
    import torch

    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or not is_mask(index):
            places.append(index)
        else:
            found = index.nonzero()
            # Copies: views of nothing could not be made.
            places += [torch.select_copy(found, 1, dim) for dim in range(index.dim())]
    return places


@hands_on(Plain.FLOATING | Plain.WIDE)
def masked_fill_by_number(kernel: Callable[..., Any], values: torch.Tensor, mask: torch.Tensor, value: complex) -> Any:
    """A number that the tensor's type does not have is refused, of which PyTorch/XLA takes what it has."""
    _refusals.check_holds(values.dtype, value)
    return kernel(values, mask, value)


def masked_fill(kernel: Callable[..., Any], values: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> Any:
    """With a number that is on the device, for which PyTorch/XLA waits."""
    import torch

    if value.dim() > 0 or value.device != values.device or value.dtype != values.dtype or mask.dtype != torch.bool:
        return kernel(values, mask, value)
    return torch.where(mask, value, values)


def masked_scatter(values: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``values`` with the elements of ``source``, in order, where ``mask`` is; NaN where ``source`` has too few."""
    import torch

    values, mask = torch.broadcast_tensors(values, mask)
    if values.numel() == 0:
        return values.clone()
    order, count = _order(mask), source.numel()
    if count == 0:
        taken, out = values, mask
    else:
        taken = source.flatten()[order.clamp(0, count - 1)].view(values.shape)
        out = _out_of_range.outside(order, count).view(values.shape) & mask
    return torch.where(mask, _out_of_range.put_out(taken, out), values)


def masked_scatter_backward(gradient: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The gradient of ``source``, of shape ``sizes``."""
    import torch

    gradient, mask = torch.broadcast_tensors(gradient, mask)
    count = math.prod(sizes)
    nothing = torch.zeros(count, dtype=gradient.dtype, device=gradient.device)
    if count == 0 or gradient.numel() == 0:
        return nothing.view(sizes)
    order = _order(mask)
    here = mask.flatten() & ~_out_of_range.outside(order, count)
    return nothing.index_add(0, order.clamp(0, count - 1), gradient.flatten().masked_fill(~here, 0)).view(sizes)


REPLACED: dict[str, Callable[..., Any]] = {
    "masked_scatter": masked_scatter,
    "masked_scatter_backward": masked_scatter_backward,
}
WRAPPED: dict[str, Callable[..., Any]] = {
    "masked_fill.Scalar": masked_fill_by_number,
    "masked_fill.Tensor": masked_fill,
}
