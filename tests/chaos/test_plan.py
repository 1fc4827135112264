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
    count = len(plan.cells())
    faults = plan.rounds(3)
    for _ in range(3):
        one = [(fault.kind, fault.target) for fault in itertools.islice(faults, count)]
        assert sorted(one) == sorted(plan.cells())
    assert {kind for kind, _ in plan.cells()} == set(plan.KINDS)
    assert {target for kind, target in plan.cells() if kind == "blackhole"} == set(plan.LINKS)
    assert {target for kind, target in plan.cells() if kind == "kill"} == {*plan.MEMBERS, plan.BOTH_CONTROLLERS}


def test_six_rounds_are_300_faults() -> None:
    assert 6 * len(plan.cells()) >= 300


def test_pauses_and_blackholes_are_shorter_than_what_is_survived() -> None:
    assert all(fault.seconds <= 30 for fault in itertools.islice(plan.rounds(5), 1000))


def test_the_short_part_has_every_kind_but_long_pauses() -> None:
    for seed in range(20):
        assert {fault.kind for fault in plan.short(seed)} == set(plan.KINDS) - {"stop 12 s"} - {"slow reader"}


@pytest.mark.parametrize("kind", ["reset", "garbage", "blackhole"])
def test_a_connection_is_no_member(kind: str) -> None:
    assert all(plan.expectation(Fault(kind, link)) == plan.SURVIVED for link in plan.LINKS)


def test_a_death_is_named_and_a_pause_survived() -> None:
    assert plan.expectation(Fault("kill", "a")).names == "host 'a'"
    assert plan.expectation(Fault("kill", "controller")) == plan.SURVIVED
    assert plan.expectation(Fault("kill", plan.BOTH_CONTROLLERS)).error == "ConnectionFailed"
    assert plan.expectation(Fault("kill", "client")).outcome == "collected"
    assert plan.expectation(Fault("stop 12 s", "a")) == plan.SURVIVED
    assert plan.expectation(Fault("garbage", "stranger at a")) == plan.SURVIVED
