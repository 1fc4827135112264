"""``device``: a worker's device of any platform, beside JAX on the same device in a process of its own."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack

from rich.console import Console

from ptpathways import core, platforms
from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

JAX = "jax"
_PROCESS = "ptpathways.bench._device_process"
_START_TIMEOUT_S = 600.0
_LAYERS = 12
_LOSS_TOLERANCE = 2e-3

MEASURES = {
    "round trip": ("device.round_trip", "us", 1.0),
    "400 results waited for": ("device.results", "us", 1e6),
    "pipelined": ("device.pipelined", "runs/s", 1.0),
    "64 MiB to the device": ("device.put", "GB/s", 1e-9),
    "64 MiB from the device": ("device.fetch", "GB/s", 1e-9),
    "bf16 products": ("device.products", "TFLOP/s", 1e-12),
}
"""What to ask the process for, the unit, and what a value counts in it."""

GPT_MEASURES = {
    "GPT-2 step": ("gpt.step", "ms", 1.0),
    "GPT-2 step, loss read": ("gpt.step_and_loss", "ms", 1.0),
}
"""Of JAX's program, on our worker and in its own process."""


def check_losses(found: dict[str, list[float]]) -> None:
    """Raises PathwaysError if JAX's program does not give on our worker what it gives in its own process."""
    ours, theirs = found[OURS], found[JAX]
    if any(abs(a - b) > _LOSS_TOLERANCE * abs(b) for a, b in zip(ours, theirs, strict=True)):
        raise core.PathwaysError(f"expected the same losses on the worker as in JAX's process, {theirs}, got {ours}")


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=1)
    if (size.hosts, size.devices_per_host) != (1, 1):
        raise core.InvalidOption(f"workload device measures 1 device of 1 host, got {size.device_count}")
    platforms.find_plugin(size.platform, size.plugin)  # says what is missing before anything is started
    layers = options.choose(_LAYERS, 1)
    systems = [OURS, *([JAX] if importlib.util.find_spec("jax") is not None else [])]
    if JAX not in systems:
        Console(stderr=True).print("jax: skipped, this interpreter has none", style="yellow")
    with ExitStack() as stack:
        children = {
            system: stack.enter_context(Child(_PROCESS, system, size.platform, size.plugin, str(layers)))
            for system in systems
        }
        kinds = {system: child.ask("device.kind", _START_TIMEOUT_S) for system, child in children.items()}
        wanted = dict(MEASURES)
        if JAX in systems:
            check_losses({system: child.ask("gpt", _START_TIMEOUT_S) for system, child in children.items()})
            wanted |= GPT_MEASURES

        def measure(system: str, request: str, scale: float) -> Measure:
            return lambda: float(children[system].ask(request)) * scale

        variants = {
            f"{system} {name}": measure(system, request, scale)
            for name, (request, _, scale) in wanted.items()
            for system in systems
        }
        values = interleave(variants, repeats=options.repeats_or(7, 2), warm_up=1)
    setting = Setting("device", 1, 1)
    return [
        setting.record(system, name, unit, values[f"{system} {name}"], {"device": kinds[system]})
        for name, (_, unit, _) in wanted.items()
        for system in systems
    ]


DEVICE = Workload(
    "device",
    "one device of --platform: an addition's round trip and rate, 400 arguments and results, 64 MiB to and from it, "
    "bfloat16 products, and a training step of a GPT-2 by JAX, on a worker and in JAX's own process",
    _run,
    {"64 MiB to the device": Goal(3, at_least=True), "64 MiB from the device": Goal(3, at_least=True)},
    any_platform=True,
)
