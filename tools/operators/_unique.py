"""Operators whose result is not unique: what any right result has in common is compared instead.

Factors of a matrix are known up to signs, or phases, of their columns: their product is compared with the matrix, and
that columns are orthonormal. Which of equal elements comes first in an unstable order is open: what the indices point
to is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Judge = Callable[[Any, list[torch.Tensor], list[torch.Tensor], Callable[[Any, Any], str]], str]
"""Of a sample, the CPU's leaves, the device's and a comparison of two values: what is wrong; empty if nothing is."""


def _eigh(
    sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]
) -> str:
    values, vectors = found
    scaled = vectors * values.to(vectors.dtype).unsqueeze(-2)
    matrix = (expected[1] * expected[0].to(vectors.dtype).unsqueeze(-2)) @ expected[1].mH
    return apart(expected[0], values) or apart(matrix, scaled @ vectors.mH) or _orthonormal(vectors, apart)


def _svd(sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]) -> str:
    return _of_factors(expected, found, apart, lambda right: right.mH)


def _linalg_svd(
    sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]
) -> str:
    return _of_factors(expected, found, apart, lambda right: right)


def _of_factors(
    expected: list[torch.Tensor],
    found: list[torch.Tensor],
    apart: Callable[[Any, Any], str],
    adjoint: Callable[[torch.Tensor], torch.Tensor],
) -> str:
    products = []
    for left, values, right in (expected, found):
        count = values.shape[-1]
        scaled = left[..., :count] * values.to(left.dtype).unsqueeze(-2)
        products.append(scaled @ adjoint(right)[..., :count, :])
    left, values, right = found
    orthonormal = _orthonormal(left, apart) or _orthonormal(adjoint(right).mH, apart)
    return apart(expected[1], values) or apart(*products) or orthonormal


def _qr(sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]) -> str:
    left, right = found
    lower = apart(torch.zeros_like(right), right.tril(-1))
    return apart(expected[0] @ expected[1], left @ right) or _orthonormal(left, apart) or lower


def _orthonormal(vectors: torch.Tensor, apart: Callable[[Any, Any], str]) -> str:
    product = vectors.mH @ vectors
    unit = torch.eye(product.shape[-1], dtype=product.dtype).expand(product.shape)
    what = apart(unit, product)
    return what and f"columns are not orthonormal: {what}"


def _indices(
    sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]
) -> str:
    """Of operators whose results are indices along a dimension, after the values that they point to if any."""
    values = sample.input.detach()
    if values.dim() == 0:
        return apart(expected[-1], found[-1])
    named = [number for number in (*sample.args, sample.kwargs.get("dim")) if isinstance(number, int)]
    what = next((text for one, other in zip(expected[:-1], found[:-1], strict=True) if (text := apart(one, other))), "")
    if what or expected[-1].shape != found[-1].shape:
        return what or "other shapes"
    for dim in (*named, -1, 0):
        if -values.dim() <= dim < values.dim() and _fits(values, expected[-1], dim):
            one, other = (torch.take_along_dim(values, index, dim) for index in (expected[-1], found[-1]))
            if not apart(one, other):
                return ""
    return "indices point to other values"


def _picked(
    sample: Any, expected: list[torch.Tensor], found: list[torch.Tensor], apart: Callable[[Any, Any], str]
) -> str:
    """Of operators that give one element along a dimension, and where it is."""
    values = sample.input.detach()
    what = apart(expected[0], found[0])
    if what or len(found) < 2 or values.dim() == 0 or expected[1].shape != found[1].shape:
        return what or "indices of another shape"
    for dim in range(values.dim()):
        index, value = found[1], found[0]
        if index.dim() < values.dim():
            index, value = index.unsqueeze(dim), value.unsqueeze(dim)
        if _fits(values, index, dim) and not apart(value, torch.take_along_dim(values, index, dim)):
            return ""
    return "indices point to other values"


def _fits(values: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    if index.dim() != values.dim():
        return False
    dim %= values.dim()
    return all(a == b for number, (a, b) in enumerate(zip(values.shape, index.shape, strict=True)) if number != dim)


_ORDERED = frozenset(("kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"))


def has_ties(name: str, sample: Any) -> bool:
    """Whether the order of equal elements matters for an operator's gradient."""
    return name in _ORDERED and len(sample.input.detach().unique()) < sample.input.numel()


JUDGES: dict[str, Judge] = {
    "linalg.eigh": _eigh,
    "linalg.qr": _qr,
    "linalg.svd": _linalg_svd,
    "pca_lowrank": _svd,
    "qr": _qr,
    "svd": _svd,
    "svd_lowrank": _svd,
    "argsort": _indices,
    "kthvalue": _picked,
    "median": _picked,
    "mode": _picked,
    "msort": _indices,
    "nanmedian": _picked,
    "sort": _indices,
    "topk": _indices,
}
