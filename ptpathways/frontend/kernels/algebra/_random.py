"""Random numbers whose shape PyTorch/XLA forgets when it looks for a compiled computation, so that a second shape
would get numbers of the first one's; or the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _fallback

if TYPE_CHECKING:
    import torch


def exponential(values: torch.Tensor, lambd: float = 1.0, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Numbers of the exponential distribution of rate ``lambd``, in the shape and type of ``values``.

    With a generator, which is the client's, they are drawn on the client.
    """
    import torch

    if generator is not None:
        found: torch.Tensor = _fallback.on_client(
            torch.ops.aten.exponential.default, values, lambd, generator=generator
        )
        return found
    uniform = torch.rand(values.shape, dtype=working(values.dtype), device=values.device)
    return (-torch.log1p(-uniform) / lambd).to(values.dtype)  # of 1 - uniform, which is never zero


def bernoulli_p(values: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Ones with probability ``p`` and zeros, in the shape and type of ``values``; as ``exponential``."""
    import torch

    if generator is not None:
        found: torch.Tensor = _fallback.on_client(torch.ops.aten.bernoulli.p, values, p, generator=generator)
        return found
    return (torch.rand(values.shape, device=values.device) < p).to(values.dtype)


def randperm(
    n: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """The order of ``n`` random numbers; PyTorch/XLA's own takes no notice of the seed."""
    import torch

    order = torch.rand(n, dtype=torch.float64, device=device or "xla").sort().indices
    return order.to(dtype or torch.int64)


def normal(
    kernel: Callable[..., Any],
    mean: torch.Tensor | float,
    std: torch.Tensor | float = 1.0,
    *,
    generator: torch.Generator | None = None,
) -> Any:
    """``torch.normal`` of two tensors; they are broadcast.

    Raises:
        RuntimeError: of complex deviations.
    """
    import torch

    if isinstance(std, torch.Tensor) and std.is_complex():
        raise RuntimeError(f"normal expects standard deviation to be non-complex, got {std.dtype}")
    if isinstance(mean, torch.Tensor) and isinstance(std, torch.Tensor):
        mean, std = torch.broadcast_tensors(mean, std)
    return kernel(mean, std, generator=generator)


def working(dtype: torch.dtype) -> torch.dtype:
    """The type to draw in: 16-bit types have too few numbers near zero."""
    import torch

    return torch.float64 if dtype == torch.float64 else torch.float32


REPLACED: dict[str, Callable[..., Any]] = {"exponential": exponential, "bernoulli.p": bernoulli_p, "randperm": randperm}
WRAPPED: dict[str, Callable[..., Any]] = {"normal.Tensor_Tensor": normal}
