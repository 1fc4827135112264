"""Values of this process to slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptpathways import native, programs
from ptpathways.frontend.dataflow import _arguments
from ptpathways.frontend.dataflow._arguments import HostValue
from ptpathways.frontend.slices import _placements
from ptpathways.frontend.slices._future import Future, Layout, layout_of
from ptpathways.frontend.slices._slice import VirtualSlice, current_session
from ptpathways.frontend.xla import _dtypes

if TYPE_CHECKING:
    import torch


def upload(tensor: torch.Tensor, layout: Layout) -> native.Buffer:
    """A CPU tensor on a slice, each device getting its part; returns at once."""
    shards = programs.split(_dtypes.to_numpy(tensor), layout.sharding)
    with native.translated():
        return current_session().put_sharded(shards, layout.slice.devices, dtype=layout.spec.dtype)


def put(tree: Any, slice: VirtualSlice, placements: Any = None) -> Any:
    """Uploads each tensor, array, float and list of numbers in ``tree`` to a slice, and returns at once.

    Args:
        tree: a value, or nested tuples, lists and dictionaries of values. A float becomes a float32 scalar; a list of
            numbers becomes what ``torch.tensor`` makes of it. Others, such as ints, strings and futures, are kept.
        slice: where the values go.
        placements: how they lie there, as in ``function``: one layout for all, or nested like ``tree``. Default: a
            replica on each device.

    Returns:
        ``tree`` with futures in place of what was uploaded.

    Raises:
        InvalidSharding: a placement does not fit the slice, divide a shape, or match ``tree``.
        NotInitialized, WrongCluster, SliceUnavailable: the slice cannot be used.
        TypeError: ``slice`` is not a slice, or a value can neither be uploaded nor hashed.
    """
    if not isinstance(slice, VirtualSlice):
        raise TypeError(f"put() needs a slice, as cluster.slice() gives them, got {slice!r}; x.to() takes a device")
    slice.check(current_session())
    leaves, structure = _arguments.flatten(tree)
    chosen: list[Any] = [None] * len(leaves)
    if _placements.is_layout(placements):
        chosen = [placements] * len(leaves)
    else:
        numbered = _arguments.unflatten(range(len(leaves)), structure)
        spread = _placements.spread(placements, numbered, "placements of put()")
        numbers = _arguments.flatten(numbered, lists=False)[0]
        for number, layout in zip(numbers, spread, strict=True):
            chosen[number] = layout
    return _arguments.unflatten(
        [_one(leaf, slice, layout, number) for number, (leaf, layout) in enumerate(zip(leaves, chosen, strict=True))],
        structure,
    )


def _one(item: Any, slice: VirtualSlice, given: Any, number: int) -> Any:
    leaf = _arguments.leaf(item, lambda: f"leaf {number} given to put()")
    if not isinstance(leaf, HostValue):
        return item
    layout = layout_of(leaf.spec, _placements.sharding(given, slice.mesh, len(leaf.spec.shape)), slice)
    return Future(upload(leaf.tensor, layout), layout)
