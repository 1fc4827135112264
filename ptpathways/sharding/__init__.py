"""How tensors lie on the devices of a slice, and what has to move when that changes. Pure values, no torch.

- ``Mesh(shape, axis_names)``: the shape of a slice. Its devices are *positions* 0, 1, ... in row-major order; which
  physical device a position is, somebody else knows.
- ``Sharding(mesh, placements)``: one ``Shard(dim)`` or ``Replicate()`` per mesh axis, as in
  ``torch.distributed.tensor`` (whose own objects are accepted, too); ``Sharding.from_spec(mesh, ("data", None))`` says
  the same by axis names per dimension; ``Sharding.replicated(mesh)``.
  ``shard_shape(shape)``, ``box(shape, position)``, ``op_sharding(rank)`` (XLA's description, ``to_proto()`` for HLO).
- ``reshard(shape, source, source_devices, target, target_devices, host_of)``: the moves, shard to shard, that turn one
  layout into another.
"""

from __future__ import annotations

from ptpathways.sharding._mesh import DEVICES_MAX, Box, Mesh
from ptpathways.sharding._op_sharding import OpSharding, op_sharding
from ptpathways.sharding._placements import Placement, Replicate, Shard, as_placement
from ptpathways.sharding._reshard import Move, reshard
from ptpathways.sharding._sharding import Sharding, Spec
from ptpathways.sharding._text import parse_mesh, parse_sharding
from ptpathways.sharding._tiles import Tiling, sharding_of, tiling_of

__all__ = [
    "DEVICES_MAX",
    "Box",
    "Mesh",
    "Move",
    "OpSharding",
    "Placement",
    "Replicate",
    "Shard",
    "Sharding",
    "Spec",
    "Tiling",
    "as_placement",
    "op_sharding",
    "parse_mesh",
    "parse_sharding",
    "reshard",
    "sharding_of",
    "tiling_of",
]
