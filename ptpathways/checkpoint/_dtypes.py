"""Element types: torch's, the safetensors format's and the devices' names for them."""

from __future__ import annotations

import torch

from ptpathways.core import CheckpointError

_TABLE = [
    (torch.float64, "F64", "f64"),
    (torch.float32, "F32", "f32"),
    (torch.float16, "F16", "f16"),
    (torch.bfloat16, "BF16", "bf16"),
    (torch.int64, "I64", "s64"),
    (torch.int32, "I32", "s32"),
    (torch.int16, "I16", "s16"),
    (torch.int8, "I8", "s8"),
    (torch.uint64, "U64", "u64"),
    (torch.uint32, "U32", "u32"),
    (torch.uint16, "U16", "u16"),
    (torch.uint8, "U8", "u8"),
    (torch.bool, "BOOL", "pred"),
    (torch.complex64, "C64", "c64"),
    (torch.float8_e4m3fn, "F8_E4M3", "f8e4m3fn"),
    (torch.float8_e5m2, "F8_E5M2", "f8e5m2"),
]
_NAMES = {dtype: name for dtype, name, _ in _TABLE}
KNOWN = frozenset(_NAMES)
"""What files can hold."""
_DTYPES = {name: dtype for dtype, name, _ in _TABLE}
_ON_DEVICE = {name: device for _, name, device in _TABLE}


def name_of(dtype: torch.dtype, what: str) -> str:
    """The format's name. Raises CheckpointError for types that it lacks, saying that ``what`` is of one."""
    if dtype not in _NAMES:
        raise CheckpointError(f"{what} is of {dtype}, which safetensors files cannot hold; convert it to another type")
    return _NAMES[dtype]


def dtype_of(name: str) -> torch.dtype:
    """Raises CheckpointError for a name that the format does not have."""
    if name not in _DTYPES:
        raise CheckpointError(f"expected an element type of safetensors, one of {', '.join(_DTYPES)}, got {name!r}")
    return _DTYPES[name]


def on_device(name: str) -> str:
    """What the devices call a type of the format."""
    return _ON_DEVICE[name]
