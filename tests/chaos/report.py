"""The table of a campaign: rates and times for each kind of fault."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence

from tests.chaos.judge import Verdict
from tests.chaos.plan import KINDS

_HEAD = (
    "fault", "times", "went on", "failed by name", "noticed after s (p50, p99)", "went on after s (p50, p99)", "hangs",
    "wrong values", "leftovers", "otherwise",
)  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(verdicts: Sequence[Verdict]) -> str:
    """Markdown, one line for each kind, and one for all."""
    rows = [_row(kind, [each for each in verdicts if each.fault.kind == kind]) for kind in KINDS]
    rows.append(_row("all", verdicts))
    return "\n".join(["| " + " | ".join(_HEAD) + " |", "| --- " * len(_HEAD) + "|", *rows])


def _row(name: str, verdicts: Sequence[Verdict]) -> str:
    def count(*outcomes: str) -> int:
        return sum(each.outcome in outcomes for each in verdicts)

    went_on, named = count("survived", "collected"), count("named", "refused")
    cells = [
        name,
        len(verdicts),
        went_on,
        named,
        _times([each.detected_s for each in verdicts if each.detected_s is not None]),
        _times([each.resumed_s for each in verdicts if each.resumed_s is not None]),
        count("hang"),
        sum(bool(each.wrong) for each in verdicts),
        sum(bool(each.leftovers) for each in verdicts),
        len(verdicts) - went_on - named - count("hang"),
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _times(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.2f}, {percentile(values, 0.99):.2f}" if values else "-"


def failures(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each fault that did not come out as it should."""
    found = []
    for number, each in enumerate(verdicts):
        if each.right:
            continue
        said = f"{number}: {each.fault}: expected {each.expected}, got {each.outcome}"
        parts = [said, each.why, *each.wrong[:3], *each.leftovers]
        found.append("; ".join(part for part in parts if part))
    return found


def surroundings(verdicts: Sequence[Verdict]) -> str:
    """The machine and its load, on one line."""
    loads = [each.load for each in verdicts] or [0.0]
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, load (1 min) "
        f"{percentile(loads, 0.5):.1f} in the median and {max(loads):.1f} at most"
    )
