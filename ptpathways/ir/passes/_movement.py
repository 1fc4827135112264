"""How a transfer's bytes go: what each host sends, copies and receives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ptpathways.ir._types import Slice, ValueType
from ptpathways.sharding import Box, Move, Sharding, reshard


@dataclass(slots=True)
class Part:
    """What one host has of a slice. Slots share the lists."""

    host: int
    shards: list[int] = field(default_factory=list)
    """Positions in the slice, in its order."""
    devices: list[int] = field(default_factory=list)


def parts_of(part: Slice) -> dict[int, Part]:
    """A placed slice host by host."""
    found: dict[int, Part] = {}
    for position, (device, host) in enumerate(zip(part.devices, part.hosts, strict=True)):
        here = found.setdefault(host, Part(host))
        here.shards.append(position)
        here.devices.append(device)
    return found


class Send(NamedTuple):
    """Shards are numbered in their host's part, channels from the transfer's first; no start: the whole shard."""

    shard: int
    channel: int
    host: int  # that receives
    start: list[int]
    size: list[int]


class Piece(NamedTuple):
    channel: int
    host: int  # that sends
    start: list[int]
    size: list[int]


class Receive(NamedTuple):
    shard: int
    pieces: list[Piece]


class Copy(NamedTuple):
    source: int  # position in the host's part
    target: int


@dataclass(slots=True)
class Movement:
    """A transfer's steps by host."""

    channels: int = 0
    sends: dict[int, list[Send]] = field(default_factory=dict)
    copies: dict[int, list[Copy]] = field(default_factory=dict)
    """Whole source shards that become target shards of the same host."""
    receives: dict[int, list[Receive]] = field(default_factory=dict)
    spreads: dict[int, list[Copy]] = field(default_factory=dict)
    """Received target shards that become other target shards of the same host."""


_Lying: TypeAlias = tuple[Sharding, tuple[int, ...]]


class Movements:
    """Movements planned so far; the same one is planned once."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], _Lying, _Lying], Movement] = {}

    def plan(self, source: ValueType, source_slice: Slice, target: ValueType, target_slice: Slice) -> Movement:
        """The movement of a tensor between two ways to lie; element types do not matter."""
        key = (source.shape, (source.sharding, source_slice.devices), (target.sharding, target_slice.devices))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Planning(source, source_slice, target, target_slice).run()
        return found


class _Planning:
    """One movement.

    Target shards of one host that hold the same bytes cross the network once: the first receives, the others copy.
    """

    def __init__(self, source: ValueType, source_slice: Slice, target: ValueType, target_slice: Slice) -> None:
        self._source, self._source_slice = source, source_slice
        self._target, self._target_slice = target, target_slice
        self._source_shard, self._target_shard = _shard_numbers(source_slice), _shard_numbers(target_slice)
        self._host_of = dict(zip(source_slice.devices, source_slice.hosts, strict=True))
        self._host_of.update(zip(target_slice.devices, target_slice.hosts, strict=True))
        self._movement = Movement()

    def run(self) -> Movement:
        hosts = self._target_slice.hosts
        if math.prod(self._source.shape) == 0:  # nothing to move, but the shards must be there
            for position, host in enumerate(hosts):
                self._receive(position, host, [])
            return self._movement
        first: dict[tuple[int, tuple[int, ...]], int] = {}
        alike: dict[int, list[int]] = {}
        for position, tile in enumerate(self._target.sharding.tiles(len(self._target.shape))):
            leader = first.setdefault((hosts[position], tile), position)
            alike.setdefault(leader, []).append(position)
        moves = self._moves_to(alike)
        near: list[int] = []  # nothing comes from another host: each takes from the nearest itself
        for leader, positions in alike.items():
            if all(self._source_slice.hosts[move.source_position] == hosts[leader] for move in moves[leader]):
                near += positions[1:]
                continue
            for position in positions[1:]:
                copy = Copy(self._target_shard[leader], self._target_shard[position])
                self._movement.spreads.setdefault(hosts[leader], []).append(copy)
        moves.update(self._moves_to(near))
        for position in sorted(moves):
            self._add(position, moves[position])
        return self._movement

    def _moves_to(self, positions: Iterable[int]) -> dict[int, list[Move]]:
        found: dict[int, list[Move]] = {position: [] for position in positions}
        for move in reshard(
            self._source.shape,
            self._source.sharding,
            self._source_slice.devices,
            self._target.sharding,
            self._target_slice.devices,
            self._host_of.__getitem__,
            positions=found,
        ):
            found[move.target_position].append(move)
        return found

    def _add(self, position: int, moves: list[Move]) -> None:
        host = self._target_slice.hosts[position]
        source_shape, target_shape = self._source.shard_shape, self._target.shard_shape
        if len(moves) == 1:
            move = moves[0]
            whole = move.source_box.covers(source_shape) and move.target_box.covers(target_shape)
            if whole and self._source_slice.hosts[move.source_position] == host:
                copy = Copy(self._source_shard[move.source_position], self._target_shard[position])
                self._movement.copies.setdefault(host, []).append(copy)
                return
        pieces = []
        for move in moves:
            channel = self._movement.channels
            self._movement.channels += 1
            sender = self._source_slice.hosts[move.source_position]
            send = Send(self._source_shard[move.source_position], channel, host, *_box(move.source_box, source_shape))
            self._movement.sends.setdefault(sender, []).append(send)
            pieces.append(Piece(channel, sender, *_box(move.target_box, target_shape)))
        self._receive(position, host, pieces)

    def _receive(self, position: int, host: int, pieces: list[Piece]) -> None:
        self._movement.receives.setdefault(host, []).append(Receive(self._target_shard[position], pieces))


def _shard_numbers(part: Slice) -> list[int]:
    """Per position of a slice, its number in its host's part."""
    seen: dict[int, int] = {}
    found = []
    for host in part.hosts:
        found.append(seen.get(host, 0))
        seen[host] = found[-1] + 1
    return found


def _box(box: Box, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    return ([], []) if box.covers(shape) else (list(box.start), list(box.size))
