"""Metrics without waiting: values averaged on the devices, fetched by another thread, given to sinks; and progress.

    pw.metrics.to(pw.metrics.TensorBoard("runs/1"))
    for x, y in pw.progress(loader):
        ...
        pw.log({"loss": loss})

See ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ptpathways.metrics._log import EVERY, Log, MetricsWarning
from ptpathways.metrics._progress import Progress
from ptpathways.metrics._sinks import Callback, JsonLines, Sink, TensorBoard

__all__ = [
    "EVERY",
    "Callback",
    "JsonLines",
    "MetricsWarning",
    "Progress",
    "Sink",
    "TensorBoard",
    "flush",
    "latest",
    "log",
    "progress",
    "to",
]

T = TypeVar("T")

_log = Log()


def to(*sinks: Sink, every: int | None = None) -> None:
    """Sends metrics to ``sinks`` from now on, and no longer to those before, which are flushed and closed.

    Args:
        every: how many values of a name are averaged to one that is sent; default: as before, at first 10.

    Raises:
        TypeError: something is no sink; ``every`` is no whole number.
        ValueError: ``every`` is less than 1.
        DeadlineExceeded: what was logged before cannot be delivered.
    """
    _log.to(*sinks, every=every)


def log(values: Mapping[str, Any], step: int | None = None, *, every: int | None = None) -> None:
    """Logs metrics of a step, and returns at once: nothing is fetched here, and the trace is not cut.

    The values of a name are averaged on the device over ``every`` calls, fetched by another thread, and given to the
    sinks (``pw.metrics.to``) with the number of the last step, in order. What is not yet a full window is sent by
    ``pw.metrics.flush()``, and at the end of the program.

    Args:
        values: by name a tensor of one element, on a device or the CPU, or a number.
        step: the step's number; default: how often the name has been logged.
        every: for these values, instead of what ``pw.metrics.to`` said; 1: each is sent as it is, as fits a figure
            that comes once per epoch.

    Raises:
        TypeError, ValueError: a value is no number; the message names it. A name, ``step`` or ``every`` is none.
        NotInitialized: a tensor on a device, without a cluster.
        RuntimeError: PyTorch/XLA reports here that an earlier submission failed.
    """
    _log.log(values, step, every=every)


def flush(timeout_s: float = 60.0) -> None:
    """Sends everything logged so far, windows that are not full, too, and waits until the sinks have it.

    Raises:
        DeadlineExceeded: not within ``timeout_s`` seconds.
    """
    _log.flush(timeout_s)


def latest() -> dict[str, float]:
    """For each name the value that was delivered last. Never waits."""
    return _log.latest()[1]


def progress(loader: Iterable[T], description: str = "", *, lines_every_s: float = 10.0) -> Progress[T]:
    """Shows how a loop over ``loader`` goes on: ``for x, y in pw.progress(loader)``.

    Batches done, samples per second, the metrics that were delivered last, the share of the time in which the devices
    computed for this process, and the share in which the client waited for them. A bar on a terminal, a renewed line
    in a notebook, else a line on stderr every ``lines_every_s`` seconds. The loop itself only counts; all is asked and
    shown by a thread.
    """
    return Progress(loader, description, lines_every_s, _log)
