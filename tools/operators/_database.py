"""The operators of PyTorch's database, their samples, and how near a result has to be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

# PyTorch's test utilities read the command line when they are imported, and would answer --help in our place.
with mock.patch.object(sys, "argv", sys.argv[:1]):
    database: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}

# Relative and absolute. torch.testing's own are for one operation; a gradient, or a reduction in another order than
# the CPU's, is several.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-6, 1e-7),
    torch.float32: (1e-4, 1e-4),
    torch.bfloat16: (2e-2, 1e-2),
    torch.float16: (4e-3, 2e-3),
    torch.complex64: (1e-4, 1e-4),
    torch.complex128: (1e-6, 1e-7),
}

UNINITIALISED = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_")
)
"""These give memory that nobody has written: only shapes and types are compared."""

_NO_GRADIENT = frozenset((("renorm", torch.complex64),))
"""torch's own on the CPU is nan, whatever the numbers."""


@dataclass(frozen=True, order=True)
class Case:
    """One operator with samples of one type."""

    operator: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype}"


def _with_the_process_seed(function: Any, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


# The database seeds randomised operators itself, always alike, which would hide that they are.
setattr(database, "wrapper_set_seed", _with_the_process_seed)  # noqa: B010


def name_of(operator: Any) -> str:
    """``linalg.norm``, or with a variant ``norm.inf``."""
    return str(operator.name) + (f".{operator.variant_test_name}" if operator.variant_test_name else "")


def operators() -> dict[str, Any]:
    """Every operator of the database, by name."""
    found: dict[str, Any] = {}
    for operator in database.op_db:
        name = name_of(operator)
        while name in found:  # a few entries have the same name and other samples
            name += "'"
        found[name] = operator
    return found


def cases() -> list[Case]:
    """Every operator with every type that PyTorch's CPU kernels have of it."""
    return [
        Case(name, dtype)
        for dtype, torch_dtype in DTYPES.items()
        for name, operator in operators().items()
        if torch_dtype in operator.dtypes
    ]


def differentiable(operator: Any, dtype: torch.dtype) -> bool:
    if (operator.name, dtype) in _NO_GRADIENT:
        return False
    return bool(operator.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)


def samples(operator: Any, dtype: torch.dtype) -> Iterator[Any]:
    """The samples of the database on the CPU, the same ones each time."""
    torch.manual_seed(0)
    yield from operator.sample_inputs("cpu", dtype, requires_grad=differentiable(operator, dtype))


def tolerance(operator: Any, dtype: torch.dtype) -> tuple[float, float]:
    """The relative and the absolute one: ours, or the database's own for this operator where that is more."""
    relative, absolute = TOLERANCES.get(dtype, (0.0, 0.0))
    for decorator in operator.decorators:
        for part in getattr(decorator, "decorators", ()):
            stated = getattr(part, "d", {}).get(dtype) if type(part).__name__ == "toleranceOverride" else None
            if stated is not None and decorator.device_type in (None, "cpu"):
                relative, absolute = max(relative, stated.rtol), max(absolute, stated.atol)
    return relative, absolute


def moved(tree: Any, device: torch.device | str) -> Any:
    """Copies of the tensors, on ``device``, one for each; arguments that name the CPU name it, too."""
    copies: dict[int, torch.Tensor] = {}

    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if id(item) not in copies:
                copy = item.detach().to(device, copy=True)
                copies[id(item)] = copy.requires_grad_(item.requires_grad)
            return copies[id(item)]
        if isinstance(item, torch.device) or item == "cpu":
            return torch.device(device)
        return item

    return tree_map(move, tree)


def widened(tree: Any, dtype: torch.dtype) -> Any:
    """The same with float64 or complex128 in place of ``dtype``."""
    wide = torch.complex128 if dtype.is_complex else torch.float64

    def widen(item: Any) -> Any:
        if isinstance(item, torch.Tensor) and item.dtype == dtype:
            return item.detach().to(wide).requires_grad_(item.requires_grad)
        return wide if item is dtype else item

    return tree_map(widen, tree)
