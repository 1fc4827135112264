"""How the ranks of a job meet, and how Slurm's variables are read: no process, no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.launch import _program, _rendezvous, slurm, torchrun
from ptpathways.launch._rendezvous import Answer, Meeting, Rank


class Table:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> str | None:
        return self.values.get(key)


def _rank(rank: int, world_size: int = 2, **changes: object) -> Rank:
    own = Rank(rank, world_size, f"node{rank}", "m", "1.0", "cpu", "plugin (1 bytes)", 2, False)
    return replace(own, **changes)  # type: ignore[arg-type]


def _meeting(store: Table, rank: int, world_size: int = 2, then: Callable[[int], None] | None = None) -> Meeting:
    """``then(n)`` runs while this rank sleeps for the n-th time."""
    clock, naps = core.ManualClock(), iter(range(1_000_000))

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if then is not None:
            then(next(naps))

    return Meeting(store, rank, world_size, clock=clock, sleep=sleep)


def test_ranks_meet_whoever_comes_first() -> None:
    store = Table()
    leader = _meeting(store, 0)

    def lead(nap: int) -> None:
        if nap == 3:
            leader.open(_rank(0))
        elif nap == 5:
            assert [rank.rank for rank in leader.gather(1.0)] == [0, 1]
            leader.answer(Answer(addresses=["tcp://10.0.0.1:1"], token="t"))

    answer = _meeting(store, 1, then=lead).join(_rank(1), 60.0)
    assert answer.addresses == ["tcp://10.0.0.1:1"] and answer.token == "t" and "token" not in repr(answer)


def test_a_restarted_job_does_not_take_an_earlier_answer() -> None:
    store = Table()
    earlier = _meeting(store, 0)
    earlier.open(_rank(0))
    _meeting(store, 1, then=lambda nap: earlier.answer(Answer(token="old"))).join(_rank(1), 60.0)
    earlier.end(1)

    later = _meeting(store, 0)

    def lead(nap: int) -> None:
        if nap == 2:
            later.open(_rank(0))
        elif nap > 2 and nap % 2:
            later.answer(Answer(token="new"))

    member = _meeting(store, 1, then=lead)
    assert member.join(_rank(1), 60.0).token == "new"
    assert member.ended(1.0) is None
    later.end(3)
    assert member.ended(1.0) == 3


def test_an_earlier_run_that_never_answered_is_left_when_a_later_one_opens() -> None:
    store = Table()
    _meeting(store, 0).open(_rank(0))
    later = _meeting(store, 0)

    def lead(nap: int) -> None:
        if nap == 2:
            later.open(_rank(0))
        elif nap == 4:
            assert len(later.gather(1.0)) == 2
            later.answer(Answer(token="new"))

    assert _meeting(store, 1, then=lead).join(_rank(1), 60.0).token == "new"


def test_missing_ranks_are_named_after_the_stated_time() -> None:
    store = Table()
    leader = _meeting(store, 0, 4)
    leader.open(_rank(0, 4))
    store.set("1/rank/2", store.values["1/rank/0"].replace('"rank": 0', '"rank": 2'))
    with pytest.raises(core.DeadlineExceeded, match=r"4 ranks within 120 s, got 2; never heard of rank 1, 3:"):
        leader.gather(120.0)
    with pytest.raises(core.DeadlineExceeded, match="rank 1 expected rank 0's answer within 5 s"):
        _meeting(Table(), 1).join(_rank(1), 5.0)


def test_everybody_hears_why_there_is_no_cluster() -> None:
    store = Table()
    leader = _meeting(store, 0)
    leader.open(_rank(0))
    member = _meeting(store, 1, then=lambda nap: leader.answer(Answer(error="a port is in use")))
    with pytest.raises(core.ConnectionFailed, match="a port is in use"):
        member.join(_rank(1), 60.0)
    assert leader.failure() == ""
    member.fail("no plugin")
    assert leader.failure() == "no plugin"


@pytest.mark.parametrize(
    ("other", "islands", "said"),
    [
        (_rank(1), 1, ""),
        (_rank(1), 2, ""),
        (_rank(1, version="2.0"), 2, "same ptpathways version, got 1.0 on rank 0 (on node0) and 2.0 on rank 1"),
        (_rank(1, world_size=3), 1, "same world size, got 2 on rank 0 (on node0) and 3 on rank 1"),
        (_rank(1, platform="cuda"), 1, "same platform"),
        (_rank(1, platform="cuda"), 2, ""),
        (_rank(1, plugin="plugin (2 bytes)"), 1, "same plugin"),
        (_rank(1, devices=4), 1, ""),
        (_rank(1, devices=4), 2, ""),
        (_rank(1), 3, "islands must be from 1 to the number of ranks (2), got 3"),
    ],
)
def test_ranks_that_do_not_fit_together(other: Rank, islands: int, said: str) -> None:
    problem = _rendezvous.disagreement([_rank(0), other], islands)
    assert said in problem and bool(said) == bool(problem)


def test_accelerators_of_an_island_are_as_many_on_every_rank() -> None:
    ranks = [_rank(0, platform="tpu"), _rank(1, platform="tpu", devices=4)]
    said = "number of devices, got 2 on rank 0 (on node0) and 4 on rank 1 (on node1)"
    assert said in _rendezvous.disagreement(ranks, 1) and not _rendezvous.disagreement(ranks, 2)


def test_islands_are_neighbours() -> None:
    assert [_rendezvous.island_of(rank, 5, 2) for rank in range(5)] == ["island0"] * 3 + ["island1"] * 2


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("node1", ["node1"]),
        ("a,b", ["a", "b"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[08-10,12],login", ["gpu08", "gpu09", "gpu10", "gpu12", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
    ],
)
def test_slurms_lists_of_nodes(nodes: str, names: list[str]) -> None:
    assert slurm.node_names(nodes) == names


def test_what_slurm_says() -> None:
    environment = {
        "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n1",
    }  # fmt: skip
    assert slurm.started_by_slurm(environment)
    place = slurm.place_of(environment)
    assert (place.rank, place.world_size, place.local_rank, place.towards) == (3, 4, 1, "n2")
    with pytest.raises(core.InvalidOption, match="SLURM_NTASKS"):
        slurm.place_of({"SLURM_PROCID": "0"})
    with pytest.raises(core.InvalidOption, match="list of nodes"):
        slurm.place_of({**environment, "SLURM_STEP_NODELIST": "n[1-"})


def test_what_torchrun_says() -> None:
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    assert torchrun.place_of(environment).world_size == 2
    with pytest.raises(core.InvalidOption, match="MASTER_PORT"):
        torchrun.place_of({**environment, "MASTER_PORT": ""})
    with pytest.raises(core.InvalidOption, match="must be numbers"):
        torchrun.place_of({**environment, "RANK": "first"})


def test_a_folder_where_ranks_meet_is_private(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    store = slurm.open_store(str(tmp_path), environment)
    assert store.get("1/answer") is None
    store.set("1/answer", "secret")
    store.set("1/ended", "0")
    assert store.get("1/answer") == "secret"
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o600}
    store.forget_secrets()
    assert store.get("1/answer") is None and store.get("1/ended") == "0"
    store.folder.chmod(0o750)
    with pytest.raises(core.InvalidOption, match="--meet"):
        store.set("1/answer", "secret")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0), (SystemExit(), 0), (SystemExit(0), 0), (SystemExit(7), 7), (SystemExit("no"), 1),
        (ValueError(), 1), (KeyboardInterrupt(), 130), (SystemExit(True), 1),
    ],
)  # fmt: skip
def test_exit_codes_are_pythons(error: BaseException | None, code: int) -> None:
    assert _program.code_of(error) == code
