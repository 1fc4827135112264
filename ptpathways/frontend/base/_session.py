"""The seam to the rooms below: one function that opens a connection, one object that the front end asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways import core, launch, native

if TYPE_CHECKING:
    from ptpathways.launch.simulated import SimulatedCluster
    from ptpathways.native import Session


class Connection:
    """This process's session, and how to end what was started with it."""

    def __init__(self, session: Session, end: Callable[[str], None], simulated: SimulatedCluster | None = None) -> None:
        self.session = session
        self._process = os.getpid()
        self._end = end
        self.simulated = simulated
        """The cluster, when its devices are simulated."""

    @property
    def cluster(self) -> str:
        return self.session.cluster

    def hosts(self) -> list[dict[str, Any]]:
        """Fields of ``Host`` for every host."""
        found = []
        for host in self.session.hosts():
            first = host["first_device"]
            found.append(
                {
                    "name": host["name"],
                    "platform": host["platform"],
                    "island": host["island"],
                    "alive": host["alive"],
                    "devices": tuple(range(first, first + len(host["devices"]))),
                }
            )
        return found

    def wait_stats(self) -> tuple[float, int]:
        """Seconds that callers of this process waited in the native part, and how often."""
        stats = self.session.wait_stats()
        return stats["seconds"], stats["waits"]

    def host_pids(self) -> list[int]:
        """Process ids of the workers, in the order of ``hosts``."""
        return [host["pid"] for host in self.session.hosts()]

    def transfer_stats(self) -> dict[str, int]:
        """Bytes uploaded and fetched by this client, runs submitted, copies from device to device."""
        return {**self.session.transfer_stats()}  # type: ignore[dict-item]

    def drain(self, timeout_s: float) -> None:
        """Waits until everything submitted so far has completed. Raises DeadlineExceeded."""
        with native.translated():
            self.session.drain(timeout_s)

    def raise_failure(self) -> None:
        """Raises the first failure that no error has told of (HostLost, OutOfDeviceMemory, PathwaysError)."""
        with native.translated():
            self.session.take_failure()

    def told(self) -> None:
        """An error was raised: a failure that came before it is known. Of a process that was forked, nothing is."""
        if os.getpid() == self._process:
            with contextlib.suppress(RuntimeError):
                self.session.take_failure()

    def close(self, reason: str) -> None:
        self._end(reason)


def open_connection(options: core.Options) -> Connection:
    """Joins the controller at ``options.address``, or starts an embedded cluster. The session becomes the plugin's.

    Raises:
        ConnectionFailed, VersionMismatch, PluginNotFound, HostLost, DeadlineExceeded.
    """
    if options.simulated is not None:
        from ptpathways.launch import simulated

        cluster = simulated.start(options)
        cluster.session.make_current()
        return Connection(cluster.session, cluster.close, cluster)
    if options.embedded:
        started = launch.start(options)
        session, end = started.session, started.close
    else:
        here = launch.serves(options.address)
        session = launch.connect(
            "" if here else options.address,
            core.random_name("client"),
            options.startup_timeout_s,
            token=options.token or ("" if here else launch.await_token(options.address, options.startup_timeout_s)),
            weight=options.weight,
            priority=options.priority,
        )
        end = session.close
    session.make_current()
    return Connection(session, end)
