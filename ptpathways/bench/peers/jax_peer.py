"""JAX: one process; each host is one of its CPU devices. No controller and no other process: what the work costs.

"OpByOp" is one jitted call for each computation on an array with one element on each device. Where it has a collective,
each call is waited for: on two cores JAX's CPU client aborts when several are in flight. "Fused" is one jitted call of
128 computations in sequence; JAX has no chained programs other than that.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from runner import CHAIN, Batch, Setting

_CALLS = 200


class Jax:
    """JAX's CPU client with a device for each host."""

    def __init__(self, setting: Setting) -> None:
        hosts = setting["hosts"]
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={hosts}"
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["NPROC"] = str(max(8, 4 * hosts))  # a thread pool that a collective of all devices fits in
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self.versions = {"jax": jax.__version__}
        self._jax = jax
        self._reduces = setting["work"] == "allreduce" and hosts > 1
        mesh = Mesh(jax.devices()[:hosts], "hosts")
        spread = PartitionSpec("hosts")

        def one(value: Any) -> Any:
            if setting["work"] == "allreduce":
                value = jax.lax.pmean(value, "hosts")
            return value + 1.0

        def many(value: Any) -> Any:
            return jax.lax.fori_loop(0, CHAIN, lambda _, held: one(held), value)

        shard = partial(jax.shard_map, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False)
        self._one, self._many = jax.jit(shard(one)), jax.jit(shard(many))
        self._value = jax.device_put(jax.numpy.zeros(hosts), NamedSharding(mesh, spread))

    def figures(self) -> dict[str, Batch]:
        return {
            "OpByOp": lambda: self._calls(self._one, _CALLS),
            "Fused": lambda: self._calls(self._many, 10) * CHAIN,
            "round trip": lambda: self._calls(self._one, 1),
        }

    def close(self) -> None:
        self._jax.block_until_ready(self._value)

    def _calls(self, function: Any, count: int) -> float:
        for _ in range(count):
            self._value = function(self._value)
            if self._reduces:
                self._jax.block_until_ready(self._value)
        self._jax.block_until_ready(self._value)
        return float(count)


open_system = Jax
