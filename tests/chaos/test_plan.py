"""Which fault comes when is a function of the seed, and everything has its turn."""

from __future__ import annotations

import itertools

import pytest

from tests.chaos import plan
from tests.chaos.plan import Fault


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[Fault]:
        return list(itertools.islice(plan.rounds(seed), 200))

    assert first(7) == first(7) and plan.short(7) == plan.short(7)
    assert first(7) != first(8) and plan.short(7) != plan.short(8)


def test_each_round_has_every_kind_on_every_target() -> None:
    count = len(plan.cells()) + 1
    faults = plan.rounds(3)
    paused = []
    for _ in range(4):
        one = [(fault.kind, fault.target) for fault in itertools.islice(faults, count)]
        paused += [target for kind, target in one if kind == "stop 30 s"]
        assert sorted(each for each in one if each[0] != "stop 30 s") == sorted(plan.cells())
    assert sorted(paused) == sorted(plan.MEMBERS)
    assert {kind for kind, _ in plan.cells()} == set(plan.KINDS) - {"stop 30 s"}
    assert {target for kind, target in plan.cells() if kind == "blackhole"} == set(plan.LINKS)
    assert {target for kind, target in plan.cells() if kind == "kill"} == {*plan.MEMBERS, plan.BOTH_CONTROLLERS}


def test_six_rounds_are_300_faults() -> None:
    assert 6 * len(plan.cells()) >= 300


def test_pauses_and_blackholes_are_shorter_than_what_is_survived() -> None:
    assert all(fault.seconds <= 30 for fault in itertools.islice(plan.rounds(5), 1000))


def test_the_short_part_has_every_kind_but_long_pauses() -> None:
    for seed in range(20):
        assert {fault.kind for fault in plan.short(seed)} == set(plan.KINDS) - {"stop 12 s", "stop 30 s"}


@pytest.mark.parametrize("kind", ["reset", "garbage", "blackhole"])
def test_a_connection_is_no_member(kind: str) -> None:
    assert all(plan.expectation(Fault(kind, link)) == plan.SURVIVED for link in plan.LINKS)


def test_a_death_is_named_and_a_pause_survived() -> None:
    assert plan.expectation(Fault("kill", "a")).names == "host 'a'"
    assert plan.expectation(Fault("kill", "controller")) == plan.SURVIVED
    assert plan.expectation(Fault("kill", plan.BOTH_CONTROLLERS)).error == "ConnectionFailed"
    assert plan.expectation(Fault("kill", "client")).outcome == "collected"
    assert all(plan.expectation(Fault(f"stop {seconds} s", "a")) == plan.SURVIVED for seconds in (6, 12, 30))
    assert plan.expectation(Fault("garbage", "stranger at a")) == plan.SURVIVED
