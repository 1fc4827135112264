"""``reshard``: a model's weights from one slice to another that has another layout, beside a plain copy.

Two slices, each of half of the hosts. A round measures, right after each other, the plain copy of ``transfer`` (64 MiB
from one worker to another, four times) and the weights; the percentage is of the same round, because the machine's
speed varies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptpathways import core
from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._transfer import SIZE
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

MOVES = (
    ("fully sharded", "tensor parallel"),
    ("rows", "columns"),
    ("rows", "rows"),
    ("copies", "copies"),
)
"""From which layout to which; the first has the goal."""

GOAL = 70.0
"""Per cent of the plain copy's rate."""

COPIES = 4
"""Plain copies in a row, which take about as long as the weights."""

_MATRIX_MIB = 16
_TIMEOUT_S = 120.0


def _run(options: BenchOptions) -> list[Record]:
    size = options.cluster(hosts=4, devices_per_host=2)
    if size.hosts % 2 or size.hosts * size.devices_per_host < 4:
        raise core.InvalidOption(
            "workload reshard needs an even number of hosts and two devices in each half, "
            f"got {size.hosts} hosts with {size.devices_per_host} devices"
        )
    mebibytes = options.choose(256, 64)
    setting = Setting("reshard", size.hosts, size.device_count)
    records: list[Record] = []
    links: list[float] = []
    arguments = (str(size.hosts), str(size.devices_per_host), str(mebibytes // _MATRIX_MIB))
    with Child("ptpathways.bench._reshard_process", *arguments) as child:
        for number, (source, target) in enumerate(MOVES):
            child.ask({"do": "lay out", "source": source, "target": target}, _TIMEOUT_S)
            sends = ("captured", "lazily") if number == 0 else ("captured",)
            variants = {do: _seconds(child, do) for do in ("link", *sends)}
            found = interleave(variants, repeats=options.repeats_or(15, 3), warm_up=4)
            child.ask({"do": "check"}, _TIMEOUT_S)
            link = [COPIES * SIZE / seconds / 1e9 for seconds in found["link"]]
            links += link
            for do in sends:
                how = "" if do == "captured" else ", not captured"
                records += figures(setting, f"{source} to {target}{how}", mebibytes * 2**20, found[do], link)
    return [setting.record(OURS, "plain copy, worker to worker", "GB/s", links), *records]


def _seconds(child: Child, do: str) -> Measure:
    return lambda: float(child.ask({"do": do}, _TIMEOUT_S)["seconds"])


def figures(setting: Setting, variant: str, size: int, seconds: Sequence[float], link: Sequence[float]) -> list[Record]:
    """Records of one move of ``size`` bytes (each weight counted once) from its rounds' seconds, and the plain copy's
    GB/s in the same rounds."""
    rates = [size / value / 1e9 for value in seconds]
    shares = [100 * rate / of for rate, of in zip(rates, link, strict=True)]
    return [
        setting.record(OURS, variant, "ms", [value * 1e3 for value in seconds]),
        setting.record(OURS, variant, "GB/s", rates),
        setting.record(OURS, f"{variant}: of the plain copy's rate", "%", shares),
    ]


RESHARD = Workload(
    "reshard",
    "256 MiB of weights from a slice of 2 hosts to one of 2 other hosts that has another layout: ms, GB/s (each weight "
    "counted once), and per cent of a plain copy from worker to worker; the values are checked",
    _run,
    {f"{' to '.join(MOVES[0])}: of the plain copy's rate": Goal(GOAL, at_least=True)},
)
