"""``dispatch``: how fast, and how soon, a trivial computation is done, on one device and on many hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ptpathways.bench._harness import interleave
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._scale import measure_scale
from ptpathways.bench._stats import quantile
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

if TYPE_CHECKING:
    from ptpathways.native import Buffer, Function, Session

ADD_ONE = b"""module @add_one {
  func.func public @main(%a: tensor<f32>) -> tensor<f32> {
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %sum = stablehlo.add %a, %one : tensor<f32>
    return %sum : tensor<f32>
  }
}"""
"""A float32 scalar plus one: what is measured is everything but the computation."""

OP_BY_OP_GOALS = {1: 40_000, 2: 30_000, 4: 18_000, 8: 8_000}
CHAINED_GOALS = {1: 120_000, 2: 60_000, 4: 30_000, 8: 15_000}
TRIP_GOALS = {1: 90, 8: 700}
"""By hosts: computations per second, and microseconds."""

_TIMEOUT_S = 60.0
_DEVICE = 0


class Add:
    """The computation and its argument on the device."""

    def __init__(self, session: Session, runs: int, trips: int) -> None:
        self.session = session
        self.runs = runs
        self.trips = trips
        self.function: Function = session.register(ADD_ONE, "mlir", name="add_one")
        self.argument: Buffer = session.put(np.float32(1.0), _DEVICE)
        (result,) = session.run(self.function, [self.argument], _DEVICE)
        value = result.result(_TIMEOUT_S)
        if value != 2.0:
            raise RuntimeError(f"1 + 1 must be 2 on the device, got {value}")

    def pipelined_cpp(self) -> float:
        """Runs per second: submitted in a loop in C++, then waited for."""
        return self.runs / self.session.bench_pipelined(self.function, [self.argument], _DEVICE, self.runs)

    def pipelined_python(self) -> float:
        """Runs per second: submitted by a Python loop that drops each result's handle, then waited for."""
        arguments = [self.argument]
        start = time.perf_counter()
        for _ in range(self.runs):
            self.session.run(self.function, arguments, _DEVICE)
        self.session.drain(_TIMEOUT_S)
        return self.runs / (time.perf_counter() - start)

    def round_trip_cpp(self) -> float:
        """Median microseconds from submitting to knowing that the value exists."""
        return quantile(self.session.bench_round_trip(self.function, [self.argument], _DEVICE, self.trips), 0.5) * 1e6

    def round_trip_python(self) -> float:
        """The same, of a Python loop."""
        arguments = [self.argument]
        seconds = []
        for _ in range(self.trips):
            start = time.perf_counter()
            self.session.run(self.function, arguments, _DEVICE)[0].wait(_TIMEOUT_S)
            seconds.append(time.perf_counter() - start)
        return quantile(seconds, 0.5) * 1e6


def _one_device(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import local

    size = options.cluster(hosts=1)
    with local.start(size) as cluster:
        add = Add(cluster.session, runs=options.choose(20_000, 2_000), trips=options.choose(3_000, 300))
        variants = {
            "pipelined, C++": add.pipelined_cpp,
            "pipelined, Python": add.pipelined_python,
            "round trip, C++": add.round_trip_cpp,
            "round trip, Python": add.round_trip_python,
        }
        values = interleave(variants, repeats=options.repeats_or(7, 2))
    setting = Setting("dispatch", size.hosts, size.device_count)
    units = {name: "runs/s" if name.startswith("pipelined") else "us" for name in variants}
    return [setting.record(OURS, name, units[name], values[name]) for name in variants]


def _run(options: BenchOptions) -> list[Record]:
    return ([] if options.allreduce else _one_device(options)) + measure_scale("dispatch", options)


DISPATCH = Workload(
    "dispatch",
    "a scalar addition on one device, and on every one of 1 to 8 hosts: computations per second, one call each or "
    "chained by 128, and microseconds from submitting to done (Fig. 5)",
    _run,
    {
        "pipelined, C++": Goal(20_000, at_least=True),
        "pipelined, Python": Goal(20_000, at_least=True),
        "round trip, C++": Goal(120, at_least=False),
        "round trip, Python": Goal(120, at_least=False),
        **{("OpByOp", hosts): Goal(goal, at_least=True) for hosts, goal in OP_BY_OP_GOALS.items()},
        **{("Chained", hosts): Goal(goal, at_least=True) for hosts, goal in CHAINED_GOALS.items()},
        "OpByOp: times the loop of gloo": Goal(1, at_least=True),
        "Chained: times the loop of gloo": Goal(1, at_least=True),
        "Fused: times the loop of gloo": Goal(1, at_least=True),
        **{("round trip p50", hosts): Goal(goal, at_least=False) for hosts, goal in TRIP_GOALS.items()},
    },
    axis="hosts",
    compares=True,
)
