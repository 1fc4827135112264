"""What a progress display says, from what was counted so far. Pure: the caller has the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW_S = 10.0
METRICS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """What was counted at a time, all since the start."""

    time: float
    """Seconds."""
    batches: int
    samples: int
    """Rows of the batches; 0 where batches have none."""
    waited_s: float
    """By the client, for the devices."""
    computed_s: float | None
    """By all devices together; None: not known."""


@dataclass(slots=True)
class Rates:
    """Rates over about the last ``WINDOW_S`` seconds.

    Args:
        devices: how many share ``computed_s``.
    """

    devices: int = 1
    _samples: deque[Sample] = field(default_factory=deque)

    def add(self, sample: Sample) -> None:
        """Adds what is known now."""
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].time <= sample.time - WINDOW_S:
            self._samples.popleft()

    def text(self, metrics: Mapping[str, float]) -> str:
        """``812 samples/s, loss 0.531, devices busy 83%, client waits 2%``; what is not known is left out.

        Args:
            metrics: the most recent at the end.
        """
        parts = []
        first, last = (self._samples[0], self._samples[-1]) if self._samples else (None, None)
        seconds = last.time - first.time if first is not None and last is not None else 0.0
        if first is not None and last is not None and seconds > 0:
            counts = (last.samples - first.samples, "samples") if last.samples else None
            amount, unit = counts or (last.batches - first.batches, "batches")
            parts.append(f"{_rate(amount / seconds)} {unit}/s")
        parts += [f"{name} {value:.4g}" for name, value in list(metrics.items())[-METRICS_SHOWN:]]
        if first is not None and last is not None and seconds > 0:
            if last.computed_s is not None and first.computed_s is not None:
                busy = (last.computed_s - first.computed_s) / seconds / self.devices
                parts.append(f"devices busy {_percent(busy)}")
            parts.append(f"client waits {_percent((last.waited_s - first.waited_s) / seconds)}")
        return ", ".join(parts)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f}%"
