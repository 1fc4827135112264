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
    """Logs metrics of a step and returns at once: it fetches nothing and is not a step boundary.

    The values of a name are averaged on the device over ``every`` calls, fetched by another thread, and given to the
    sinks (``metrics.to``) with the number of the last step, in order. Incomplete windows are sent by
    ``metrics.flush()`` and at the end of the program.

        pw.log({"loss": loss, "lr": scheduler.get_last_lr()[0]})

    Args:
        values: by name, a real tensor of one element on a device or the CPU, a future of one, or a number.
        step: number of the step; default: one more than at the name's last call, from 1.
        every: number of values averaged for one that is sent; default: as set by ``metrics.to``, at first 10. 1 suits
            values that come once per epoch.

    Raises:
        TypeError: ``values`` is not a mapping from names to numbers, or ``step`` or ``every`` is not a whole number.
        ValueError: a tensor or future does not have exactly one real number, or ``every`` is less than 1.
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
    """Returns ``loader`` with a display of its progress: ``for x, y in pw.progress(loader)``.

    It shows the batches done, samples per second, the metrics delivered last, the share of the time in which the
    devices computed for this process, and the share in which the client waited for them: as a bar on a terminal, as one
    output in a notebook, else as lines on standard error. The loop itself only counts; a thread does everything else.

    Args:
        loader: any iterable; its length, if it has one, is the total.
        description: text before the display; default: none.
        lines_every_s: seconds between lines, where neither a terminal nor a notebook shows them.

    Raises:
        TypeError: ``loader`` is not iterable, or another argument has the wrong type.
        ValueError: ``lines_every_s`` is negative or NaN.
    """
    return Progress(loader, description, lines_every_s, _log)
