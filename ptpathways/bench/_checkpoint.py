"""``checkpoint``: saving and loading a model, beside ``dd`` on the same disk."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import BenchOptions, Workload

_TIMEOUT_S = 300.0


def _dd(folder: Path, megabytes: int) -> float:
    """GB/s of ``dd`` with zeros, until they are on the disk."""
    target = folder / "dd"
    start = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={target}", "bs=1000000", f"count={megabytes}", "conv=fdatasync"],
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    rate: float = megabytes * 1e6 / (time.perf_counter() - start) / 1e9
    target.unlink()
    return rate


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=1)
    megabytes = options.choose(400, 40)
    blocked: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-checkpoint-") as text:
        folder = Path(text)
        arguments = (str(megabytes), str(size.hosts), str(size.devices_per_host), text)
        with Child("ptpathways.bench._checkpoint_process", *arguments) as child:

            def measure(what: str) -> Measure:
                def gigabytes_per_second() -> float:
                    answer = child.ask({"do": what}, _TIMEOUT_S)
                    if what == "save":
                        blocked.append(answer["blocked_s"] * 1e3)
                    return float(answer["bytes"] / answer["seconds"] / 1e9)

                return gigabytes_per_second

            variants = {"save": measure("save"), "load": measure("load"), "dd": lambda: _dd(folder, megabytes)}
            values = interleave(variants, repeats=options.repeats_or(7, 2), warm_up=1)
    setting = Setting("checkpoint", size.hosts, size.device_count)
    records = [setting.record("dd" if name == "dd" else "ptpathways", name, "GB/s", values[name]) for name in variants]
    records.append(setting.record("ptpathways", "save: the loop is held up", "ms", blocked[-len(values["save"]) :]))
    return records


CHECKPOINT = Workload(
    "checkpoint",
    "400 MB of parameters saved until they are on the disk, and loaded, beside dd with conv=fdatasync: GB/s",
    _run,
)
