"""JAX programs on our PJRT plugin, each checked against numpy or against what it must be by definition.

Started as a program by an interpreter that has JAX (and pyzmq), with the repository on its path::

    PYTHONPATH=. python tests/conformance/jax_programs.py --plugin /path/to/libpjrt_cpu.so [--only NAME ...]

``--plugin`` is the PJRT plugin that the worker loads. Prints one JSON line per program: ``name``, ``outcome``
(``begun``, then ``passed``, ``limit`` or ``failed``) and ``message``. A program that shows a limit must fail with the
words given with it; passing is then a failure of this page. Exits with 1 when a program failed. Without torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

DEVICES = 4
PROGRAMS: list[Callable[[], None]] = []
LIMITS: dict[str, str] = {}
"""What a program must fail with, by its name."""

# Set by ``start``, which must come before JAX's first use of a device.
jax: Any = None
jnp: Any = None


def program(function: Callable[[], None]) -> Callable[[], None]:
    """Puts a program on the page."""
    PROGRAMS.append(function)
    return function


def limit(words: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Puts a program on the page that must fail with ``words``."""

    def put(function: Callable[[], None]) -> Callable[[], None]:
        LIMITS[function.__name__] = words
        return program(function)

    return put


def close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)


def normal(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def mesh(*axes: int) -> Any:
    """All devices as a mesh with axes named x, y, ..."""
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(axes), tuple("xyz"[: len(axes)]))


def sharding(grid: Any, *parts: str | None) -> Any:
    return jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*parts))


# ---- one device


@program
def devices_are_the_clusters() -> None:
    assert len(jax.devices()) == DEVICES
    assert {device.platform for device in jax.devices()} == {"pathways"}
    assert all("host" in str(device) for device in jax.devices())


@program
def jit_of_a_matrix_product() -> None:
    a, b = normal(5, 7), normal(7, 3)
    close(jax.jit(lambda a, b: jnp.tanh(a @ b) + 1)(a, b), np.tanh(a @ b) + 1)


@program
def operations_one_by_one() -> None:
    x = normal(4, 6)
    y = jnp.asarray(x)
    close(jnp.sort(y, axis=1)[:, ::-1].cumsum(axis=0).T, np.sort(x, axis=1)[:, ::-1].cumsum(axis=0).T)


@program
def element_types() -> None:
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "complex64"):
        x = np.arange(-3, 5).astype(name)
        y = jax.jit(lambda x: x[::-1])(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(y), x[::-1])
    assert jnp.ones(3, jnp.bfloat16).astype(jnp.float32).sum() == 3


@program
def element_types_of_64_bits() -> None:
    with jax.enable_x64(True):
        for name in ("int64", "uint64", "float64", "complex128"):
            x = (np.arange(6) * 2**20).astype(name)
            np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x * x)(x)), x * x)


@program
def values_small_large_and_empty() -> None:
    close(jax.jit(lambda: jnp.float32(7))(), 7)
    x = np.arange(3 << 20, dtype=np.float32)
    close(jax.jit(lambda x: x + 1)(x), x + 1)
    assert jax.jit(lambda x: x * 2)(np.zeros((0, 3), np.float32)).shape == (0, 3)


@program
def transposed_and_strided_uploads() -> None:
    x = normal(6, 8)
    close(jnp.asarray(x.T), x.T)
    close(jnp.asarray(x[::2, 1::3]), x[::2, 1::3])


@program
def trees_in_and_out() -> None:
    tree: Any = {"a": normal(2), "b": (normal(3), [np.int32(4), None])}
    out = jax.jit(lambda t: jax.tree.map(lambda leaf: leaf * 2, t))(tree)
    close(out["b"][0], tree["b"][0] * 2)
    assert int(out["b"][1][0]) == 8


@program
def grad() -> None:
    w, x = normal(3), normal(9, 3)
    loss = jax.jit(jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2)))
    value, gradient = loss(w)
    close(value, np.mean((x @ w) ** 2))
    close(gradient, 2 * x.T @ (x @ w) / 9)


@program
def hessian_by_forward_over_reverse() -> None:
    a = normal(4, 4)
    close(jax.jit(jax.hessian(lambda x: x @ a @ x))(normal(4)), a + a.T)


@program
def vmap() -> None:
    a, b = normal(6, 3, 4), normal(6, 4)
    close(jax.jit(jax.vmap(jnp.dot))(a, b), np.einsum("nij,nj->ni", a, b))


@program
def scan() -> None:
    x = normal(20, 3)
    last, sums = jax.jit(lambda x: jax.lax.scan(lambda c, v: (c + v, c * 2), jnp.zeros(3), x))(x)
    close(last, x.sum(0), atol=1e-4)
    close(sums[5], 2 * x[:5].sum(0), atol=1e-4)


@program
def while_loop_and_cond() -> None:
    def collatz(n: Any) -> Any:
        def step(state: Any) -> Any:
            n, count = state
            return jax.lax.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), count + 1

        return jax.lax.while_loop(lambda state: state[0] != 1, step, (n, 0))[1]

    assert int(jax.jit(collatz)(27)) == 111


@program
def random_numbers() -> None:
    key = jax.random.key(7)
    a, b = (jax.random.normal(k, (10000,)) for k in jax.random.split(key))
    assert abs(float(a.mean())) < 0.05 and abs(float(a.std()) - 1) < 0.05
    assert not np.array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_array_equal(np.asarray(a), np.asarray(jax.random.normal(jax.random.split(key)[0], (10000,))))
    draws = np.asarray(jax.random.permutation(key, 50))
    assert sorted(draws) == list(range(50))


@program
def convolution_and_pooling() -> None:
    x, k = normal(1, 1, 5, 5), normal(1, 1, 3, 3)
    out = jax.jit(lambda x, k: jax.lax.conv(x, k, (1, 1), "VALID"))(x, k)
    want = [[np.sum(x[0, 0, i : i + 3, j : j + 3] * k[0, 0]) for j in range(3)] for i in range(3)]
    close(out[0, 0], want)
    pooled = jax.lax.reduce_window(jnp.asarray(x), -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    close(pooled[0, 0, 0, 0], x[0, 0, :2, :2].max())


@program
def fft() -> None:
    x = normal(16)
    close(jax.jit(jnp.fft.fft)(x), np.fft.fft(x), atol=1e-4)


@program
def cholesky_factors() -> None:
    a = normal(4, 4)
    spd = a @ a.T + 4 * np.eye(4, dtype=np.float32)
    close(jax.jit(jnp.linalg.cholesky)(spd), np.linalg.cholesky(spd), atol=1e-4)


@program
def linear_solve() -> None:
    a, b = normal(4, 4) + 4 * np.eye(4, dtype=np.float32), normal(4)
    close(jax.jit(jnp.linalg.solve)(a, b), np.linalg.solve(a, b), atol=1e-4)


@limit("translation rule for primitive 'eigh' not found for platform pathways")
def symmetric_eigenvalues() -> None:
    """JAX lowers it to a call of a library that belongs to one of its own platforms."""
    a = normal(4, 4)
    close(jax.jit(jnp.linalg.eigvalsh)(a + a.T), np.linalg.eigvalsh(a + a.T), atol=1e-4)


@program
def donated_arguments() -> None:
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jax.device_put(normal(1000))
    first = np.asarray(x).copy()
    kept = x
    for _ in range(50):
        x = step(x)
    close(x, first + 50, atol=1e-3)
    assert kept.is_deleted()


@program
def many_runs_in_flight() -> None:
    step = jax.jit(lambda x: x * 0.5 + 1)
    x = jnp.float32(9)
    for _ in range(2000):
        x = step(x)
    close(x.block_until_ready(), 2)


@program
def ahead_of_time() -> None:
    lowered = jax.jit(lambda x: (x @ x).sum()).lower(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.memory_analysis().argument_size_in_bytes == 256
    close(compiled(np.ones((8, 8), np.float32)), 512)


@limit("cost_analysis")
def costs() -> None:
    """The CPU plugin that workers load analyses no costs."""
    compiled = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((8, 8), jnp.float32)).compile()
    found = compiled.cost_analysis()
    assert found is not None, "cost_analysis answered None"


@program
def serialized_executables() -> None:
    """What JAX's persistent cache does, on a platform that is not on its list."""
    backend = jax.devices()[0].client
    compiled = jax.jit(lambda x: jnp.cos(x) * 3).lower(jax.ShapeDtypeStruct((), jnp.float32)).compile()
    executable = compiled.runtime_executable()
    stored = bytes(executable.serialize())
    loaded = backend.deserialize_executable(stored, executable.local_devices())
    out = loaded.execute_sharded([jnp.float32(0)])
    close(out.disassemble_into_single_device_arrays()[0][0], 3)


@program
def memory_statistics() -> None:
    stats = jax.devices()[0].memory_stats()
    assert stats["bytes_limit"] > 0 and stats["bytes_in_use"] >= 0


@program
def training_loop() -> None:
    x, true = normal(64, 5), normal(5, 1)
    y = x @ true

    def update(w: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * g, loss

    step = jax.jit(update)
    w = jnp.zeros((5, 1))
    for _ in range(200):
        w, loss = step(w, x, y)
    close(w, true, atol=1e-2)
    assert float(loss) < 1e-3


# ---- errors


@program
def error_inside_check() -> None:
    """A user's check by checkify comes back as its own error."""
    from jax.experimental import checkify

    def f(x: Any) -> Any:
        checkify.check(jnp.all(x > 0), "expected positive values")
        return jnp.log(x)

    error, _ = jax.jit(checkify.checkify(f))(np.float32(-1))
    assert "expected positive values" in str(error.get())
    checkify.checkify(f)(np.float32(1))[0].throw()


@program
def error_of_a_wrong_computation_is_raised() -> None:
    """A computation that the worker cannot compile raises, with the compiler's words, and the session goes on."""
    call = jax.ffi.ffi_call("ptpathways_no_such_handler", jax.ShapeDtypeStruct((2,), jnp.float32))
    message = ""
    try:
        np.asarray(jax.jit(call)(np.zeros(2, np.float32)))
    except Exception as error:
        message = str(error)
    assert "ptpathways_no_such_handler" in message, message or "nothing was raised"
    close(jnp.float32(1) + 1, 2)


@program
def error_of_too_much_memory_is_raised() -> None:
    """A value larger than the device raises at the latest where it is read, and the session goes on."""
    message = ""
    try:
        np.asarray(jax.jit(lambda x: jnp.ones((1 << 21, 1 << 21), jnp.float32) * x)(np.float32(2))[0, 0])
    except Exception as error:
        message = str(error)
    assert "RESOURCE_EXHAUSTED" in message, message or "nothing was raised"
    close(jnp.float32(1) + 1, 2)


@program
def nan_check() -> None:
    with jax.debug_nans(True):
        try:
            jax.jit(jnp.log)(np.float32(-1)).block_until_ready()
        except FloatingPointError:
            return
    raise AssertionError("expected FloatingPointError")


# ---- several devices


@program
def put_from_device_to_device() -> None:
    x = normal(300, 400)
    y = jax.device_put(x, jax.devices()[1])
    for device in (*jax.devices(), jax.devices()[0]):
        y = jax.device_put(y, device)
        assert y.devices() == {device}
    close(y, x)


@program
def run_on_each_device() -> None:
    for index, device in enumerate(jax.devices()):
        y = jax.jit(lambda x: x + 1)(jax.device_put(np.float32(index), device))
        assert y.devices() == {device}
        close(y, index + 1)


@program
def sharded_values() -> None:
    x = normal(8, 6)
    y = jax.device_put(x, sharding(mesh(4), "x", None))
    assert [shard.data.shape for shard in y.addressable_shards] == [(2, 6)] * 4
    close(y.addressable_shards[3].data, x[6:])
    close(y, x)


@program
def sharded_jit() -> None:
    grid = mesh(2, 2)
    a, b = normal(8, 6), normal(6, 4)
    sa, sb = jax.device_put(a, sharding(grid, "x", "y")), jax.device_put(b, sharding(grid, "y", None))
    y = jax.jit(lambda a, b: a @ b, out_shardings=sharding(grid, "x", None))(sa, sb)
    assert y.addressable_shards[0].data.shape == (4, 4)
    close(y, a @ b)
    close(jax.jit(lambda y: y.sum())(y), (a @ b).sum(), atol=1e-4)


@program
def resharding() -> None:
    grid = mesh(4)
    x = normal(8, 8)
    y = jax.device_put(jax.device_put(x, sharding(grid, "x", None)), sharding(grid, None, "x"))
    close(y.addressable_shards[1].data, x[:, 2:4])
    z = jax.jit(lambda y: y * 1, out_shardings=sharding(grid))(y)
    close(z.addressable_shards[2].data, x)


@program
def part_of_the_devices() -> None:
    pair = jax.sharding.Mesh(np.array(jax.devices()[2:]), ("x",))
    x = normal(8)
    y = jax.jit(lambda x: x - x.mean())(jax.device_put(x, sharding(pair, "x")))
    assert y.devices() == set(jax.devices()[2:])
    close(y, x - x.mean())


@program
def collectives_by_shard_map() -> None:
    grid = mesh(4)
    x = normal(8, 3)
    spec = jax.sharding.PartitionSpec("x", None)

    def body(x: Any) -> Any:
        neighbour = jax.lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)])
        return jax.lax.psum(x, "x") + neighbour + jax.lax.all_gather(x, "x", tiled=True)[:2]

    y = jax.jit(jax.shard_map(body, mesh=grid, in_specs=spec, out_specs=spec))(x)
    parts = x.reshape(4, 2, 3)
    close(y, np.concatenate([parts.sum(0) + parts[i - 1] + x[:2] for i in range(4)]))


@program
def pmap() -> None:
    x = normal(4, 3)
    close(jax.pmap(lambda x: x / jax.lax.psum(x, "i"), axis_name="i")(x), x / x.sum(0), rtol=1e-4)


@program
def random_numbers_sharded() -> None:
    draw = jax.jit(lambda key: jax.random.uniform(key, (16, 4)), out_shardings=sharding(mesh(4), "x", None))
    close(draw(jax.random.key(1)), jax.random.uniform(jax.random.key(1), (16, 4)))


@program
def data_parallel_training() -> None:
    grid = mesh(4)
    x, true = normal(64, 5), normal(5, 1)
    batch = jax.device_put((x, x @ true), sharding(grid, "x"))
    w = jax.device_put(np.zeros((5, 1), np.float32), sharding(grid))

    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ w - y) ** 2)

    step = jax.jit(lambda w, x, y: w - 0.1 * jax.grad(loss)(w, x, y), donate_argnums=0)
    for _ in range(200):
        w = step(w, *batch)
    close(w, true, atol=1e-2)


@program
def donated_sharded_arguments() -> None:
    x = normal(8, 4)
    y = jax.device_put(x, sharding(mesh(4), "x", None))
    step = jax.jit(lambda y: y * 2, donate_argnums=0)
    for _ in range(10):
        y = step(y)
    close(y, x * 1024)


# ---- what reaches out of the device


@limit("`EmitPythonCallback` not supported on pathways backend")
def callback_to_python() -> None:
    """A worker has no Python of the client's that it could call."""
    y = jax.jit(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x))(normal(3))
    close(y, np.sin(normal(3)))


@limit("translation rule for primitive 'debug_print' not found for platform pathways")
def print_inside_jit() -> None:
    jax.jit(lambda x: jax.debug.print("{}", x))(np.float32(1))
    jax.effects_barrier()


@limit("nothing was stored")
def persistent_compilation_cache() -> None:
    """JAX stores executables of the platforms tpu, gpu, cpu and neuron only."""
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        try:
            for _ in range(2):
                close(jax.jit(lambda x: jnp.cos(x) * 3)(np.float32(0)), 3)
                jax.clear_caches()
            assert os.listdir(folder), "nothing was stored"
        finally:
            jax.config.update("jax_compilation_cache_dir", None)


@program
def export_and_call() -> None:
    from jax import export

    exported = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((4,), jnp.float32))
    again = export.deserialize(exported.serialize())
    close(jax.jit(again.call)(normal(4)), np.sin(normal(4)))


@limit("lies on another host and has no address in this process")
def exchange_by_dlpack() -> None:
    """DLPack shares memory; that of a remote device cannot be."""
    close(np.from_dlpack(jnp.asarray(normal(4))), normal(4))


@program
def memory_kinds() -> None:
    x = jax.device_put(normal(4), jax.devices()[0])
    assert x.sharding.memory_kind == jax.devices()[0].default_memory().kind


def start(plugin: str, platform: str = "cpu", devices: int = 4) -> Any:
    """A local cluster of one host, joined by this process, whose devices are JAX's; the cluster."""
    global jax, jnp, DEVICES
    from ptpathways import core, native
    from ptpathways.launch import local

    DEVICES = devices
    cluster = local.start(core.Options(hosts=1, devices_per_host=devices, platform=platform, plugin=plugin))
    cluster.session.make_current()
    os.environ["JAX_PLATFORMS"] = "pathways"
    import jax as found
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir

    xla_bridge.register_plugin("pathways", library_path=native.library_path)
    # JAX gives arguments up only on the platforms of a list of its own, and warns elsewhere.
    mlir._platforms_with_donation.append("pathways")
    jax, jnp = found, found.numpy
    return cluster


def attempt(run: Callable[[], None]) -> tuple[str, str]:
    """Runs a program; its outcome and message."""
    words = LIMITS.get(run.__name__)
    try:
        run()
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return "limit" if words is not None and words in message else "failed", message
    return ("passed", "") if words is None else ("failed", f"expected to fail with {words!r}, and passed")


def main() -> int:
    parser = argparse.ArgumentParser(description="JAX programs on our plugin")
    parser.add_argument("--plugin", default="", help="PJRT plugin of the worker's devices; default: the installed one")
    parser.add_argument("--platform", default="cpu", help="of the worker's devices (default: cpu)")
    parser.add_argument("--devices", type=int, default=4, help="of the worker; some programs need 4 (default: 4)")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    given = parser.parse_args()
    cluster = start(given.plugin, given.platform, given.devices)
    failures = 0
    for run in PROGRAMS:
        if given.only and run.__name__ not in given.only:
            continue
        print(json.dumps({"name": run.__name__, "outcome": "begun"}), flush=True)
        outcome, message = attempt(run)
        failures += outcome == "failed"
        print(json.dumps({"name": run.__name__, "outcome": outcome, "message": message}), flush=True)
    cluster.close("the page is done")
    return 1 if failures else 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # JAX's destructors would call a plugin whose cluster is gone.
    os._exit(exit_code)
