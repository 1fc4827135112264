"""``stages``: a program of 1 to 128 stages on as many hosts, dispatched in parallel or one after the other (Fig. 7).

Stage k adds to a scalar and sends it to the host of stage k+1. In parallel: one program; every host prepares all its
stages at once, before their inputs exist. Sequential: a program for each stage, which the client submits when it has
heard that the one before is done. One item at a time, so that nothing hides the dispatch; computations per second.

Real: worker processes, at most 4; further stages go round them. Simulated: a host for each stage; a computation takes
5 us and a message between hosts 2 us, and the control plane is the real one.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import numpy as np

from ptpathways import core
from ptpathways.bench._harness import interleave
from ptpathways.bench._hlo import add_chain
from ptpathways.bench._programs import pipeline
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

if TYPE_CHECKING:
    from ptpathways.native import Program, Session

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_REAL_HOSTS = 4
_COMPUTE_US = 5.0
_LATENCY_US = 2.0
_TIMEOUT_S = 60.0


class _Stages:
    """The same stages as one program and as one for each."""

    def __init__(self, session: Session, devices: list[int], count: int, seconds: float, expected: float) -> None:
        function = session.register(add_chain(1), "mlir", name="stage")
        places = [devices[stage % len(devices)] for stage in range(count)]
        self._session, self._seconds, self._count = session, seconds, count
        self._whole = pipeline(session, "all stages", function, places)
        nexts = [*places[1:], None]
        self._single = [
            pipeline(session, f"stage {number}", function, [place], after)
            for number, (place, after) in enumerate(zip(places, nexts, strict=True))
        ]
        for program in (self._whole, *self._single):
            program.wait_ready(_TIMEOUT_S)
        self._argument = session.put_sharded([np.zeros((), np.float32)], [places[0]])
        for programs in ([self._whole], self._single):
            value = self._pass(programs).fetch(_TIMEOUT_S)[0]
            if value != expected:
                raise RuntimeError(f"{count} stages must give {expected}, got {value}")

    def rate(self, parallel: bool) -> float:
        """Computations per second."""
        programs = [self._whole] if parallel else self._single
        passes, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < self._seconds:
            self._pass(programs)
            passes += 1
        return passes * self._count / spent

    def _pass(self, programs: list[Program]):  # type: ignore[no-untyped-def]
        value = self._argument
        for program in programs:
            (value,) = self._session.run_program(program, (value,))
            value.wait(_TIMEOUT_S)
        return value


def _measure(
    session: Session, hosts: int, kind: str, count: int, options: BenchOptions, simulated: bool
) -> list[Record]:
    devices = [host["first_device"] for host in session.hosts()]
    seconds = options.choose(5, 2) / 10
    stages = _Stages(session, devices, count, seconds, expected=0.0 if simulated else float(count))
    names = {f"parallel, {kind}": True, f"sequential, {kind}": False}
    variants = {name: functools.partial(stages.rate, parallel) for name, parallel in names.items()}
    values = interleave(variants, repeats=options.repeats_or(5, 2))
    setting = Setting("stages", hosts, hosts, {"stages": count})
    records = [setting.record(OURS, name, "computations/s", values[name]) for name in variants]
    ratios = [one / other for one, other in zip(*values.values(), strict=True)]
    return [*records, setting.record(OURS, f"parallel against sequential, {kind}", "x", ratios)]


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import local, simulated

    counts = (1, 4, 16) if options.quick else COUNTS
    hosts = options.hosts or _REAL_HOSTS
    records: list[Record] = []
    with local.start(core.Options(hosts=hosts)) as cluster:
        for count in counts:
            records += _measure(cluster.session, hosts, "real", count, options, simulated=False)
    made_up = core.Simulated(
        hosts=counts[-1], devices_per_host=1, islands=counts[-1], cost_us=_COMPUTE_US, latency_us=_LATENCY_US
    )
    with simulated.start(core.Options(simulated=made_up)) as cluster:
        for count in counts:
            records += _measure(cluster.session, count, "simulated", count, options, simulated=True)
    return records


STAGES = Workload(
    "stages",
    "a program of 1 to 128 stages that each send to the next: computations per second with parallel and with "
    "sequential dispatch, on real and on simulated hosts (Fig. 7)",
    _run,
    {("parallel against sequential, simulated", 64): Goal(3, at_least=True)},
    axis="stages",
)
