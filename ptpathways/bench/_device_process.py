"""Process of ``device``. Arguments: ``ptpathways`` or ``jax``, platform, the plugin's path (or nothing), layers."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ptpathways import core
from ptpathways.bench import _hlo
from ptpathways.bench._child import serve
from ptpathways.bench._dispatch import Add
from ptpathways.bench._workload import OURS

if TYPE_CHECKING:
    from ptpathways.launch.local import LocalCluster

SIZE = 64 << 20
"""Bytes of one transfer."""

_PRODUCTS = 10
_TIMEOUT_S = 300.0
_TRIPS = 500
_RUNS = 2000
_STEPS = 10
_RESULTS, _RESULT_LENGTH = 400, 1024
_LENGTH, _BATCH, _VOCABULARY, _WIDTH = 1024, 8, 50_304, 768


def matrix(side: int) -> npt.NDArray[np.uint16]:
    """Normally distributed numbers, as the bits of bfloat16."""
    values = np.random.default_rng(0).standard_normal((side, side), np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def rate(count: float, call: Callable[[], Any]) -> float:
    """How many of ``count`` are done per second by ``call``."""
    start = time.perf_counter()
    call()
    return count / (time.perf_counter() - start)


class Ours:
    """The measures of a worker with one device, by a client's session."""

    def __init__(self, cluster: LocalCluster, side: int) -> None:
        self._session = session = cluster.session
        self._side = side
        self._add = Add(session, runs=_RUNS, trips=_TRIPS)
        self._host = np.random.default_rng(0).random(SIZE // 4, dtype=np.float32)
        self._there = session.put(self._host, 0)
        if not np.array_equal(self._there.result(_TIMEOUT_S), self._host):
            raise RuntimeError("the uploaded value differs from what was sent")
        module = _hlo.products(side, _PRODUCTS)
        self._products = session.register(module, "mlir", name="products", outputs=[("bf16", [side, side])])
        self._factor = session.put(matrix(side), 0, dtype="bf16")
        each = _hlo.doubled_each(_RESULTS, _RESULT_LENGTH)
        kinds = [("f32", [_RESULT_LENGTH])] * _RESULTS
        self._each = session.register(each, "mlir", name="doubled_each", outputs=kinds)
        self._vectors = [session.put(np.ones(_RESULT_LENGTH, np.float32), 0) for _ in range(_RESULTS)]

    def kind(self) -> str:
        """What the device is."""
        return str(self._session.hosts()[0]["devices"][0]["kind"])

    def round_trip(self) -> float:
        """Median microseconds from submitting an addition to knowing that its result exists, by a loop in C++."""
        return self._add.round_trip_cpp()

    def results(self) -> float:
        """Seconds of a program of 400 arguments and results, the last of which is waited for."""
        return 1 / rate(1, lambda: self._session.run(self._each, self._vectors, 0)[-1].wait(_TIMEOUT_S))

    def pipelined(self) -> float:
        """Additions per second: submitted in a loop in C++, then waited for."""
        return self._add.pipelined_cpp()

    def put(self) -> float:
        """Bytes per second to the device."""
        return rate(SIZE, lambda: self._session.put(self._host, 0).wait(_TIMEOUT_S))

    def fetch(self) -> float:
        """Bytes per second into an array of the client's."""
        return rate(SIZE, lambda: self._there.result(_TIMEOUT_S))

    def products(self) -> float:
        """FLOP per second of bfloat16 products."""
        factors = [self._factor, self._factor]
        work = 2 * _PRODUCTS * self._side**3
        return rate(work, lambda: self._session.run(self._products, factors, 0)[0].wait(_TIMEOUT_S))


class Jax:
    """The same by JAX on a device of its own process."""

    def __init__(self, jax: Any, side: int) -> None:
        self._jax = jax
        self._side = side
        self._one = jax.numpy.float32(1)
        self._add = jax.jit(lambda a: a + 1)
        self._host = np.random.default_rng(0).random(SIZE // 4, dtype=np.float32)
        self._there = jax.device_put(self._host).block_until_ready()
        scale = side**-0.5

        def products(a: Any, b: Any) -> Any:
            for _ in range(_PRODUCTS):
                a = (a @ b) * jax.numpy.bfloat16(scale)
            return a

        self._products = jax.jit(products)
        self._factor = jax.device_put(matrix(side).view(jax.numpy.bfloat16))
        self._add(self._one).block_until_ready()
        self._each = jax.jit(lambda *vectors: [vector + vector for vector in vectors])
        self._vectors = [jax.device_put(np.ones(_RESULT_LENGTH, np.float32)) for _ in range(_RESULTS)]

    def kind(self) -> str:
        """What the device is."""
        return str(self._jax.devices()[0].device_kind)

    def round_trip(self) -> float:
        """Median microseconds from calling an addition to its result, by a loop in Python."""
        found = [1 / rate(1, lambda: self._add(self._one).block_until_ready()) for _ in range(_TRIPS)]
        return float(np.median(found)) * 1e6

    def results(self) -> float:
        """Seconds of a program of 400 arguments and results, the last of which is waited for."""
        return 1 / rate(1, lambda: self._each(*self._vectors)[-1].block_until_ready())

    def pipelined(self) -> float:
        """Additions per second: a Python loop, of which the last result is waited for."""

        def all_of_them() -> None:
            for _ in range(_RUNS):
                last = self._add(self._one)
            last.block_until_ready()

        return rate(_RUNS, all_of_them)

    def put(self) -> float:
        """Bytes per second to the device."""
        return rate(SIZE, lambda: self._jax.device_put(self._host).block_until_ready())

    def fetch(self) -> float:
        """Bytes per second into an array of the host's."""
        fresh = (self._there + 0).block_until_ready()  # JAX keeps what it has fetched of an array
        return rate(SIZE, lambda: np.asarray(fresh))

    def products(self) -> float:
        """FLOP per second of bfloat16 products."""
        work = 2 * _PRODUCTS * self._side**3
        return rate(work, lambda: self._products(self._factor, self._factor).block_until_ready())


class Gpt:
    """A GPT of so many layers, trained by JAX with Adam: weights and moments in float32, products in bfloat16."""

    def __init__(self, jax: Any, layers: int, small: bool) -> None:
        self._jax, self._jnp = jax, jax.numpy
        self._width, self._length = (64, 32) if small else (_WIDTH, _LENGTH)
        vocabulary = 128 if small else _VOCABULARY
        self._heads = self._width // 64
        random = np.random.default_rng(0)

        def weight(*shape: int) -> Any:
            return (0.02 * random.standard_normal(shape)).astype(np.float32)

        width = self._width
        weights = {
            "tokens": weight(vocabulary, width),
            "positions": weight(self._length, width),
            "blocks": [
                {
                    "qkv": weight(width, 3 * width),
                    "out": weight(width, width),
                    "up": weight(width, 4 * width),
                    "down": weight(4 * width, width),
                }
                for _ in range(layers)
            ],
        }
        zeros = [jax.tree.map(np.zeros_like, weights) for _ in range(2)]
        self._state = jax.device_put((weights, *zeros, np.float32(0)))
        self._batch = jax.device_put(random.integers(0, vocabulary, (_BATCH, self._length + 1)).astype(np.int32))
        self._step = jax.jit(self._update, donate_argnums=0)
        self.losses = [self._loss_of_a_step() for _ in range(3)]

    def step(self) -> float:
        """Milliseconds of a step, of several that are waited for together."""

        def several() -> None:
            for _ in range(_STEPS):
                self._state, loss = self._step(self._state, self._batch)
            float(loss)

        return 1e3 / rate(_STEPS, several)

    def step_and_loss(self) -> float:
        """Milliseconds of a step whose loss is read before the next."""
        return 1e3 / rate(_STEPS, lambda: [self._loss_of_a_step() for _ in range(_STEPS)])

    def _loss_of_a_step(self) -> float:
        self._state, loss = self._step(self._state, self._batch)
        return float(loss)

    def _normed(self, x: Any) -> Any:
        x = x.astype(self._jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        return (centred * self._jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(self._jnp.bfloat16)

    def _attended(self, x: Any, block: Any) -> Any:
        batch, length, width = x.shape
        parts = (x @ block["qkv"]).reshape(batch, length, 3, self._heads, width // self._heads)
        q, k, v = (parts[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = (q @ k.transpose(0, 1, 3, 2)).astype(self._jnp.float32) * (width // self._heads) ** -0.5
        causal = self._jnp.tril(self._jnp.ones((length, length), bool))
        shares = self._jax.nn.softmax(self._jnp.where(causal, scores, -1e9), -1).astype(self._jnp.bfloat16)
        return (shares @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ block["out"]

    def _loss(self, weights: Any, batch: Any) -> Any:
        half = self._jax.tree.map(lambda a: a.astype(self._jnp.bfloat16), weights)
        x = half["tokens"][batch[:, :-1]] + half["positions"]
        for block in half["blocks"]:
            x = x + self._attended(self._normed(x), block)
            x = x + self._jax.nn.gelu(self._normed(x) @ block["up"]) @ block["down"]
        logits = (self._normed(x) @ half["tokens"].T).astype(self._jnp.float32)
        chosen = self._jnp.take_along_axis(self._jax.nn.log_softmax(logits), batch[:, 1:, None], -1)
        return -chosen.mean()

    def _update(self, state: Any, batch: Any) -> Any:
        weights, first, second, count = state
        loss, gradient = self._jax.value_and_grad(self._loss)(weights, batch)
        of = self._jax.tree.map
        count = count + 1
        first = of(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = of(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

        def updated(w: Any, m: Any, v: Any) -> Any:
            return w - 3e-4 * (m / (1 - 0.9**count)) / (self._jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return (of(updated, weights, first, second), first, second, count), loss


def load_jax(cluster: LocalCluster | None, platform: str) -> Any:
    """JAX on the cluster's devices, or on those of this process."""
    os.environ["JAX_PLATFORMS"] = platform if cluster is None else OURS
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    importlib.import_module("jax.numpy")
    if cluster is not None:
        from ptpathways import native

        cluster.session.make_current()
        importlib.import_module("jax._src.xla_bridge").register_plugin(OURS, library_path=native.library_path)
        # JAX donates only on platforms it knows by name.
        importlib.import_module("jax._src.interpreters.mlir")._platforms_with_donation.append(OURS)
    return jax


def main() -> None:
    from ptpathways.launch import local

    system, platform, plugin, layers = sys.argv[1:]
    small = platform == "cpu"
    side = 512 if small else 8192
    started: AbstractContextManager[LocalCluster | None] = nullcontext()
    if system == OURS:
        started = local.start(core.Options(hosts=1, platform=platform, plugin=plugin))
    with started as cluster:
        jax: Any = None if cluster is not None else load_jax(None, platform)
        measures: dict[str, Any] = {"device": Ours(cluster, side) if cluster is not None else Jax(jax, side)}

        def answer(request: str) -> Any:
            if request == "gpt":
                measures["gpt"] = Gpt(jax or load_jax(cluster, platform), int(layers), small)
                return measures["gpt"].losses
            whose, _, name = request.partition(".")
            return getattr(measures[whose], name)()

        serve(answer)


if __name__ == "__main__":
    try:
        main()
    except core.PathwaysError as error:  # for who started it, in one line
        sys.exit(str(error))
