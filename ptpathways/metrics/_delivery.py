"""Delivery: a thread that fetches values and hands them to sinks, in the order in which they were logged."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptpathways import core, frontend
from ptpathways.metrics._sinks import Sink

if TYPE_CHECKING:
    import torch

PROBLEMS_MAX = 100


@dataclass(slots=True)
class Entry:
    """The values of one name: one mean from a device, or all values of a window."""

    name: str
    first: int
    last: int
    values: list[Any]

    @property
    def steps(self) -> str:
        return f"step {self.last}" if self.first == self.last else f"steps {self.first} to {self.last}"


@dataclass(slots=True)
class Parcel:
    """What goes to the sinks at once; ``flushed`` is set when all before it was."""

    step: int = 0
    entries: list[Entry] = field(default_factory=list)
    flushed: threading.Event | None = None


class Delivery:
    """The thread, and what it leaves for others to see. ``send``, ``flush`` and the rest: from any thread.

    A value that cannot be had, and a sink that raises, become a line of ``problems``, which the program's own thread
    takes to warn of them.
    """

    def __init__(self) -> None:
        self._parcels: queue.SimpleQueue[Parcel] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sinks: list[Sink] = []
        self._failed: set[int] = set()
        self._problems: list[str] = []
        self._latest: dict[str, float] = {}
        self._latest_step = 0
        self._thread: threading.Thread | None = None

    def set_sinks(self, sinks: Sequence[Sink]) -> list[Sink]:
        """From the next parcel on; those of before, which the caller closes."""
        with self._lock:
            old, self._sinks = self._sinks, list(sinks)
            self._failed.clear()
        return old

    def latest(self) -> tuple[int, dict[str, float]]:
        """The last step, and for each name the value that was delivered last, the most recent name at the end."""
        with self._lock:
            return self._latest_step, dict(self._latest)

    def take_problems(self) -> list[str]:
        """What went wrong since the last time."""
        with self._lock:
            taken, self._problems = self._problems, []
        return taken

    def send(self, parcel: Parcel) -> None:
        """Delivers it after those before; returns at once."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="pw-metrics", daemon=True)
                self._thread.start()
        self._parcels.put(parcel)

    def flush(self, timeout_s: float) -> None:
        """Waits until everything sent before has been delivered.

        Raises:
            DeadlineExceeded: it has not.
        """
        if self._thread is None:
            return
        done = threading.Event()
        self.send(Parcel(flushed=done))
        if not done.wait(timeout_s):
            raise core.DeadlineExceeded(
                f"metrics were not delivered within {timeout_s:g} s: their values are not computed yet, or a sink "
                f"({', '.join(type(sink).__name__ for sink in self._sinks)}) does not come back"
            )

    def _run(self) -> None:
        while True:
            parcel = self._parcels.get()
            if parcel.flushed is None:
                self._deliver(parcel)
                continue
            for sink in self._sinks_now():
                self._call(sink, sink.flush)
            parcel.flushed.set()

    def _deliver(self, parcel: Parcel) -> None:
        values = self._values(parcel.entries)
        if not values:
            return
        with self._lock:
            for name, value in values.items():
                self._latest.pop(name, None)
                self._latest[name] = value  # at the end: the order tells what is recent
            self._latest_step = max(parcel.step, self._latest_step)
        for sink in self._sinks_now():
            self._call(sink, sink.write, parcel.step, values)

    def _values(self, entries: Sequence[Entry]) -> dict[str, float]:
        try:
            numbers = _numbers([value for entry in entries for value in entry.values])
        except Exception:
            numbers = []
        values = {}
        for entry in entries:
            try:
                own = numbers[: len(entry.values)] if numbers else _numbers(entry.values)
                numbers = numbers[len(entry.values) :]
                values[entry.name] = sum(own) / len(own)
            except Exception as error:
                self._report(f"{entry.name!r} of {entry.steps} has no value: {error}")
        return values

    def _call(self, sink: Sink, method: Any, *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:
            with self._lock:
                known = id(sink) in self._failed
                self._failed.add(id(sink))
            if not known:
                self._report(
                    f"the sink {type(sink).__name__} failed, and further failures of it will not be told: "
                    f"{type(error).__name__}: {error}"
                )

    def _report(self, text: str) -> None:
        with self._lock:
            if len(self._problems) < PROBLEMS_MAX:
                self._problems.append(text)

    def _sinks_now(self) -> list[Sink]:
        with self._lock:
            return list(self._sinks)


def _numbers(values: Sequence[Any]) -> list[float]:
    """Each as a number; values of devices in one fetch."""
    tensors: list[torch.Tensor] = [value for value in values if not isinstance(value, float | frontend.Future)]
    fetched = iter(frontend.fetch_beside(tensors) if tensors else ())
    numbers = []
    for value in values:
        if isinstance(value, frontend.Future):
            value = value.result()
        elif not isinstance(value, float):
            value = next(fetched)
        numbers.append(float(value))
    return numbers
