"""How long the client waited: the one number that says whether a loop is asynchronous."""

from __future__ import annotations

from dataclasses import dataclass

from ptpathways.frontend.base import _state
from ptpathways.frontend.xla import _xla


@dataclass(frozen=True, slots=True)
class WaitStats:
    """Totals of the waits of this process since ``init``; the difference of two covers the time between them."""

    seconds: float
    """Seconds waited, all threads together."""
    count: int
    """Number of waits."""

    def __sub__(self, earlier: WaitStats) -> WaitStats:
        return WaitStats(self.seconds - earlier.seconds, self.count - earlier.count)


def wait_stats() -> WaitStats:
    """Returns how long, and how often, threads of this process waited for the devices.

    Reads (``item()``, ``print``) wait, and so does a submission while too much is in flight.

        before = pw.wait_stats()
        ...
        waited = pw.wait_stats() - before

    Raises:
        NotInitialized: before ``init``.
    """
    this = _state.runtime()
    if this.connection is not None:
        return WaitStats(*this.connection.wait_stats())
    metric = _xla.binding()._xla_metric_data("TransferFromDeviceTime")
    if metric is None:
        return WaitStats(0.0, 0)
    fetches, fetch_ns, _ = metric
    return WaitStats(fetch_ns * 1e-9, int(fetches))
