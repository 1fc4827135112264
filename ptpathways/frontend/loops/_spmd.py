"""torch_xla's SPMD API (``torch_xla.distributed.spmd``, FSDPv2) on slices, while PyTorch/XLA is in its plain mode.

A torch device of ours stands for a whole slice, and PyTorch/XLA compiles for one device. What its SPMD functions call
in its extension is replaced here: a mark is ``_shard.lay``, a question about shardings is answered from the layouts of
values and from what was said of tensors, and an upload with a sharding is one with a layout. The Python code of
``Mesh``, ``mark_sharding``, ``SpmdFullyShardedDataParallel`` and the rest stays torch_xla's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.slices import _feeding, _mesh, _shard, _slice
from ptpathways.frontend.xla import _xla
from ptpathways.sharding import Tiling, op_sharding

if TYPE_CHECKING:
    import torch

_REPLICATED, _MAXIMAL, _TILED, _PARTIAL, _UNKNOWN = 0, 1, 3, 5, 6
"""torch_xla's ``ShardingType``."""
_SPMD_VARIABLE = "XLA_USE_SPMD"

_registered = False
_asked_for = False  # whether the program called use_spmd()
_upload: Callable[..., list[Any]] | None = None  # torch_xla's own


class OpSharding:
    """Stands for torch_xla's class of the same name; keeps what it was made of."""

    def __init__(
        self,
        tile_assignment: Any,
        group_assignment: Any,
        replication_groups: Sequence[Sequence[int]],
        sharding_type: int,
    ) -> None:
        self.tile_assignment = tile_assignment
        self.group_assignment = group_assignment
        self.replication_groups = replication_groups
        self.sharding_type = int(sharding_type)
        self._tiling: Tiling | None = None

    @classmethod
    def of(cls, tiling: Tiling) -> OpSharding:
        """The sharding of a tensor that lies so."""
        made = cls([], [], [], _type_of(tiling))
        made._tiling = tiling
        return made

    def tiling(self, rank: int, count: int) -> Tiling:
        """The layout over so many devices of a tensor of that rank. Raises InvalidSharding."""
        import numpy as np

        if self._tiling is None and self.sharding_type in (_REPLICATED, _MAXIMAL, _UNKNOWN):
            return _mesh.copies(rank, count)
        if self._tiling is not None:
            parts, tiles = self._tiling
        elif self.sharding_type == _TILED:
            grid = np.array(self.tile_assignment)
            parts, tiles = grid.shape, _placed((device, tile) for tile, device in enumerate(grid.flatten()))
        elif self.sharding_type == _PARTIAL:
            grid = np.array(self.group_assignment)
            groups = enumerate(grid.flatten())
            parts = grid.shape
            tiles = _placed((device, tile) for tile, group in groups for device in self.replication_groups[int(group)])
        else:
            raise core.InvalidSharding(_NO_MANUAL)
        if len(parts) != rank or len(tiles) != count:
            raise core.InvalidSharding(
                f"a sharding of {len(parts)} dimensions over {len(tiles)} devices is not one for a tensor of {rank} "
                f"dimensions on a slice of {count}; a torch_xla Mesh spans all devices, on other slices use pw.shard()"
            )
        return tuple(int(part) for part in parts), tiles

    def __str__(self) -> str:
        return _text(self._tiling) if self._tiling is not None else f"OpSharding of type {self.sharding_type}"


class XlaShardingSpec:
    """Stands for torch_xla's class of the same name: how a tensor is to lie when it is uploaded."""

    def __init__(
        self,
        tensor: torch.Tensor,
        tile_assignment: Any,
        group_assignment: Any,
        replication_groups: Any,
        sharding_type: int,
        minibatch: bool = False,
    ) -> None:
        self.shape = tuple(tensor.shape)
        self.sharding = OpSharding(tile_assignment, group_assignment, replication_groups, sharding_type)
        self.minibatch = minibatch


def register() -> None:
    """Replaces what torch_xla's SPMD functions look up when they are called. Idempotent."""
    global _registered, _asked_for, _upload
    if _registered:
        return
    from torch_xla import runtime

    binding = _xla.binding()
    _upload = binding._xla_tensors_from_aten
    for module, names in ((binding, BINDINGS), (runtime, RUNTIME)):
        for name, replacement in names.items():
            setattr(module, name, replacement)
    # Read when the first tensor is made: PyTorch/XLA itself is to stay in its plain mode.
    _asked_for = os.environ.pop(_SPMD_VARIABLE, "") not in ("", "0", "false")
    _registered = True


def use_spmd(auto: bool | None = False) -> None:
    """As ``torch_xla.runtime.use_spmd``, but that ``auto`` has no effect: what nothing is said of XLA decides."""
    global _asked_for
    _asked_for = True


def replicate_nothing(devices: Sequence[str]) -> None:
    """In place of ``_xla_set_replication_devices``: one program drives all devices, so its world is one process.

    ``xm.set_replication`` of every device of ``xm.get_xla_supported_devices()``, as Accelerate calls it, would make all
    slices that this process could bind replicas of each other, which wait for computations that nobody submits.
    """


def is_spmd() -> bool:
    """Whether the program called ``use_spmd``."""
    return _asked_for


def device_count() -> int:
    """Devices of ``pw.device()``, over which torch_xla's meshes are made."""
    return len(_slice.whole().devices)


def device_attributes() -> list[dict[str, object]]:
    """As many as there are devices."""
    return list(_xla.binding()._xla_get_all_device_attributes())[: device_count()]


def mark(tensor: torch.Tensor, sharding: OpSharding) -> None:
    """Lays a tensor out in place. Raises InvalidSharding."""
    if tensor.device.type != "xla":
        raise core.InvalidSharding(f"mark_sharding() takes tensors on pw.device(), got one on {tensor.device}")
    _shard.lay(tensor, sharding.tiling(tensor.dim(), _mesh.size_of(tensor.device)))


def clear(tensor: torch.Tensor) -> None:
    """Back to a copy on each device, of which nothing is said."""
    if tensor.device.type == "xla" and layout_of(tensor) is not None:
        _shard.lay(tensor, _mesh.copies(tensor.dim(), _mesh.size_of(tensor.device)))
        _shard.remember(tensor, None)


def layout_of(tensor: torch.Tensor) -> Tiling | None:
    """How a tensor lies, or was said to lie; None when it is copied, and nothing was said."""
    if tensor.device.type != "xla":
        return None
    lies, said = _mesh.layout_of_tensor(tensor), _shard.said_of(tensor)
    return lies if lies is not None and (said is not None or not _mesh.is_copied(lies)) else said


def spec_of(tensor: torch.Tensor) -> str:
    """As XLA writes it, ``{devices=[2,1]0,1}``; empty when nothing was said."""
    tiling = layout_of(tensor)
    return "" if tiling is None else _text(tiling)


def specs_of(tensors: Sequence[torch.Tensor]) -> list[str]:
    """``spec_of`` each."""
    return [spec_of(tensor) for tensor in tensors]


def type_of(tensor: torch.Tensor) -> int | None:
    """torch_xla's ``ShardingType``; None when nothing was said."""
    tiling = layout_of(tensor)
    return None if tiling is None else _type_of(tiling)


def op_sharding_of(tensor: torch.Tensor) -> OpSharding | None:
    """None when nothing was said."""
    tiling = layout_of(tensor)
    return None if tiling is None else OpSharding.of(tiling)


def upload(tensors: Sequence[torch.Tensor], devices: Sequence[str], shardings: Any = None) -> list[torch.Tensor]:
    """Uploads as torch_xla does; with ``shardings``, each tensor lies as its says, if its parts divide it."""
    import torch

    assert _upload is not None
    if shardings is None:
        return _upload(tensors, devices, None)
    made: list[torch.Tensor] = []
    for tensor, device, spec in zip(tensors, devices, shardings, strict=True):
        tiling = None
        if spec is not None:
            tiling = spec.sharding.tiling(tensor.dim(), _mesh.size_of(torch.device(device)))
            if any(size % parts for size, parts in zip(tensor.shape, tiling[0], strict=True)):
                tiling = None
        with _feeding.lying(tiling):
            made += _upload([tensor], [device], None)
    return made


def shards_of(tensors: Sequence[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    """For each tensor what each device holds of it, padded, on the CPU. Waits."""
    import torch

    found = []
    for tensor in tensors:
        whole, tiling = tensor.detach().cpu(), _whole_layout(tensor)
        sizes = [-(-extent // parts) for extent, parts in zip(whole.shape, tiling[0], strict=True)]
        shards = []
        for number, box in enumerate(_mesh.boxes(whole.shape, tiling)):
            data = torch.zeros(sizes, dtype=whole.dtype)
            data[tuple(slice(0, size) for size in box.size)] = whole[box.slices()]
            shards.append((data, _device_text(number)))
        found.append(shards)
    return found


def places_of(tensors: Sequence[torch.Tensor]) -> list[list[tuple[int, Any]]]:
    """For each tensor and device, which copy it holds and which elements, without padding."""
    found: list[list[tuple[int, Any]]] = []
    for tensor in tensors:
        tiling = _whole_layout(tensor)
        if _mesh.is_copied(tiling):
            found.append([(number, Ellipsis) for number in range(len(tiling[1]))])
            continue
        before = [tiling[1][:number].count(tile) for number, tile in enumerate(tiling[1])]
        boxes = _mesh.boxes(tensor.shape, tiling)
        found.append([(copy, list(box.slices())) for copy, box in zip(before, boxes, strict=True)])
    return found


def load_shards(tensor: torch.Tensor, data: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    """Replaces a tensor's contents by shards of the CPU, one for each device, named as ``shards_of`` does.

    Raises:
        RuntimeError: they are not one for each device, or not of its shape.
    """
    import torch

    tiling = _whole_layout(tensor)
    by_name = dict(zip(devices, data, strict=True))
    if len(by_name) != len(tiling[1]):
        raise RuntimeError(f"expected a shard for each of {len(tiling[1])} devices, got {len(by_name)}")
    shards = [by_name[_device_text(number)] for number in range(len(tiling[1]))]
    whole = _assembled(shards, tiling, tensor.shape)
    (uploaded,) = _feeding.upload([whole.to(tensor.dtype)], tiling, tensor.device)
    with torch.no_grad():
        tensor.data.copy_(uploaded)


def from_shards(
    shards: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    """A tensor on ``pw.device()`` made of what each device is to hold."""
    import torch

    tiling = sharding.tiling(shards[0].dim(), len(shards))
    shape = global_shape or [size * parts for size, parts in zip(shards[0].shape, tiling[0], strict=True)]
    whole = _assembled(shards, tiling, shape)
    (uploaded,) = _feeding.upload([whole], tiling, torch.device("xla", 0))
    return uploaded


_NO_MANUAL = (
    "manual sharding (enable_manual_sharding, collectives of one's own inside of an SPMD program) is not available: "
    "PyTorch/XLA compiles for a slice as for one device; lay values out with pw.shard()"
)


def refuse_manual(*unused: Any) -> Any:
    """Raises InvalidSharding."""
    raise core.InvalidSharding(_NO_MANUAL)


def _placed(pairs: Any) -> tuple[int, ...]:
    """Tile numbers in the order of devices, of (device, tile)."""
    return tuple(tile for _, tile in sorted((int(device), tile) for device, tile in pairs))


def _whole_layout(tensor: torch.Tensor) -> Tiling:
    return layout_of(tensor) or _mesh.copies(tensor.dim(), _mesh.size_of(tensor.device))


def _assembled(shards: Sequence[torch.Tensor], tiling: Tiling, shape: Sequence[int]) -> torch.Tensor:
    import torch

    sizes = tuple(-(-extent // parts) for extent, parts in zip(shape, tiling[0], strict=True))
    whole = torch.empty(tuple(shape), dtype=shards[0].dtype)
    for shard, box in zip(shards, _mesh.boxes(shape, tiling), strict=True):
        if tuple(shard.shape) != sizes:
            raise RuntimeError(f"expected shards of shape {sizes}, got {tuple(shard.shape)}")
        whole[box.slices()] = shard[tuple(slice(0, size) for size in box.size)]
    return whole


def _type_of(tiling: Tiling) -> int:
    if _mesh.is_copied(tiling):
        return _REPLICATED
    return _PARTIAL if len(set(tiling[1])) < len(tiling[1]) else _TILED


def _text(tiling: Tiling) -> str:
    return str(op_sharding(tiling[0], [(tile,) for tile in tiling[1]]))


def _device_text(number: int) -> str:
    return f"PATHWAYS:{number}"


BINDINGS: dict[str, Any] = {
    "OpSharding": OpSharding,
    "XlaShardingSpec": XlaShardingSpec,
    "_get_local_shard_replica_and_indices": places_of,
    "_get_local_shards": shards_of,
    "_get_xla_op_sharding": op_sharding_of,
    "_get_xla_sharding_spec": spec_of,
    "_get_xla_sharding_specs": specs_of,
    "_get_xla_sharding_type": type_of,
    "_global_tensor_from_cpu_shards": from_shards,
    "_load_local_shards": load_shards,
    "_mark_manual_sharding": refuse_manual,
    "_spmd_full_to_shard_shape": refuse_manual,
    "_spmd_shard_to_full_shape": refuse_manual,
    "_xla_annotate_custom_sharding": mark,
    "_xla_set_replication_devices": replicate_nothing,
    "_xla_clear_sharding": clear,
    "_xla_mark_sharding": mark,
    "_xla_tensors_from_aten": upload,
}

RUNTIME: dict[str, Any] = {
    "addressable_runtime_device_count": device_count,
    "global_runtime_device_attributes": device_attributes,
    "global_runtime_device_count": device_count,
    "is_spmd": is_spmd,
    "use_spmd": use_spmd,
}
