"""The judge finds what is wrong, and nothing else; and the table adds up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos import report
from tests.chaos.judge import Seen, judge, wrong_values
from tests.chaos.plan import Expectation, Fault

SURVIVED = Expectation("survived")
NAMED = Expectation("named", "HostLost", "host 'b'", 5.0)
REFUSED = Expectation("refused", "CheckpointError", "host '[ab]'")
COLLECTED = Expectation("collected", names="is gone")
REFERENCE = {n: {"step": n, "count": n, "loss": f"{n}", "crc": n} for n in range(1, 9)}


def steps(*numbers: int, **other: Any) -> list[dict[str, Any]]:
    return [{"step": n, "count": n, "loss": f"{n}", "crc": n, **other} for n in numbers]


def seen(**fields: Any) -> Seen:
    return Seen(Fault("kill", "b"), **{"begun_s": 10.0, "ended_s": 12.0, **fields})


def test_right_values_are_right() -> None:
    assert wrong_values(steps(3, 4, 5), REFERENCE, 2) == []
    assert wrong_values([], REFERENCE, 2) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (steps(3, 5), "step 5 came after step 3"),
        (steps(3, 3), "step 3 came after step 3"),
        (steps(3, count=4), "the counter on the devices says 4"),
        (steps(3, loss="0"), "loss 0 instead of 3"),
        (steps(3, crc=0), "crc 0 instead of 3"),
        ([{"step": 3, "count": 3, "loss": "3"}], "crc None instead of 3"),
    ],
)
def test_each_kind_of_wrong_value_is_found(lines: list[dict[str, Any]], said: str) -> None:
    (found, *_) = wrong_values(lines, REFERENCE, 2)
    assert said in found


def test_a_loop_that_goes_on() -> None:
    verdict = judge(seen(steps=[(11.0, {}), (12.5, {})], noticed_s=14.0), SURVIVED, [])
    assert (verdict.outcome, verdict.detected_s, verdict.resumed_s, verdict.right) == ("survived", 4.0, 0.5, True)
    assert verdict.steps_meanwhile == 1
    assert not judge(seen(), SURVIVED, ["step 3"]).right
    assert not judge(seen(leftovers=["segment"]), SURVIVED, []).right
    assert not judge(seen(error=(11.0, "HostLost", "host 'b'")), SURVIVED, []).right


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ((11.0, "HostLost", "host 'b' is lost"), "named"),
        ((16.0, "HostLost", "host 'b' is lost"), "late"),
        ((11.0, "HostLost", "host 'a' is lost"), "misnamed"),
        ((11.0, "RuntimeError", "host 'b' is lost"), "misnamed"),
        (None, "survived"),
    ],
)
def test_a_loop_that_is_to_end_by_name(error: tuple[float, str, str] | None, outcome: str) -> None:
    verdict = judge(seen(error=error), NAMED, [])
    assert verdict.outcome == outcome and verdict.right == (outcome == "named")


def test_a_hang_is_a_hang_whatever_else_was_said() -> None:
    assert judge(seen(hung="a step", error=(11.0, "HostLost", "host 'b'")), NAMED, []).outcome == "hang"


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"refusal": (11.0, "CheckpointError", "host 'a': no space")}, "refused"),
        ({"refusal": (11.0, "CheckpointError", "host 'a'"), "allowed_later": False}, "not allowed later"),
        ({"refusal": (11.0, "PathwaysError", "host 'a'")}, "misnamed"),
        ({}, "not refused"),
    ],
)
def test_what_there_is_no_room_for(fields: dict[str, Any], outcome: str) -> None:
    verdict = judge(seen(**fields), REFUSED, [])
    assert verdict.outcome == outcome and verdict.right == (outcome == "refused")


def test_a_client_that_was_killed() -> None:
    assert judge(seen(collected_s=10.5), COLLECTED, []).right
    assert judge(seen(collected_s=17.0), COLLECTED, []).outcome == "late"
    assert judge(seen(), COLLECTED, []).outcome == "not collected"


def test_percentiles() -> None:
    assert report.percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert report.percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert report.percentile([5.0], 0.99) == 5.0


def test_the_table_adds_up_and_failures_are_listed() -> None:
    verdicts = [
        judge(seen(error=(11.0, "HostLost", "host 'b'")), NAMED, []),
        judge(seen(error=(11.0, "HostLost", "host 'a'")), NAMED, []),
        judge(seen(hung="a step"), NAMED, []),
        judge(seen(collected_s=10.5), COLLECTED, ["step 4: loss"]),
    ]
    lines = report.table(verdicts).splitlines()
    assert lines[-1] == "| all | 4 | 1 | 1 | 1.00, 1.00 | - | 1 | 1 | 0 | 1 |"
    assert lines[2] == lines[-1].replace("all", "kill")
    found = report.failures(verdicts)
    assert len(found) == 3 and "got misnamed; HostLost: host 'a'" in found[0] and "step 4: loss" in found[2]
