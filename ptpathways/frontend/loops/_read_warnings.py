"""Lines that wait for the devices at every step, told of once: what it costs, and what to do instead."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

from ptpathways.frontend.base import _locator
from ptpathways.frontend.loops import _step

FIRST = 3
"""Waits of a line that are not counted: they compile."""
WAITS_MIN = 5
SHARE_MIN = 0.05
SECONDS_MIN = 0.02


class WaitWarning(UserWarning):
    """Warns that a line waits for a device value at every step (``item()``, ``float(tensor)``, ``if tensor:``).

    Given once per line, when at least 5 steps after its first 3 waits have waited there, in total for at least 20 ms
    and a twentieth of the time.
    """


@dataclass(slots=True)
class _Line:
    count: int = 0
    since: float = 0.0
    seconds: float = 0.0
    told: bool = False
    cuts: int = -1


@dataclass(frozen=True, slots=True)
class Notice:
    """What there is to tell of a line."""

    count: int
    mean_s: float
    share: float
    """Of the time since."""


class Lines:
    """The waits of each line. Pure: the caller has the clock."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], _Line] = {}

    def note(self, line: tuple[str, int], began: float, ended: float, cuts: int) -> Notice | None:
        """A wait at ``line``, in seconds of one clock, after so many ``cuts``; what to tell, once per line.

        Of waits without a cut between them only the first counts: a loop that reads what it has kept holds up nothing.
        """
        this = self._lines.setdefault(line, _Line())
        if this.cuts == cuts:
            return None
        this.cuts = cuts
        this.count += 1
        if this.told or this.count < FIRST:
            return None
        if this.count == FIRST:
            this.since = ended
            return None
        this.seconds += ended - began
        count, elapsed = this.count - FIRST, ended - this.since
        if count < WAITS_MIN or this.seconds < max(SECONDS_MIN, SHARE_MIN * elapsed):
            return None
        this.told = True
        return Notice(count, this.seconds / count, min(1.0, this.seconds / elapsed))


_lines: Lines | None = None


def register(mode: str) -> None:
    """Begins, unless ``mode`` is ``ignore``."""
    global _lines
    _lines = None if mode == "ignore" else Lines()


def note(began: float) -> None:
    """The user's line has waited since ``began`` (``time.perf_counter``)."""
    if _lines is None:
        return
    ended = time.perf_counter()
    frame = _locator.user_frame()
    if frame is None:
        return
    filename, line = frame.f_code.co_filename, frame.f_lineno
    notice = _lines.note((filename, line), began, ended, _step.cut_count())
    if notice is not None:
        warnings.warn_explicit(
            f"this line reads a value of the devices at every step and waits for it: {notice.mean_s * 1e3:.1f} ms "
            f"each, {100 * notice.share:.0f}% of the time, in {notice.count} steps. Until it has the value, nothing "
            'further is submitted. For metrics use pw.log({"loss": loss}), which never waits; or read every n-th step '
            "only (docs/metrics.md)",
            WaitWarning,
            filename,
            line,
        )
