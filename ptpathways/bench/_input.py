"""``input``: an expensive input pipeline in the client, against the same on the workers' hosts."""

from __future__ import annotations

import functools

from ptpathways.bench._child import Child
from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Workload

BATCH = 32
HERE = "DataLoader in the client"
HERE_WORKERS = "DataLoader in the client, 2 workers"
REMOTE = "data.remote, a process per host"
VARIANTS = (HERE, HERE_WORKERS, REMOTE)


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=2)
    batches = options.choose(20, 4)
    repeats = options.repeats_or(5, 2)
    cpu: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with Child("ptpathways.bench._input_process", str(size.hosts), str(size.devices_per_host)) as child:

        def seconds(variant: str) -> float:
            answer = child.ask({"variant": variant, "batches": batches})
            cpu[variant].append(answer["cpu"])
            taken: float = answer["seconds"]
            return taken

        variants = {variant: functools.partial(seconds, variant) for variant in VARIANTS}
        measured = interleave(variants, repeats=repeats, warm_up=1)
    setting = Setting("input", size.hosts, size.device_count)
    return figures(setting, batches, measured, {name: values[-repeats:] for name, values in cpu.items()})


def figures(
    setting: Setting, batches: int, seconds: dict[str, list[float]], cpu: dict[str, list[float]]
) -> list[Record]:
    """Records of the seconds that ``batches`` took, and of the client's CPU seconds meanwhile."""
    records = []
    for variant in VARIANTS:
        rates = [batches * BATCH / taken for taken in seconds[variant]]
        records.append(setting.record(OURS, f"{variant}: samples", "1/s", rates))
        costs = [taken / batches * 1e3 for taken in cpu[variant]]
        records.append(setting.record(OURS, f"{variant}: client's CPU per batch", "ms", costs))
    return records


INPUT = Workload(
    "input",
    "samples per second of an expensive transform, in the client and on the workers' hosts, and what the client pays",
    _run,
)
