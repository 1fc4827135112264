"""complex128 on the way to the CPU, where PyTorch/XLA drops the imaginary parts: it goes as pairs of real numbers.

Every change of a type passes here, too, and pays some microseconds while it is traced; torch's table has no other
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def to_copy(kernel: Callable[..., Any], values: torch.Tensor, **named: Any) -> Any:
    """A copy of another type, layout or device."""
    import torch

    if values.dtype is not torch.complex128:
        return kernel(values, **named)
    device = named.get("device")
    if device is None or device.type == "xla" or values.device.type != "xla":
        return kernel(values, **named)
    pairs = kernel(torch.view_as_real_copy(values), device=device)
    return torch.view_as_complex(pairs).to(dtype=named.get("dtype"), copy=False)


def copy_(kernel: Callable[..., Any], target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """Into a tensor that is there."""
    import torch

    if source.dtype is not torch.complex128 or source.device.type != "xla" or target.device.type == "xla":
        return kernel(target, source, non_blocking)
    return target.copy_(source.to(target.device))


WRAPPED: dict[str, Callable[..., Any]] = {"_to_copy": to_copy, "copy_": copy_}
