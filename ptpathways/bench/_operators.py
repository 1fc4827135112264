"""``operators``: convolutions, their gradients and matrix products on a CPU device, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from ptpathways.bench._child import Child
from ptpathways.bench._harness import Measure, interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Workload

XLAS = f"{OURS}, without oneDNN"
EAGER = "eager PyTorch"

_PROCESS = "ptpathways.bench._operators_process"
_BLOCK_S = 0.2
"""What is timed at once takes about as long, but for what is slower."""
_CALLS_MAX = 200
_TOLERANCE = 1e-3


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.bench._operator_cases import cases  # here: it imports torch, which a list of workloads need not

    setting = Setting("operators", 1, 1)
    records: list[Record] = []
    with ExitStack() as stack:
        children = {
            OURS: stack.enter_context(Child(_PROCESS, "ours")),
            XLAS: stack.enter_context(Child(_PROCESS, "ours", environment={"PTPATHWAYS_ONEDNN": "off"})),
            EAGER: stack.enter_context(Child(_PROCESS, "eager")),
        }
        for name, which in cases():
            seconds = _measure(children, name, which, options.repeats_or(7, 3))
            records += figures(f"{name}: {which}", setting, seconds)
    return records


def _measure(children: Mapping[str, Child], name: str, which: str, repeats: int) -> dict[str, list[float]]:
    request = {"name": name, "pass": which, "calls": 1}
    first = {system: child.ask(request) for system, child in children.items()}
    check_sums(name, {system: answer["sum"] for system, answer in first.items()})

    def measure(child: Child) -> Measure:
        seconds = child.ask(request)["seconds"]
        calls = max(1, min(_CALLS_MAX, round(_BLOCK_S / seconds)))
        return lambda: float(child.ask({**request, "calls": calls})["seconds"])

    return interleave({system: measure(child) for system, child in children.items()}, repeats=repeats)


def check_sums(name: str, sums: Mapping[str, float]) -> None:
    """Raises ``RuntimeError`` unless all are alike: everyone computed the same operator of the same numbers."""
    spread = max(sums.values()) - min(sums.values())
    if spread > _TOLERANCE * max(1.0, *map(abs, sums.values())):
        raise RuntimeError(f"the systems must agree on the sum of {name} to within {_TOLERANCE:g}, got {dict(sums)}")


def figures(variant: str, setting: Setting, seconds: Mapping[str, Sequence[float]]) -> list[Record]:
    """Milliseconds of each system, and how many times as fast as eager PyTorch ours are, from the same rounds."""
    records = [
        setting.record(system, variant, "ms", [value * 1e3 for value in values]) for system, values in seconds.items()
    ]
    for system in (OURS, XLAS):
        ratios = [theirs / mine for mine, theirs in zip(seconds[system], seconds[EAGER], strict=True)]
        records.append(setting.record(system, f"{variant}, times {EAGER}", "x", ratios))
    return records


OPERATORS = Workload(
    "operators",
    "convolutions (dense, grouped, depthwise), their gradients and matrix products on one CPU device, with and without "
    "oneDNN, against eager PyTorch: milliseconds and the ratios",
    _run,
)
