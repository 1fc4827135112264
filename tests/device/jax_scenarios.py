"""What JAX does through our plugin: ``python -m tests.device.jax_scenarios``, with an interpreter that has JAX.

Prints one JSON object: scenario -> its result, or ``{"error": traceback}``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ptpathways import core, native
from ptpathways.launch import local

jax: Any = None
jnp: Any = None
cluster: local.LocalCluster

SCENARIOS: list[Callable[[], Any]] = []


def scenario(function: Callable[[], Any]) -> Callable[[], Any]:
    """Adds a scenario."""
    SCENARIOS.append(function)
    return function


@scenario
def devices() -> Any:
    """What JAX sees."""
    first = jax.devices()[0]
    return [len(jax.devices()), first.platform, first.device_kind, first.process_index, first.default_memory().kind]


@scenario
def element_types() -> Any:
    """Every dtype goes there and back, in both orders of dimensions."""
    wrong = []
    names = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "complex64")
    for dtype in [*map(np.dtype, names), np.dtype(jnp.bfloat16), np.dtype(jnp.float8_e4m3fn)]:
        array = (np.arange(12) % 2).reshape(3, 4).astype(dtype)
        for order in (array, np.asfortranarray(array), array[::-1, ::2]):
            if not (np.asarray(jax.device_put(order)) == order).all():
                wrong.append([str(dtype), list(order.strides)])
    return wrong


@scenario
def gradients() -> Any:
    """A gradient's greatest difference from numpy."""
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    got = jax.grad(lambda a: (jnp.sin(a) ** 2).sum())(jnp.asarray(x))
    return float(np.abs(np.asarray(got) - 2 * np.sin(x) * np.cos(x)).max())


@scenario
def other_devices() -> Any:
    """A value moves from device to device without passing through this process."""
    x = jax.device_put(jnp.arange(50_000.0), jax.devices()[0])
    before = cluster.session.transfer_stats()
    y = jax.device_put(x, jax.devices()[1])
    y.block_until_ready()
    after = cluster.session.transfer_stats()
    moved = {key: after[key] - before[key] for key in ("bytes_uploaded", "bytes_fetched", "copies")}
    return [moved, [device.id for device in (y + 1).devices()], float(y.sum())]


@scenario
def donation() -> Any:
    """A donated argument is gone, and its memory taken."""
    step = jax.jit(lambda a: a + 1, donate_argnums=0)
    x = jnp.zeros((1000, 1000))
    first = x
    for _ in range(20):
        x = step(x)
    return [bool(first.is_deleted()), float(x[0, 0])]


@scenario
def sharded() -> Any:
    """A matrix product and a collective over a mesh of 2 x 2."""
    specs = importlib.import_module("jax.sharding")
    mesh = specs.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    rows = specs.PartitionSpec("a", "b")
    host = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    array = jax.device_put(host, specs.NamedSharding(mesh, rows))
    product = jax.jit(lambda m: m @ m.T)(array)
    total = jax.jit(
        jax.shard_map(
            lambda m: jax.lax.psum(m, "a"), mesh=mesh, in_specs=rows, out_specs=specs.PartitionSpec(None, "b")
        )
    )(array)
    return [
        bool(np.allclose(np.asarray(product), host @ host.T)),
        bool(np.allclose(np.asarray(total), host[:4] + host[4:])),
        len(product.sharding.device_set),
    ]


@scenario
def replicated() -> Any:
    """A sum over four replicas."""
    return np.asarray(jax.pmap(lambda a: jax.lax.psum(a, "i"), axis_name="i")(jnp.arange(4.0))).tolist()


@scenario
def serialized() -> Any:
    """A compiled program is written and read again."""
    cache = importlib.import_module("jax.experimental.serialize_executable")
    compiled = jax.jit(lambda a: a * 2).lower(jnp.arange(3.0)).compile()
    again = cache.deserialize_and_load(*cache.serialize(compiled), execution_devices=jax.devices()[:1])
    return [np.asarray(again(jnp.arange(3.0))).tolist(), compiled.memory_analysis().argument_size_in_bytes]


@scenario
def a_callback_is_refused() -> Any:
    """Host callbacks are not carried; the refusal is JAX's own."""
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    try:
        jax.jit(lambda a: jax.pure_callback(lambda v: v, shape, a))(jnp.ones(2)).block_until_ready()
    except Exception as error:  # any kind: the test looks at the text
        return str(error)
    return ""


def main() -> int:
    """Runs all; prints their results."""
    global jax, jnp, cluster
    os.environ["JAX_PLATFORMS"] = "pathways"
    cluster = local.start(core.Options.from_environment(hosts=1, devices_per_host=4))
    cluster.session.make_current()
    jax = importlib.import_module("jax")
    jnp = importlib.import_module("jax.numpy")
    importlib.import_module("jax._src.xla_bridge").register_plugin("pathways", library_path=native.library_path)
    # JAX donates only on platforms it knows by name.
    importlib.import_module("jax._src.interpreters.mlir")._platforms_with_donation.append("pathways")
    results = {}
    for function in SCENARIOS:
        try:
            results[function.__name__] = function()
        except Exception:
            results[function.__name__] = {"error": traceback.format_exc()}
    print(json.dumps(results), flush=True)
    cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
