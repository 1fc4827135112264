"""``parity``: the smallest computation that keeps all devices of 16 and of 512 simulated hosts busy (Fig. 6).

Each computation is a gang over all devices, one call for each (OpByOp), each on what the one before gave. A system with
no controller would run them back to back; we reach parity where the devices are busy 95% of the time. Four devices a
host, as in the paper's larger cluster; the control plane is the real one, devices only keep time.

Also: how long one call takes from the client to the queue of the last host, when nothing else is going on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ptpathways import core
from ptpathways.bench._hlo import add_chain
from ptpathways.bench._programs import chain
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._workload import OURS, BenchOptions, Goal, Workload

if TYPE_CHECKING:
    from ptpathways.launch.simulated import SimulatedCluster
    from ptpathways.native import Buffer, Program

HOSTS = (16, 512)
_DEVICES_PER_HOST = 4
_BUSY = 0.95
_FROM_MS, _TO_MS, _STEP = 0.0625, 64.0, 2**0.25
_TIMEOUT_S = 60.0


class _Gang:
    """One-node programs over all devices of a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._session = cluster, cluster.session
        self._devices = list(range(cluster.session.device_count))
        zeros = [np.zeros((), np.float32)] * len(self._devices)
        self._argument = self._session.put_sharded(zeros, self._devices)
        self._argument.wait(_TIMEOUT_S)

    def program(self, compute_ms: float) -> Program:
        """Ready to run."""
        name = f"compute_{compute_ms:g}"
        self._cluster.hosts.set_cost(name, compute_ms * 1e3)
        function = self._session.register(add_chain(1), "mlir", name=name)
        program = chain(self._session, name, function, self._devices, 1)
        program.wait_ready(_TIMEOUT_S)
        return program

    def busy(self, compute_ms: float, seconds: float) -> float:
        """Which part of the time devices compute, with calls as fast as the system takes them."""
        program = self.program(compute_ms)
        self._calls(program, 3)
        count = max(20, round(seconds / (compute_ms / 1e3)))
        start = time.perf_counter()
        self._calls(program, count)
        return count * compute_ms / 1e3 / (time.perf_counter() - start)

    def reach_ms(self, program: Program) -> float:
        """From calling until the last host has queued the computation."""
        start = time.monotonic_ns()
        (result,) = self._session.run_program(program, (self._argument,))
        result.wait(_TIMEOUT_S)
        return (self._cluster.hosts.stats()["last_enqueue_ns"] - start) / 1e6

    def _calls(self, program: Program, count: int) -> None:
        held: Buffer = self._argument
        for _ in range(count):
            (held,) = self._session.run_program(program, (held,))
        held.wait(_TIMEOUT_S)


def smallest(busy: dict[float, float]) -> float:
    """The smallest computation from which on every larger one reaches parity, or infinity.

    ``busy``: part of the time by milliseconds of a computation.
    """
    found = float("inf")
    for compute_ms in sorted(busy, reverse=True):
        if busy[compute_ms] < _BUSY:
            break
        found = compute_ms
    return found


def _search(gang: _Gang, seconds: float) -> float:
    """Doubles until parity, then goes back in steps of a fourth of a doubling."""
    busy: dict[float, float] = {}
    compute_ms = _FROM_MS
    while compute_ms <= _TO_MS:
        busy[compute_ms] = gang.busy(compute_ms, seconds)
        if busy[compute_ms] >= _BUSY:
            break
        compute_ms *= 2
    for _ in range(3):
        compute_ms /= _STEP
        if busy.get(compute_ms, 1.0) < _BUSY or compute_ms < _FROM_MS:
            break
        busy[compute_ms] = gang.busy(compute_ms, seconds)
        if busy[compute_ms] < _BUSY:
            break
    return smallest(busy)


def _run(options: BenchOptions) -> list[Record]:
    from ptpathways.launch import simulated

    records: list[Record] = []
    for hosts in (options.hosts,) if options.hosts else HOSTS:
        made_up = core.Simulated(hosts=hosts, devices_per_host=_DEVICES_PER_HOST, islands=1)
        with simulated.start(core.Options(simulated=made_up)) as cluster:
            gang = _Gang(cluster)
            found = [_search(gang, options.choose(5, 2) / 10) for _ in range(options.repeats_or(3, 1))]
            tiny = gang.program(0.01)
            reach = [gang.reach_ms(tiny) for _ in range(options.choose(200, 20))][5:]
        setting = Setting("parity", hosts, hosts * _DEVICES_PER_HOST, {"hosts": hosts})
        records.append(setting.record(OURS, "smallest computation at parity", "ms", found))
        records.append(setting.record(OURS, "call to last host's enqueue", "ms", reach))
    return records


PARITY = Workload(
    "parity",
    "simulated hosts: the smallest computation over all devices that keeps them busy (Fig. 6), and how long a call "
    "takes to reach the last host",
    _run,
    {
        ("smallest computation at parity", 16): Goal(0.5, at_least=False),
        ("smallest computation at parity", 512): Goal(8, at_least=False),
        ("call to last host's enqueue", 512): Goal(5, at_least=False),
    },
    axis="hosts",
)
