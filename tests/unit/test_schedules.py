"""Schedules: every rule, many sizes, time against theory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptpathways import core, schedules
from ptpathways.schedules import Action, Costs, Kind, Size

RANKS = st.integers(1, 9)
MICROBATCHES = st.integers(1, 24)
EQUAL = Costs()


def timeline(name: str, size: Size, costs: Costs = EQUAL) -> schedules.Timeline:
    schedule = schedules.find(name)
    return schedules.simulate(schedule.order(size), size, [costs] * size.stages, split=schedule.split)


@given(name=st.sampled_from(schedules.known()), ranks=RANKS, groups=st.integers(1, 5), chunks=st.integers(1, 3))
def test_every_schedule_runs_each_action_once_and_never_deadlocks(
    name: str, ranks: int, groups: int, chunks: int
) -> None:
    size = Size(ranks, ranks * groups, chunks if name in ("gpipe", "interleaved") else 1)
    order = schedules.find(name).order(size)  # verifies
    assert len(schedules.serial(order, size, split=schedules.find(name).split)) == sum(map(len, order))


@given(name=st.sampled_from(["gpipe", "1f1b"]), ranks=RANKS, microbatches=MICROBATCHES)
def test_the_bubble_is_what_theory_says(name: str, ranks: int, microbatches: int) -> None:
    size = Size(ranks, microbatches)
    wanted = (ranks - 1) / (microbatches + ranks - 1)
    assert timeline(name, size).bubble == pytest.approx(wanted)
    assert schedules.find(name).bubble(size, [EQUAL] * ranks) == pytest.approx(wanted)


@given(ranks=RANKS, groups=st.integers(1, 4), chunks=st.integers(1, 4))
def test_interleaving_divides_the_bubble(ranks: int, groups: int, chunks: int) -> None:
    size = Size(ranks, ranks * groups, chunks)
    wanted = (ranks - 1) / (chunks * size.microbatches + ranks - 1)
    assert timeline("interleaved", size).bubble == pytest.approx(wanted)
    assert schedules.find("interleaved").bubble(size, [EQUAL] * size.stages) == pytest.approx(wanted)


@given(ranks=RANKS, more=st.integers(0, 16))
def test_weights_gradients_fill_two_thirds_of_the_bubble(ranks: int, more: int) -> None:
    size = Size(ranks, 2 * ranks + more)
    wanted = (ranks - 1) / (3 * size.microbatches + ranks - 1)
    assert schedules.find("zero-bubble").bubble(size, [EQUAL] * ranks) == pytest.approx(wanted)
    assert timeline("zero-bubble", size).bubble == pytest.approx(wanted)


def test_memory() -> None:
    size = Size(4, 8)
    assert schedules.activations(schedules.find("gpipe").order(size)) == [8, 8, 8, 8]
    assert schedules.activations(schedules.find("1f1b").order(size)) == [4, 3, 2, 1]
    assert max(schedules.activations(schedules.find("zero-bubble").order(size))) <= 4 + 1


def test_orders_are_as_published() -> None:
    names = [[str(action) for action in actions] for actions in schedules.find("1f1b").order(Size(2, 3))]
    assert names == [
        ["F0.0", "F0.1", "B0.0", "F0.2", "B0.1", "B0.2"],
        ["F1.0", "B1.0", "F1.1", "B1.1", "F1.2", "B1.2"],
    ]


def test_transfers_and_unequal_stages_take_time() -> None:
    size, order = Size(2, 1), schedules.find("gpipe").order(Size(2, 1))
    slow = [Costs(1, 1, 1, transfer=0.5), Costs(2, 2, 2, transfer=0.5)]
    assert schedules.simulate(order, size, slow, split=False).length == pytest.approx(1 + 0.5 + 2 + 4 + 0.5 + 2)


def test_what_breaks_a_rule_is_named() -> None:
    size = Size(2, 1)
    forward = [[Action(Kind.FORWARD, stage, 0), Action(Kind.BACKWARD, stage, 0)] for stage in range(2)]
    schedules.verify(forward, size, split=False)
    with pytest.raises(core.PipelineError, match=r"runs F0\.0 2 times"):
        schedules.verify([[forward[0][0], *forward[0]], forward[1]], size, split=False)
    with pytest.raises(core.PipelineError, match=r"never runs B1\.0"):
        schedules.verify([forward[0], forward[1][:1]], size, split=False)
    with pytest.raises(core.PipelineError, match=r"deadlocks: the ranks wait at B0\.0, F1\.0"):
        schedules.verify([forward[0][::-1], forward[1]], size, split=False)
    with pytest.raises(core.PipelineError, match=r"on rank 0; its stage is on rank 1"):
        schedules.verify([forward[1], forward[0]], size, split=False)
    with pytest.raises(core.PipelineError, match="which a step of this size does not have"):
        schedules.verify(forward, size, split=True)


def test_unknown_schedules_and_impossible_sizes() -> None:
    with pytest.raises(core.PipelineError, match="'1f1b', 'gpipe', 'interleaved', 'zero-bubble', got 'best'"):
        schedules.find("best")
    with pytest.raises(core.PipelineError, match="divide, got 6; use 4 or 8"):
        schedules.find("interleaved").order(Size(4, 6, 2))
    with pytest.raises(core.PipelineError, match="got 4 stages on 2 slices"):
        schedules.find("1f1b").order(Size(2, 4, 2))
    with pytest.raises(core.PipelineError, match="got 4 stages on 2 slices"):
        schedules.find("zero-bubble").order(Size(2, 4, 2))


def test_pictures() -> None:
    made = timeline("zero-bubble", Size(3, 4))
    drawn = schedules.text(made, width=60)
    assert len(drawn.splitlines()) == 3 and "F0" in drawn and "I0" in drawn and "W0" in drawn and "·" in drawn
    picture = schedules.svg(made, "planned", unit=" s")
    assert picture.count("<title>") == 3 * 4 * 3 and "backward, weights" in picture and "planned" in picture
