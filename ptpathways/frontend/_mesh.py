"""All devices as one: PyTorch/XLA's SPMD mode with one mesh axis, over which batches are split."""

from __future__ import annotations

import functools
from typing import Any

from ptpathways.frontend import _rng, _state

DATA_AXIS = "data"


def use_all_devices() -> int:
    """From now on this process has one torch device that stands for all; how many they are.

    With a single device nothing needs partitioning, and it is used plainly.

    Raises:
        NotInitialized: before ``init``.
        RuntimeAlreadyStarted: devices are already used one by one.
    """
    this = _state.runtime()
    alone = this.device_count == 1
    if _state.set_mode(_state.Mode.ONE_BY_ONE if alone else _state.Mode.TOGETHER):
        if not alone:
            from torch_xla import runtime

            runtime.use_spmd()
        _rng.follow_torch()
    return this.device_count


@functools.cache
def _spec(dimensions: int, split: bool) -> Any:
    """A sharding of tensors with that many dimensions: the first split over all devices, or a copy on each."""
    import numpy as np
    from torch_xla.distributed import spmd

    count = _state.runtime().device_count
    mesh = spmd.Mesh(np.arange(count), (count,), (DATA_AXIS,))
    return spmd.ShardingSpec(mesh, (DATA_AXIS if split else None,) + (None,) * (dimensions - 1) if dimensions else ())


def sharding(tensor: Any, split: bool) -> Any:
    """torch_xla's own description of how ``tensor`` lies on the devices."""
    return _spec(tensor.dim(), split).xla_spec(tensor)
