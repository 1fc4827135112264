"""Whole arrays into shards, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ptpathways.sharding import Sharding

_CARRIERS = {"pred": "bool", "bf16": "uint16", "f16": "float16", "f32": "float32", "f64": "float64"}
_CARRIERS |= {"c64": "complex64", "c128": "complex128"}
_CARRIERS |= {
    f"{kind}{bits}": f"{name}{bits}" for kind, name in (("u", "uint"), ("s", "int")) for bits in (8, 16, 32, 64)
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type that carries the bits of XLA's element type ``name``: bf16 in uint16, fp8 in uint8."""
    return np.dtype(_CARRIERS.get(name, "uint8"))


def split(array: npt.NDArray[Any], sharding: Sharding) -> list[npt.NDArray[Any]]:
    """The shards of a whole array by position of the slice; contiguous. Raises InvalidSharding."""
    if sharding.is_replicated:
        return [array] * sharding.mesh.size
    boxes = (sharding.box(array.shape, position) for position in range(sharding.mesh.size))
    return [np.ascontiguousarray(array[box.slices()]) for box in boxes]


def assemble(
    shards: Sequence[npt.NDArray[Any] | None], shape: Sequence[int], sharding: Sharding, dtype: str
) -> npt.NDArray[Any]:
    """The whole array out of shards by position; None where another position holds the same. May share memory."""
    first = shards[0]
    if first is not None and first.shape == tuple(shape):
        return first
    whole = np.empty(tuple(shape), numpy_dtype(dtype))
    for position, shard in enumerate(shards):
        if shard is not None:
            whole[sharding.box(shape, position).slices()] = shard
    return whole


def distinct(sharding: Sharding, rank: int) -> list[bool]:
    """By position, whether it is the first that holds what it holds."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for tile in sharding.tiles(rank):
        found.append(tile not in seen)
        seen.add(tile)
    return found
