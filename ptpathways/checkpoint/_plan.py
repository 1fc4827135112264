"""Who writes what where, and who reads what from where: boxes of tensors in files and on devices. Pure, no torch.

A tensor lies on devices in *parts*: boxes, several of which may be the same (copies). In files it lies in *pieces*:
boxes, each once. Whatever the two divisions are, a part is made of its intersections with the pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ptpathways.checkpoint._safetensors import ITEM_BYTES, lay_out
from ptpathways.sharding import Box

SPLIT_BYTES = 8 << 20
"""Of a tensor that several hosts have, each writes a part if it is larger."""
FILE_PIECES = 8192
"""Pieces in a message and so, where every host makes its own files, in a file."""

FileBox = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""For the workers: file, offset of the tensor in it, its dimensions, where the box starts in it, where in the shard,
and its size."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one device has of a tensor."""

    host: int
    box: Box
    shard: int
    """Whatever number its maker knows it by."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a file has of a tensor: a dense tensor of the box's size."""

    file: int
    offset: int
    box: Box


@dataclass(frozen=True, slots=True)
class Writing:
    """A piece that a host is to write."""

    tensor: str
    shard: int
    box: Box
    """Of the tensor."""
    start: tuple[int, ...]
    """Of the piece in the shard."""


def assign(tensors: Mapping[str, tuple[str, Sequence[Part]]]) -> dict[int, list[Writing]]:
    """The pieces that each host writes. ``tensors``: type and parts by name.

    Every element is written once. What several hosts have is spread over them: large parts are divided between them,
    small ones go to the one that has least to write.
    """
    work: dict[int, list[Writing]] = {part.host: [] for _, parts in tensors.values() for part in parts}
    load = dict.fromkeys(work, 0)
    shared: list[tuple[int, str, list[Part]]] = []
    for name, (dtype, parts) in tensors.items():
        owners: dict[Box, dict[int, Part]] = {}
        for part in parts:
            owners.setdefault(part.box, {}).setdefault(part.host, part)
        for box, by_host in owners.items():
            if box.elements == 0 and len(owners) > 1:
                continue  # nothing but padding
            candidates = [by_host[host] for host in sorted(by_host)]
            size = box.elements * ITEM_BYTES[dtype]
            divide = len(candidates) > 1 and size > SPLIT_BYTES and box.size[0] >= len(candidates)
            if len(candidates) > 1 and not divide:
                shared.append((size, name, candidates))
                continue
            for index, part in enumerate(candidates):
                first = box.size[0] * index // len(candidates) if box.size else 0
                last = box.size[0] * (index + 1) // len(candidates) if box.size else 0
                piece = box
                if divide:
                    piece = Box((box.start[0] + first, *box.start[1:]), (last - first, *box.size[1:]))
                _give(work, load, part, name, piece, ITEM_BYTES[dtype])
    for _, name, candidates in sorted(shared, key=lambda item: -item[0]):
        part = min(candidates, key=lambda one: (load[one.host], one.host))
        _give(work, load, part, name, part.box, ITEM_BYTES[tensors[name][0]])
    return {host: writings for host, writings in work.items() if writings}


def _give(
    work: dict[int, list[Writing]], load: dict[int, int], part: Part, name: str, piece: Box, item_bytes: int
) -> None:
    start = tuple(a - b for a, b in zip(piece.start, part.box.start, strict=True))
    work[part.host].append(Writing(name, part.shard, piece, start))
    load[part.host] += piece.elements * item_bytes


@dataclass(slots=True)
class FilePlan:
    """A file that one host makes."""

    header: bytes
    bytes: int
    shards: dict[int, list[FileBox]] = field(default_factory=dict)
    """What of each shard goes where."""
    pieces: list[tuple[str, int, Box]] = field(default_factory=list)
    """For the manifest: tensor, offset in the file, box of the tensor."""


def own_files(writings: Sequence[Writing], tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[FilePlan]:
    """The files that a host makes of its pieces. ``tensors``: type and shape by name."""
    plans = []
    for first in range(0, len(writings), FILE_PIECES):
        group = writings[first : first + FILE_PIECES]
        names = [piece_name(writing.tensor, writing.box, tensors[writing.tensor][1]) for writing in group]
        header, entries, size = lay_out(
            (name, tensors[writing.tensor][0], writing.box.size) for name, writing in zip(names, group, strict=True)
        )
        plan = FilePlan(header, size)
        for name, writing in zip(names, group, strict=True):
            offset, zeros = entries[name].offset, (0,) * len(writing.box.size)
            box = (0, offset, writing.box.size, zeros, writing.start, writing.box.size)
            plan.shards.setdefault(writing.shard, []).append(box)
            plan.pieces.append((writing.tensor, offset, writing.box))
        plans.append(plan)
    return plans


def piece_name(tensor: str, box: Box, shape: tuple[int, ...]) -> str:
    """What a file calls a piece: the tensor's name, and, where it is not all of it, which elements."""
    if box.covers(shape):
        return tensor
    return f"{tensor}[{','.join(f'{s}:{s + n}' for s, n in zip(box.start, box.size, strict=True))}]"


def intersect(one: Box, other: Box) -> Box | None:
    """The elements in both; None when there are none."""
    start = tuple(max(a, b) for a, b in zip(one.start, other.start, strict=True))
    end = (min(a + n, b + m) for a, n, b, m in zip(one.start, one.size, other.start, other.size, strict=True))
    size = tuple(last - first for last, first in zip(end, start, strict=True))
    return None if any(n <= 0 for n in size) else Box(start, size)


def check_pieces(shape: tuple[int, ...], boxes: Sequence[Box]) -> None:
    """Checks that every element of a tensor is in one piece, and in one only.

    Raises:
        ValueError: it is not so; says which pieces.
    """
    for box in boxes:
        if not len(box.start) == len(box.size) == len(shape):
            raise ValueError(f"expected a piece of {len(shape)} dimensions, got {box}")
        if any(not 0 <= a <= a + n <= whole for a, n, whole in zip(box.start, box.size, shape, strict=True)):
            raise ValueError(f"expected a piece inside of {list(shape)}, got {box}")
    by_start = sorted(boxes, key=lambda box: box.start)
    for number, box in enumerate(by_start):
        for other in by_start[number + 1 :]:
            if shape and other.start[0] >= box.start[0] + box.size[0]:
                break
            if intersect(box, other) is not None:
                raise ValueError(f"expected pieces that have no element in common, got {box} and {other}")
    found = sum(box.elements for box in boxes)
    if found != math.prod(shape):
        raise ValueError(f"expected pieces with all {math.prod(shape)} elements of {list(shape)}, got {found}")


def gather(part: Box, pieces: Iterable[Piece]) -> list[FileBox]:
    """Where the elements of a part are in files. Those in no piece are missing."""
    boxes: list[FileBox] = []
    for piece in pieces:
        common = intersect(part, piece.box)
        if common is None:
            continue
        at = tuple(a - b for a, b in zip(common.start, piece.box.start, strict=True))
        start = tuple(a - b for a, b in zip(common.start, part.start, strict=True))
        boxes.append((piece.file, piece.offset, piece.box.size, at, start, common.size))
    return boxes
