"""``progress``: a loop's progress, its speed and its metrics, shown by another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from ptpathways import core, frontend
from ptpathways.metrics import _display
from ptpathways.metrics._log import Log
from ptpathways.metrics._rates import Rates, Sample

T = TypeVar("T")

_ASK_TIMEOUT_S = 5.0


class Progress(Generic[T]):
    """A loader that shows the progress of loops over it. Made by ``progress``.

    Its length and all other attributes are those of the loader.
    """

    def __init__(self, loader: Iterable[T], description: str, lines_every_s: float, log: Log) -> None:
        if not isinstance(loader, Iterable):
            raise TypeError(f"pw.progress takes a loader, or anything else to iterate over, got {loader!r}")
        lines_every_s = core.check_seconds(lines_every_s, "lines_every_s")
        core.check_text(description, "description")
        self._loader = loader
        self._description = description
        self._lines_every_s = lines_every_s
        self._log = log

    def __iter__(self) -> Iterator[T]:
        shown = _Shown(_display.choose(self._description, self._lines_every_s), self._total(), self._log)
        try:
            for batch in self._loader:
                yield batch
                shown.samples += _rows(batch)
                shown.batches += 1
        finally:
            shown.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader's own: TypeError if it has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    def _total(self) -> int | None:
        try:
            return len(self)
        except (TypeError, NotImplementedError):
            return None


class _Shown:
    """Counts of one iteration, and the thread that shows them. The loop's thread only counts."""

    def __init__(self, display: _display.Display, total: int | None, log: Log) -> None:
        self.batches = 0
        self.samples = 0
        self._display = display
        self._total = total
        self._log = log
        self._rates = Rates(_device_count())
        self._asks = True
        self._stop = threading.Event()
        self._rates.add(self._sample())
        self._thread = threading.Thread(target=self._run, name="pw-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * _ASK_TIMEOUT_S)
        self._show()
        self._display.close()

    def _run(self) -> None:
        while not self._stop.wait(self._display.interval_s):
            self._show()

    def _show(self) -> None:
        self._rates.add(self._sample())
        _, metrics = self._log.latest()
        self._display.show(self.batches, self._total, self._rates.text(metrics))

    def _sample(self) -> Sample:
        return Sample(time.monotonic(), self.batches, self.samples, _waited(), self._computed())

    def _computed(self) -> float | None:
        if not self._asks:
            return None
        try:
            return frontend.device_seconds(_ASK_TIMEOUT_S)
        except core.PathwaysError:  # also when there is no cluster: a bar shows what it can
            self._asks = False
            return None


def _waited() -> float:
    try:
        return frontend.wait_stats().seconds
    except core.PathwaysError:
        return 0.0


def _device_count() -> int:
    try:
        return frontend.cluster().device_count
    except core.PathwaysError:
        return 1


def _rows(batch: Any) -> int:
    """Rows of a batch: the first dimension of its first tensor that has one; 0: nobody knows."""
    import torch

    for leaf in frontend.flatten_batch(batch)[0]:
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    return 0
