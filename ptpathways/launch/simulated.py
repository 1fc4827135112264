"""A simulated cluster inside this process: an embedded controller, and hosts whose devices only keep time.

Nothing is started beside the process, so nothing can be left behind.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ptpathways import core, native


@dataclass(frozen=True, slots=True)
class Interval:
    """A device computed from ``start_us`` to ``end_us``.

    From ``arrived_us`` to ``start_us`` it stood still, waiting for the rest of its gang.
    """

    device: int
    client: int
    program: str
    node: str
    run: int
    arrived_us: float
    start_us: float
    end_us: float


class Trace:
    """What every simulated device did when. Times are microseconds of the clock ``time.monotonic``."""

    def __init__(self, recorded: native.SimulatedTrace) -> None:
        self._recorded = recorded

    def __len__(self) -> int:
        return len(self._recorded)

    @property
    def dropped(self) -> int:
        """Intervals that were not kept, for there were too many."""
        return self._recorded.dropped

    def intervals(self) -> list[Interval]:
        """All intervals, in the order in which they ended."""
        found = []
        for device, client, program, node, run, *times in self._recorded.intervals():
            found.append(Interval(device, client, program, node, run, *(time * 1e-3 for time in times)))
        return found

    def busy_us(self, devices: Sequence[int] | None = None) -> dict[int, float]:
        """Microseconds computed per client, summed over ``devices`` (default: all)."""
        wanted = None if devices is None else set(devices)
        total: dict[int, float] = defaultdict(float)
        for interval in self.intervals():
            if wanted is None or interval.device in wanted:
                total[interval.client] += interval.end_us - interval.start_us
        return dict(total)

    def save(
        self, path: str | os.PathLike[str], *, from_ms: float = 0.0, to_ms: float = 0.0, max_devices: int = 32
    ) -> None:
        """Writes JSON for Chrome's ``about:tracing`` and https://ui.perfetto.dev, or a picture if the name ends in svg.

        The picture shows the first ``max_devices`` devices that did anything, from ``from_ms`` to ``to_ms`` (0: all).

        Raises:
            InvalidOption: the name ends neither in .json nor in .svg.
        """
        path = Path(path)
        if path.suffix == ".json":
            path.write_text(self._recorded.to_chrome_json())
        elif path.suffix == ".svg":
            path.write_text(self._recorded.to_svg(from_ms=from_ms, to_ms=to_ms, max_devices=max_devices))
        else:
            raise core.InvalidOption(f"a trace is saved as .json or .svg, got {str(path)!r}")


class SimulatedCluster:
    """Controller, simulated hosts and this process's session. Made by ``start``."""

    def __init__(self, controller: native.Controller, hosts: native.SimulatedCluster, session: native.Session) -> None:
        self.controller = controller
        self.hosts = hosts
        """The native hosts: ``set_cost``, ``lose_host``, ``stats``."""
        self.session = session
        """This process's connection."""
        self._closed = False

    def connect(self, name: str, timeout_s: float = 10.0) -> native.Session:
        """One more client of this cluster, in this process."""
        with native.translated():
            return native.Session.connect("", name, timeout_s)

    def trace(self, *, clear: bool = False) -> Trace:
        """What the devices did so far, or since the last call with ``clear``."""
        return Trace(self.hosts.trace(clear=clear))

    def close(self, reason: str = "the program ended") -> None:
        """Ends it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.session.close(reason)
        self.controller.close(reason)
        self.hosts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close("the program left its cluster")


def start(options: core.Options) -> SimulatedCluster:
    """Starts the cluster that ``options.simulated`` describes, and joins it.

    Raises:
        InvalidOption: ``options.simulated`` is not set.
        AlreadyInitialized: this process has an embedded controller.
        ConnectionFailed, DeadlineExceeded: the hosts were not admitted.
    """
    spec = options.simulated
    if spec is None:
        raise core.InvalidOption("option simulated must say what to simulate, got None")
    native.load()
    with native.translated():
        controller = native.Controller(
            {
                "bind": [],
                "embedded": True,
                "expected_hosts": [f"host{index}" for index in range(spec.hosts)],
                "log_level": options.log_level,
            }
        )
    hosts: native.SimulatedCluster | None = None
    try:
        with native.translated():
            hosts = native.SimulatedCluster(
                {
                    "hosts": spec.hosts,
                    "devices_per_host": spec.devices_per_host,
                    "islands": spec.islands,
                    "memory_bytes": spec.memory_bytes,
                    "compile_us": float(spec.compile_us),
                    "cost_us": spec.default_cost_us,
                    "costs_us": [(pattern, float(cost)) for pattern, cost in spec.costs_us],
                    "collective_us": float(spec.collective_us),
                    "rendezvous": spec.rendezvous,
                    "latency_us": float(spec.latency_us),
                    "bandwidth_gbs": float(spec.bandwidth_gbs),
                    "local_bandwidth_gbs": float(spec.local_bandwidth_gbs),
                },
                options.startup_timeout_s,
            )
            session = native.Session.connect("", core.random_name("client"), options.startup_timeout_s)
    except BaseException:
        controller.close("the simulated cluster did not start")
        if hosts is not None:
            hosts.close()
        raise
    return SimulatedCluster(controller, hosts, session)
