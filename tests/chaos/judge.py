"""What came of a fault: a pure function of what was seen, what was to be expected, and the values without faults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.plan import Expectation, Fault

Step = Mapping[str, Any]
"""A line of the loop's: step, count, loss, and of some crc."""


@dataclass(slots=True)
class Seen:
    """What was seen of one fault. Times are of one clock, in seconds."""

    fault: Fault
    begun_s: float
    ended_s: float
    """When it was over, or all of it was done."""
    steps: list[tuple[float, Step]] = field(default_factory=list)
    """Since the fault before, with when they were told."""
    error: tuple[float, str, str] | None = None
    """Of the loop, which ended by it: when, class, message."""
    refusal: tuple[float, str, str] | None = None
    """Of what was asked for."""
    allowed_later: bool = True
    """What was refused is allowed when there is room again."""
    noticed_s: float | None = None
    """When a log named the one concerned."""
    collected_s: float | None = None
    """When the controller's log said that the client is gone."""
    hung: str = ""
    """What was waited for, in vain."""
    leftovers: list[str] = field(default_factory=list)
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    fault: Fault
    outcome: str
    """"survived", "named", "misnamed", "late", "refused", "not refused", "collected", "not collected", "hang"."""
    expected: str
    detected_s: float | None
    """From the fault to the error, the refusal, or the first line of a log about it."""
    resumed_s: float | None
    """From the end of the fault to the next step."""
    wrong: tuple[str, ...]
    leftovers: tuple[str, ...]
    load: float
    steps_meanwhile: int
    """Of the loop, from the beginning of the fault to its end: few, where it stood in the loop's way."""
    why: str = ""

    @property
    def right(self) -> bool:
        return self.outcome == self.expected and not self.wrong and not self.leftovers


def wrong_values(steps: Sequence[Step], reference: Mapping[int, Step], before: int) -> list[str]:
    """What differs from a run without faults. ``before``: the number of the step before the first."""
    found = []
    for step in steps:
        number = step["step"]
        if number != before + 1:
            found.append(f"step {number} came after step {before}")
        before = number
        if step["count"] != number:
            found.append(f"step {number}: the counter on the devices says {step['count']}")
        found += [
            f"step {number}: {what} {step.get(what)} instead of {reference[number].get(what)}"
            for what in ("loss", "crc")
            if step.get(what) != reference[number].get(what)
        ]
    return found


def judge(seen: Seen, expected: Expectation, wrong: Sequence[str]) -> Verdict:
    """``wrong``: as ``wrong_values`` of the steps."""
    resumed = next((at_s for at_s, _ in seen.steps if at_s > seen.ended_s), None)
    outcome, detected_s, why = _outcome(seen, expected)
    return Verdict(
        seen.fault,
        outcome,
        expected.outcome,
        None if detected_s is None else max(0.0, detected_s - seen.begun_s),
        None if resumed is None else resumed - seen.ended_s,
        tuple(wrong),
        tuple(seen.leftovers),
        seen.load,
        sum(seen.begun_s < at_s <= seen.ended_s for at_s, _ in seen.steps),
        why,
    )


def _outcome(seen: Seen, expected: Expectation) -> tuple[str, float | None, str]:
    if seen.hung:
        return "hang", None, f"waited in vain for {seen.hung}"
    if expected.outcome == "collected":
        if seen.collected_s is None:
            return "not collected", None, "the controller's log does not say that the client is gone"
        late = seen.collected_s - seen.begun_s > expected.within_s
        return "late" if late else "collected", seen.collected_s, ""
    if seen.error is not None:
        at_s, name, message = seen.error
        if name != expected.error or not re.search(expected.names, message, re.DOTALL):
            return "misnamed", at_s, f"{name}: {message}"
        late = at_s - seen.begun_s > expected.within_s
        return "late" if late else "named", at_s, message if late else ""
    if expected.outcome == "refused":
        return _refusal(seen, expected)
    return "survived", seen.noticed_s, ""


def _refusal(seen: Seen, expected: Expectation) -> tuple[str, float | None, str]:
    if seen.refusal is None:
        return "not refused", None, "what there was no room for was done"
    at_s, name, message = seen.refusal
    if name != expected.error or not re.search(expected.names, message, re.DOTALL):
        return "misnamed", at_s, f"{name}: {message}"
    if not seen.allowed_later:
        return "not allowed later", at_s, message
    return "refused", at_s, ""
