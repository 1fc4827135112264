"""``log``: metrics of a loop that must not wait for them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import core, frontend
from ptpathways.metrics._delivery import Delivery, Entry, Parcel
from ptpathways.metrics._sinks import Sink
from ptpathways.metrics._window import Window, Windows

if TYPE_CHECKING:
    import torch

EVERY = 10
SHUTDOWN_TIMEOUT_S = 30.0


class MetricsWarning(UserWarning):
    """Warns that a logged value could not be computed or fetched, or that a sink failed. Training continues."""


class Log:
    """Windows of values, those of them that are full, and their delivery. One per process; calls from any thread.

    A full window is averaged by one small computation of its own, submitted when a cut has come between, so that all
    its values are computed or under way, and nothing is added to the computation of the user's step.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._windows = Windows()
        self._full: list[tuple[int, int, dict[str, Window]]] = []  # (cuts at that time, step, windows)
        self._delivery = Delivery()
        self._every = EVERY

    def to(self, *sinks: Sink, every: int | None = None) -> None:
        """Sends metrics to ``sinks`` from now on, and no longer to those before, which are closed.

        Args:
            every: how many values of a name are averaged to one that is sent; default: as before, at first 10.

        Raises:
            TypeError: something is no sink; ``every`` is no whole number.
            ValueError: ``every`` is less than 1.
        """
        for sink in sinks:
            if not isinstance(sink, Sink) or isinstance(sink, type):
                raise TypeError(
                    "metrics go to TensorBoard(...), Callback(...), JsonLines(...), or an object with write(step, "
                    f"values), flush() and close(), got {sink!r}"
                )
        every = None if every is None else core.whole_number(every, "every", least=1)
        self.flush()
        with self._lock:
            self._every = every or self._every
            self._windows = Windows()
            old = self._delivery.set_sinks(sinks)
        for sink in old:
            if sink not in sinks:
                sink.close()
        frontend.at_shutdown(self._end)

    def log(self, values: Mapping[str, Any], step: int | None = None, *, every: int | None = None) -> None:
        """Logs metrics of a step, and returns at once: nothing is fetched here, and the trace is not cut.

        The values of a name are averaged on the device over ``every`` calls, fetched by another thread, and given to
        the sinks (``pw.metrics.to``) with the number of the last step, in order. What is not yet a full window is
        sent by ``pw.metrics.flush()``, and at the end of the program.

        Args:
            values: by name a tensor of one element, on a device or the CPU, or a number.
            step: the step's number; default: how often the name has been logged.
            every: for these values; 1: each is sent as it is, as fits a figure that comes once per epoch.

        Raises:
            TypeError, ValueError: a value is no number; the message names it. A name, ``step`` or ``every`` is none.
            NotInitialized: a tensor on a device, without a cluster.
        """
        every = None if every is None else core.whole_number(every, "every", least=1)
        if not isinstance(values, Mapping):
            raise TypeError(f'pw.log takes values by name, as in pw.log({{"loss": loss}}), got {values!r}')
        if (unnamed := next((name for name in values if not isinstance(name, str) or not name), None)) is not None:
            raise TypeError(f'pw.log takes values by name, a text, as in pw.log({{"loss": loss}}), got {unnamed!r}')
        step = None if step is None else core.whole_number(step, "step")
        kept = {name: _kept(name, value) for name, value in values.items()}
        with self._lock:
            self._warn()
            self.submit()
            full = self._windows.add(kept, step, every or self._every)
            if full:
                cuts = frontend.cut_count() if _has_tensors(full) else -1
                self._full.append((cuts, max(window.last for window in full.values()), full))
                frontend.at_cuts(self.submit)
                frontend.at_shutdown(self._end)
                if cuts < 0:
                    self.submit()

    def submit(self) -> None:
        """Sends the full windows whose values are computed or under way."""
        if not self._full or frontend.is_recording():
            return
        with self._lock:
            now = frontend.cut_count()
            while self._full and self._full[0][0] < now:
                _, step, windows = self._full.pop(0)
                entries = _entries(windows)
                try:
                    _average(entries)
                finally:  # PyTorch/XLA may tell here that a step has failed: that is raised, and the values say it, too
                    self._delivery.send(Parcel(step, entries))

    def flush(self, timeout_s: float = 60.0) -> None:
        """Sends everything logged so far, windows that are not full, too, and waits until it has been delivered.

        Raises:
            DeadlineExceeded: not within ``timeout_s`` seconds.
        """
        timeout_s = core.check_seconds(timeout_s)
        with self._lock:
            open_windows = self._windows.take()
            parcels = [(step, windows) for _, step, windows in self._full]
            self._full = []
            by_step: dict[int, dict[str, Window]] = {}
            for name, window in open_windows.items():
                by_step.setdefault(window.last, {})[name] = window
            parcels += sorted(by_step.items())
            for step, windows in parcels:
                entries = _entries(windows)
                try:
                    frontend.settle([value for entry in entries for value in entry.values if _is_tensor(value)])
                finally:
                    self._delivery.send(Parcel(step, entries))
        try:
            self._delivery.flush(timeout_s)
        finally:
            self._warn()

    def latest(self) -> tuple[int, dict[str, float]]:
        """The last step, and for each name the last value, that was delivered. Never waits."""
        return self._delivery.latest()

    def _warn(self) -> None:
        for problem in self._delivery.take_problems():
            warnings.warn(problem, MetricsWarning, stacklevel=4)  # the caller of the door

    def _end(self) -> None:
        """The cluster is about to be left."""
        try:
            self.flush(SHUTDOWN_TIMEOUT_S)
        except Exception as error:
            warnings.warn(f"metrics may be missing at the end: {error}", MetricsWarning, stacklevel=2)
        for sink in self._delivery.set_sinks(()):
            sink.close()


def _kept(name: str, value: Any) -> Any:
    """A number, a future, or the snapshot of a tensor on a device."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.is_complex():
            raise ValueError(
                f"pw.log takes tensors of one real number, got {name!r} of shape {list(value.shape)} and type "
                f"{value.dtype}; log its mean(), or several names"
            )
        return frontend.snapshot(value) if value.device.type == "xla" else float(value)
    if isinstance(value, frontend.Future):
        if value.shape.numel() != 1:
            raise ValueError(f"pw.log takes futures of one number, got {name!r} of shape {list(value.shape)}")
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"pw.log takes numbers and tensors of one number, got {name!r} = {value!r}") from None


def _is_tensor(value: Any) -> bool:
    return not isinstance(value, float | frontend.Future)


def _has_tensors(windows: Mapping[str, Window]) -> bool:
    return any(_is_tensor(value) for window in windows.values() for value in window.values)


def _entries(windows: Mapping[str, Window]) -> list[Entry]:
    return [Entry(name, window.first, window.last, window.values) for name, window in windows.items()]


def _average(entries: Sequence[Entry]) -> None:
    """Replaces the values of each entry that is all on one device by their mean, submitted."""
    by_device: dict[Any, list[Entry]] = {}
    for entry in entries:
        devices = {value.device for value in entry.values if _is_tensor(value)}
        if len(entry.values) > 1 and len(devices) == 1 and all(map(_is_tensor, entry.values)):
            by_device.setdefault(devices.pop(), []).append(entry)
    for group in by_device.values():
        means: list[torch.Tensor] = frontend.submit_means([entry.values for entry in group])
        for entry, mean in zip(group, means, strict=True):
            entry.values = [mean]
