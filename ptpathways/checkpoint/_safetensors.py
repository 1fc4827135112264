"""The safetensors format: a u64 header length, a JSON header that says where each tensor's bytes are, and the bytes.

Pure: names, element types, shapes and offsets; no torch, no tensor.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from ptpathways.core import CheckpointError

ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
"""Bytes of one element, by the format's name of the type."""

_HEADER_MAX = 100_000_000
_TEXT_MAX = 1 << 30
"""Of a manifest or an index."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A dense row-major tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Of its first byte in the file."""

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def lay_out(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[bytes, dict[str, Entry], int]:
    """A file's header for tensors given as (name, type, shape): its bytes, where each tensor goes, the file's size."""
    relative: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    end = 0
    for name, dtype, shape in tensors:
        size = math.prod(shape) * ITEM_BYTES[dtype]
        relative[name] = (dtype, shape, end, end + size)
        end += size
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for name, (dtype, shape, first, last) in relative.items():
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [first, last]}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    header = struct.pack("<Q", len(text)) + text
    start = len(header)
    return (
        header,
        {name: Entry(dtype, shape, start + first) for name, (dtype, shape, first, _) in relative.items()},
        start + end,
    )


def open_file(path: Path) -> BufferedReader:
    """A file to read, of which somebody else may have made anything: a pipe, say, would keep its reader waiting.

    Raises:
        CheckpointError: it is no regular file.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise CheckpointError(f"expected a regular file, got '{path}', which is a folder, a pipe or a device")
    return file


def read_file(path: Path) -> bytes:
    """All of a manifest or an index.

    Raises:
        CheckpointError: it is no regular file, or too large.
        OSError: it cannot be read.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _TEXT_MAX:
            raise CheckpointError(f"expected at most {_TEXT_MAX} bytes in '{path}', got {size}")
        return file.read(_TEXT_MAX)


def read_header(path: Path) -> dict[str, Entry]:
    """What is in a safetensors file, by name.

    Raises:
        CheckpointError: it is no such file, or was cut off.
        OSError: it cannot be read.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
        if not 0 < length <= min(_HEADER_MAX, size - 8):
            raise CheckpointError(
                f"expected a safetensors file, got '{path}' of {size} bytes whose header should have {length} bytes; "
                "it was cut off, or is another kind of file"
            )
        text = file.read(length)
    try:
        table = json.loads(text)
        if not isinstance(table, dict):
            raise ValueError(f"expected tensors by name, got a JSON {type(table).__name__}")
        table.pop("__metadata__", None)
        found = {name: _entry(name, item, 8 + length) for name, item in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the header of '{path}' is damaged: {error}") from None
    end = max((entry.offset + entry.bytes for entry in found.values()), default=0)
    if end > size:
        raise CheckpointError(f"expected '{path}' to have {end} bytes as its header says, got {size}; it was cut off")
    return found


def _entry(name: str, item: Mapping[str, object], start: int) -> Entry:
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if dtype not in ITEM_BYTES:
        raise ValueError(f"tensor {name!r} is of type {dtype!r}; known are {', '.join(ITEM_BYTES)}")
    if not (isinstance(dtype, str) and isinstance(shape, list) and isinstance(offsets, list)):
        raise ValueError(f"tensor {name!r} has shape {shape!r} and lies at {offsets!r}")
    entry = Entry(dtype, tuple(int(size) for size in shape), start + int(offsets[0]))
    if entry.bytes != int(offsets[1]) - int(offsets[0]) or min(entry.shape, default=0) < 0 or offsets[0] < 0:
        raise ValueError(f"tensor {name!r} of {dtype} {shape} cannot lie at bytes {offsets}")
    return entry


def index_files(path: Path) -> dict[str, str]:
    """The file of each tensor, as a Hugging Face ``*.index.json`` says.

    Raises:
        CheckpointError: it is no such file.
    """
    try:
        weights = json.loads(read_file(path))["weight_map"]
        return {str(name): str(file) for name, file in weights.items()}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"expected an index of safetensors files with a weight_map, got '{path}': {error!r}"
        ) from None
