"""Whether two results of an operator are the same, as far as they have to be."""

from __future__ import annotations

from typing import Any

import torch

MARGIN = 2.0
"""A result may be so many times as far from the answer in a wider type as the CPU's own is."""


def difference(expected: Any, found: Any, tolerance: tuple[float, float], wide: Any = None) -> str:
    """What differs between two leaves of results, both on the CPU; empty if nothing does.

    Args:
        expected: what the CPU gave; a tensor, a number, None...
        tolerance: relative and absolute.
        wide: the CPU's answer in a wider type, if there is one.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return _of_objects(expected, found, tolerance)
    if expected.shape != found.shape:
        return f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if expected.dtype != found.dtype:
        return f"type {found.dtype} instead of {expected.dtype}"
    if expected.layout != found.layout:
        return f"layout {found.layout} instead of {expected.layout}"
    if expected.is_sparse or expected.layout is not torch.strided:
        expected, found = expected.to_dense(), found.to_dense()
    if expected.numel() == 0 or _near(expected, found, tolerance):
        return ""
    if isinstance(wide, torch.Tensor) and wide.shape == expected.shape and _as_near(expected, found, wide, tolerance):
        return ""
    return _worst(expected, found)


def shape_difference(expected: Any, found: Any) -> str:
    """As ``difference``, of shapes and types only."""
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        return difference(torch.zeros_like(expected), torch.zeros_like(found), (0.0, 0.0))
    return "" if type(expected) is type(found) else f"{type(found).__name__} instead of {type(expected).__name__}"


def _of_objects(expected: Any, found: Any, tolerance: tuple[float, float]) -> str:
    if isinstance(expected, torch.Tensor) or isinstance(found, torch.Tensor):
        return f"{_kind(found)} instead of {_kind(expected)}"
    if isinstance(expected, int | float | complex) and isinstance(found, int | float | complex):
        if _near(torch.tensor(expected), torch.tensor(found), tolerance):
            return ""
    elif isinstance(expected, torch.device) or expected == found:
        return ""
    return f"{found!r:.60} instead of {expected!r:.60}"


def _kind(value: Any) -> str:
    return "nothing" if value is None else "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:60]


def _near(expected: torch.Tensor, found: torch.Tensor, tolerance: tuple[float, float]) -> bool:
    relative, absolute = tolerance
    if not (expected.is_floating_point() or expected.is_complex()):
        return bool(torch.equal(expected, found.to(expected.dtype)))
    return torch.allclose(found.to(expected.dtype), expected, rtol=relative, atol=absolute, equal_nan=True)


def _as_near(expected: torch.Tensor, found: torch.Tensor, wide: torch.Tensor, tolerance: tuple[float, float]) -> bool:
    """Whether ``found`` is as near to ``wide`` as ``expected``, or nearer: finite where the CPU overflowed, say. Where
    both are the same infinity, or no numbers, nothing is compared."""
    if not expected.is_floating_point() and not expected.is_complex():
        return False
    known = torch.isfinite(wide.to(expected.dtype))
    expected, found = expected.to(wide.dtype), found.to(wide.dtype)
    both = (torch.isnan(expected) & torch.isnan(found)) | (torch.isinf(expected) & (expected == found))
    if not torch.equal(torch.isfinite(found)[~both], known[~both]) or not bool(known[~both].any()):
        return False
    known &= ~both
    own = (expected - wide)[known & torch.isfinite(expected)].abs()
    margin = MARGIN * own.max() if own.numel() else 0.0
    relative, absolute = tolerance
    return bool(((found - wide)[known].abs() <= margin + absolute + relative * wide[known].abs()).all())


def _worst(expected: torch.Tensor, found: torch.Tensor) -> str:
    if expected.dtype == torch.bool or not (expected.is_floating_point() or expected.is_complex()):
        index = int((expected != found).flatten().to(torch.uint8).argmax())
        count = int((expected != found).sum())
    else:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        apart = (expected.to(wide) - found.to(wide)).abs()
        apart[torch.isnan(apart)] = torch.inf
        same = (expected == found) | (torch.isnan(expected) & torch.isnan(found))
        apart[same] = 0
        index, count = int(apart.flatten().argmax()), int((~same).sum())
    wanted, got = expected.flatten()[index].item(), found.flatten()[index].item()
    return f"{got:.6g} instead of {wanted:.6g} at {index} of {expected.numel()} ({count} differ)"
