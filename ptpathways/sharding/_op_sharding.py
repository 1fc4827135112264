"""XLA's description of a sharding: xla.OpSharding of xla_data.proto, in its first version (an explicit device list)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_REPLICATED, _OTHER = 0, 3
_FIELD_TYPE, _FIELD_TILE_DIMENSIONS, _FIELD_TILE_DEVICES, _FIELD_REPLICATE_LAST = 1, 3, 4, 6


@dataclass(frozen=True, slots=True)
class OpSharding:
    """What to write onto an instruction of an HLO module. No tile dimensions: replicated.

    Devices are positions of the slice, which are the partition numbers of the compiled function.
    """

    tile_dimensions: tuple[int, ...] = ()
    """Parts per dimension; with ``replicate_on_last_tile_dim`` one more: the copies of each part."""
    tile_devices: tuple[int, ...] = ()
    """The device of each tile, row-major over ``tile_dimensions``."""
    replicate_on_last_tile_dim: bool = False

    @property
    def is_replicated(self) -> bool:
        return not self.tile_dimensions

    def __str__(self) -> str:
        """As in the text form of HLO."""
        if self.is_replicated:
            return "{replicated}"
        tiles = ",".join(map(str, self.tile_dimensions))
        last = " last_tile_dim_replicate" if self.replicate_on_last_tile_dim else ""
        return f"{{devices=[{tiles}]{','.join(map(str, self.tile_devices))}{last}}}"

    def to_proto(self) -> bytes:
        """The serialized message."""
        if self.is_replicated:
            return _varint(_FIELD_TYPE << 3) + _varint(_REPLICATED)
        made = _varint(_FIELD_TYPE << 3) + _varint(_OTHER)
        made += _packed(_FIELD_TILE_DIMENSIONS, self.tile_dimensions) + _packed(_FIELD_TILE_DEVICES, self.tile_devices)
        if self.replicate_on_last_tile_dim:
            made += _varint(_FIELD_REPLICATE_LAST << 3) + _varint(1)
        return made


def op_sharding(parts: tuple[int, ...], tiles: Sequence[tuple[int, ...]]) -> OpSharding:
    """The description of a tensor split into ``parts`` per dimension, of which position p holds ``tiles[p]``."""
    if all(count == 1 for count in parts):
        return OpSharding()
    order = sorted(range(len(tiles)), key=lambda position: (tiles[position], position))
    copies = len(tiles) // len(set(tiles))
    dimensions = (*parts, copies) if copies > 1 else parts
    return OpSharding(dimensions, tuple(order), copies > 1)


def _packed(field: int, values: Sequence[int]) -> bytes:
    content = b"".join(map(_varint, values))
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
