"""Times of computations, put together from several hosts, and drawn."""

from __future__ import annotations

import dataclasses

import pytest

from ptpathways import core, programs, schedules
from ptpathways.pipelines import _plan
from ptpathways.programs import Computation

SECOND = 1_000_000_000
MS = 1_000_000


def test_hosts_of_one_machine_share_their_clock() -> None:
    """By how much real time is ahead was read by each host at a moment of its own; between them it does not count."""
    first = (5 * SECOND, [(7, 0, [(0, "f", 3, 1000, 3000)])])
    second = (5 * SECOND + 800, [(7, 0, [(2, "g", 1, 3000, 4500)])])
    (run,) = programs.gather([("m", first), ("m", second)])
    assert run == programs.TimedRun(7, 0, (Computation(0, "f", 3, 0.0, 2.0), Computation(2, "g", 1, 2.0, 3.5)))


def test_machines_are_compared_by_real_time() -> None:
    first = (100 * SECOND, [(7, 0, [(0, "f", 0, 3 * SECOND, 3 * SECOND + MS)])])
    second = (2 * SECOND, [(7, 1, [(2, "g", 0, 101 * SECOND + 2 * MS, 101 * SECOND + 5 * MS)])])
    (run,) = programs.gather([("m", first), ("n", second)])
    assert run.missing == 1
    assert run.computations == (Computation(0, "f", 0, 0.0, 1000.0), Computation(2, "g", 0, 2000.0, 5000.0))


def test_runs_that_a_host_has_forgotten_are_left_out() -> None:
    first = (0, [(number, 0, [(0, "f", 0, 1, 2)]) for number in (5, 6, 7)])
    second = (0, [(number, 0, [(1, "f", 0, 1, 2)]) for number in (9, 7, 6)])
    assert [run.run for run in programs.gather([("m", first), ("m", second)])] == [6, 7]
    assert programs.gather([]) == []


SIZE = schedules.Size(2, 1)
ORDER = schedules.find("gpipe").order(SIZE)
WHOLE = (
    Computation(4, "begin", 0, 0.0, 5.0),
    Computation(4, "step.forward0 (a.py:1)", 1, 5.0, 15.0),
    Computation(6, "forward1", 0, 20.0, 30.0),
    Computation(6, "backward1", 1, 30.0, 50.0),
    Computation(7, "forward1", 0, 21.0, 29.0),  # the slice's second device
    Computation(4, "backward0", 2, 55.0, 75.0),
)


def drawn(*runs: programs.TimedRun) -> _plan.Plan:
    return _plan.measured(ORDER, SIZE, schedules.find("gpipe"), 0.5, [4, 6], runs)


def test_the_last_whole_run_is_drawn() -> None:
    plan = drawn(
        programs.TimedRun(1, 0, WHOLE[:3]),
        programs.TimedRun(2, 0, WHOLE),
        programs.TimedRun(3, 0, WHOLE[:4]),  # it failed
        programs.TimedRun(4, 1, WHOLE),
    )
    assert [(str(span.action), span.rank, span.start, span.end) for span in plan.timeline.spans] == [
        ("F0.0", 0, 0.0, 10.0),
        ("F1.0", 1, 15.0, 25.0),
        ("B1.0", 1, 25.0, 45.0),
        ("B0.0", 0, 50.0, 70.0),
    ]
    assert plan.bubble == pytest.approx(1 - 60 / 140)
    assert "gpipe, measured: 2 stages on 2 slices" in plan.title and plan.unit == "us"


def test_without_a_whole_run_it_says_what_to_do() -> None:
    for runs in ([], [programs.TimedRun(1, 2, WHOLE)]):
        with pytest.raises(core.PipelineError, match=r"no whole step .* is known: .* call measured\(\) again"):
            drawn(*runs)


def test_slices_may_share_a_device() -> None:
    both = tuple(dataclasses.replace(one, device=4) for one in WHOLE if one.device != 7)
    plan = _plan.measured(ORDER, SIZE, schedules.find("gpipe"), 0.5, [4, 4], [programs.TimedRun(1, 0, both)])
    assert [span.rank for span in plan.timeline.spans] == [0, 1, 1, 0]


def test_microbatches_are_told_apart_by_the_order_of_nodes() -> None:
    """CPU devices compute what is ready, so the first one to run need not be the first one of the program."""
    size = schedules.Size(1, 2)
    order = schedules.find("gpipe").order(size)
    ran = (("forward0", 5, 0.0, 1.0), ("forward0", 4, 1.0, 2.0), ("backward0", 6, 2.0, 3.0), ("backward0", 7, 3.0, 4.0))
    run = programs.TimedRun(1, 0, tuple(Computation(0, *one) for one in ran))
    plan = _plan.measured(order, size, schedules.find("gpipe"), 0.5, [0], [run])
    planned = [str(action) for action in order[0]]
    assert [str(span.action) for span in plan.timeline.spans] == [planned[1], planned[0], *planned[2:]]
