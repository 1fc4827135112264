"""Element types: PyTorch's, XLA's names for them, and NumPy's, which has no bfloat16 (its bits)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ptpathways import core

if TYPE_CHECKING:
    import torch

# XLA's name: PyTorch's name, and the NumPy type that carries the bits.
_TABLE: dict[str, tuple[str, str]] = {
    "pred": ("bool", "bool"),
    "u8": ("uint8", "uint8"),
    "s8": ("int8", "int8"),
    "s16": ("int16", "int16"),
    "u16": ("uint16", "uint16"),
    "s32": ("int32", "int32"),
    "u32": ("uint32", "uint32"),
    "s64": ("int64", "int64"),
    "u64": ("uint64", "uint64"),
    "f16": ("float16", "float16"),
    "bf16": ("bfloat16", "uint16"),
    "f32": ("float32", "float32"),
    "f64": ("float64", "float64"),
    "c64": ("complex64", "complex64"),
    "c128": ("complex128", "complex128"),
}


@functools.cache
def _by_torch() -> dict[Any, str]:
    import torch

    return {getattr(torch, name): xla for xla, (name, _) in _TABLE.items()}


def name_of(dtype: torch.dtype) -> str:
    """XLA's name of an element type.

    Raises:
        TypeError: it cannot go to a device.
    """
    name = _by_torch().get(dtype)
    if name is None:
        raise TypeError(f"tensors on devices have one of {', '.join(map(str, _by_torch()))}, got {dtype}")
    return name


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's type of XLA's name. Raises PathwaysError for a name that PyTorch has not."""
    import torch

    if name not in _TABLE:
        raise core.PathwaysError(f"element type {name} has no form in PyTorch")
    found: torch.dtype = getattr(torch, _TABLE[name][0])
    return found


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The elements of a CPU tensor, sharing memory where it is contiguous; bfloat16 as uint16."""
    import torch

    plain = tensor.detach().contiguous()
    return (plain.view(torch.uint16) if plain.dtype is torch.bfloat16 else plain).numpy()


def from_numpy(array: npt.NDArray[Any], name: str) -> torch.Tensor:
    """A CPU tensor of XLA's type ``name`` out of its bits, sharing memory."""
    import torch

    made = torch.from_numpy(array if array.flags.writeable else array.copy())
    return made.view(torch.bfloat16) if name == "bf16" else made
