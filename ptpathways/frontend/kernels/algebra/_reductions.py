"""Bounds, counts and norms: PyTorch/XLA counts in the tensor's own type, and takes the infinity norm for a power."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _small
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def count_nonzero(values: torch.Tensor, dim: int | Sequence[int] | None = None) -> torch.Tensor:
    """int64, over all dimensions or those named."""
    import torch

    dims = [dim] if isinstance(dim, int) else list(dim or range(values.dim()))
    return (values != 0).sum(dims, dtype=torch.int64)


def _dimensions(values: torch.Tensor, dims: Sequence[int]) -> list[int]:
    """``dims`` counted from the first one.

    Raises:
        IndexError: one is not there.
    """
    rank = max(values.dim(), 1)
    for dim in dims:
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            )
    return [dim % rank for dim in dims]


def norm(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    p: float | None = 2,
    dim: Sequence[int] = (),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``torch.norm``; of vectors, also where several dimensions are named."""
    import torch

    given = 2 if p is None else p
    found: torch.Tensor = torch.linalg.vector_norm(values, given, list(dim) or None, keepdim, dtype=dtype)
    return found


def take_own_norm() -> None:
    """``torch.norm`` takes a ``dtype=`` of a Frobenius norm, too: torch's refuses it of devices that it does not know.
    Idempotent."""
    import torch

    plain = torch.functional.norm
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def norm_of_type(
        input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
    ) -> Any:
        if dtype is not None and isinstance(input, torch.Tensor) and input.device.type == "xla":
            input, dtype = input.to(dtype), None
        return plain(input, p, dim, keepdim, out, dtype)

    modules: tuple[Any, ...] = (torch, torch.functional)
    for module in modules:
        module.norm = norm_of_type


def vector_norm(
    values: torch.Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``torch.linalg.vector_norm``; sums of 16-bit types are float32.

    Raises:
        IndexError: a dimension is not there.
        RuntimeError: the largest of no elements.
    """
    import torch

    result_dtype = (dtype or values.dtype).to_real()
    magnitudes = (values if dtype is None else values.to(dtype)).abs()
    if result_dtype in (torch.bfloat16, torch.float16):
        magnitudes = magnitudes.to(torch.float32)
    dims = _dimensions(values, dim) if dim else list(range(values.dim()))
    if values.dim() == 0:
        magnitudes, dims, keepdim = magnitudes.reshape(1), [0], False
    if math.isinf(ord):
        if any(magnitudes.shape[index] == 0 for index in dims):
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor, which has no such element; got "
                f"shape {tuple(values.shape)} over dimensions {dims}"
            )
        reduced = magnitudes.amax(dims, keepdim) if ord > 0 else magnitudes.amin(dims, keepdim)
    elif ord == 0:
        reduced = (magnitudes != 0).sum(dims, keepdim)
    elif ord == 1:
        reduced = magnitudes.sum(dims, keepdim)
    elif ord == 2:
        reduced = (magnitudes * magnitudes).sum(dims, keepdim).sqrt()
    else:
        reduced = magnitudes.pow(ord).sum(dims, keepdim).pow(1.0 / ord)
    return reduced.to(result_dtype)


def clamp_min(values: torch.Tensor, min: torch.Tensor) -> torch.Tensor:
    """Against a tensor of any shape that is broadcast with ``values``; no number where either has none."""
    import torch

    dtype = torch.result_type(values, min)
    return torch.maximum(*torch.broadcast_tensors(values.to(dtype), min.to(dtype)))


def clamp_max(values: torch.Tensor, max: torch.Tensor) -> torch.Tensor:
    """As ``clamp_min``."""
    import torch

    dtype = torch.result_type(values, max)
    return torch.minimum(*torch.broadcast_tensors(values.to(dtype), max.to(dtype)))


def logsumexp(values: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """Also of infinities. Integers count as float32."""
    import torch

    if not values.is_floating_point():
        values = values.to(torch.complex64 if values.is_complex() else torch.get_default_dtype())
    dims = list(dim) or list(range(values.dim()))
    if values.dim() == 0:
        _small.check_of_scalar(*dims)
        return logsumexp(values.reshape(1), [0]).reshape(()) if values.is_complex() else values.clone()
    if values.numel() == 0:
        return values.exp().sum(dims, keepdim).log()
    real = torch.view_as_real_copy(values).select(-1, 0) if values.is_complex() else values
    dims = _dimensions(values, dims)
    largest = real.amax(dims, keepdim=True)
    shift = torch.where(largest.abs() == math.inf, torch.zeros_like(largest), largest)
    total = (values - shift).exp().sum(dims, keepdim=True).log()
    if values.is_complex():  # XLA takes log(exp(x)) for x, but a logarithm's imaginary part is an angle
        real_part, angle = (torch.view_as_real_copy(total).select(-1, number) for number in (0, 1))
        angle = torch.atan2(angle.sin(), angle.cos())
        total = torch.view_as_complex_copy(torch.stack([real_part, angle], -1))
    total = total + shift
    return total if keepdim else total.squeeze(dims)


@hands_on(Plain.FLOATING)
def trace(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """Integers and booleans are added up as int64."""
    import torch

    whole = not values.is_floating_point() and not values.is_complex()
    return kernel(values.to(torch.int64) if whole else values)


@hands_on(Plain.REAL)
def magnitude(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """Of complex numbers it is real, which PyTorch/XLA does not tell autograd."""
    import torch

    if not values.is_complex():
        return kernel(values)
    if values.numel() == 0:
        return torch.zeros(values.shape, dtype=values.dtype.to_real(), device=values.device)
    parts = torch.view_as_real_copy(values).abs()
    largest = parts.amax(-1)
    known = torch.isfinite(largest) & (largest > 0)  # of others it is the largest part itself
    scaled = parts / torch.where(known, largest, torch.ones_like(largest)).unsqueeze(-1)
    return torch.where(known, largest * scaled.square().sum(-1).sqrt(), largest)


def polygamma_(values: torch.Tensor, n: int) -> torch.Tensor:
    """In place, which torch's functionalisation does not know."""
    import torch

    found = torch.polygamma(n, values)
    if not torch.can_cast(found.dtype, values.dtype):
        raise RuntimeError(f"result type {found.dtype} can't be cast to the desired output type {values.dtype}")
    return values.copy_(found)


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"polygamma_": polygamma_}
REPLACED: dict[str, Callable[..., Any]] = {
    "clamp_max.Tensor": clamp_max,
    "clamp_min.Tensor": clamp_min,
    "count_nonzero": count_nonzero,
    "count_nonzero.dim_IntList": count_nonzero,
    "linalg_vector_norm": vector_norm,
    "logsumexp": logsumexp,
}
WRAPPED: dict[str, Callable[..., Any]] = {
    "abs": magnitude,
    "trace": trace,
    "norm.Scalar": norm,
    "norm.ScalarOpt_dtype": lambda kernel, values, p=2, *, dtype=None: norm(kernel, values, p, dtype=dtype),
    "norm.ScalarOpt_dim": norm,
    "norm.ScalarOpt_dim_dtype": norm,
}
