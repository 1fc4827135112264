"""bench: plans and modules of the workloads, parity's search, shares and their picture, the stages of rivals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptpathways.bench import _hlo, _parity, _shares
from ptpathways.bench._plot import draw_trace
from ptpathways.bench._programs import _chain_plan, _pipeline_plan
from ptpathways.bench.peers.runner import ITEMS, STAGE_S, STAGES, ideal_seconds, stage_places


def test_a_chain_runs_every_node_on_its_own_devices_and_frees_what_is_between() -> None:
    plan = _chain_plan(3, [(4, 8), (5, 9)], 3)
    assert plan["host"] == 3
    assert all(slot["shards"] == [4, 5] and slot["devices"] == [8, 9] for slot in plan["slots"])
    executed = [(step["arguments"], step["results"]) for step in plan["steps"] if step["kind"] == "execute"]
    assert executed == [([0], [1]), ([1], [2]), ([2], [3])]
    assert [step["slots"] for step in plan["steps"] if step["kind"] == "free"] == [[1], [2]]
    assert (plan["inputs"], plan["outputs"]) == ([0], [3])


def _kinds(plan: Any) -> list[str]:
    return [step["kind"] for step in plan["steps"]]


def test_neighbouring_stages_of_a_pipeline_send_only_between_hosts() -> None:
    hosts, places = {0: 0, 1: 1}, [0, 0, 1, 1]
    plans: list[Any] = [_pipeline_plan(host, hosts, places, 4) for host in (0, 1)]
    first, second = plans
    assert _kinds(first) == ["execute", "execute", "free", "send", "free"]
    assert _kinds(second) == ["receive", "execute", "free", "execute", "free"]
    send, receive = first["steps"][3], second["steps"][0]
    assert (send["channel"], send["host"]) == (1, 1)
    assert [(piece["channel"], piece["host"]) for piece in receive["pieces"]] == [(1, 0)]
    assert (first["inputs"], first["outputs"]) == ([0], [-1])
    assert (second["inputs"], second["outputs"]) == ([-1], [second["steps"][3]["results"][0]])


def test_a_stage_alone_delivers_to_the_next() -> None:
    hosts = {0: 0, 1: 1}
    first, second = (_pipeline_plan(host, hosts, [0, 1], 1) for host in (0, 1))
    assert _kinds(first) == ["execute", "send", "free"]
    assert _kinds(second) == ["receive"] and second["outputs"] == [0]


def test_a_pipeline_back_to_the_first_host_keeps_the_argument() -> None:
    plan = _pipeline_plan(0, {0: 0, 1: 1}, [0, 1, 0], 3)
    freed = [slot for step in plan["steps"] if step["kind"] == "free" for slot in step["slots"]]
    assert plan["inputs"][0] not in freed and plan["outputs"][0] not in freed
    assert _kinds(plan) == ["execute", "send", "free", "receive", "execute", "free"]


def test_modules_say_what_they_do() -> None:
    assert _hlo.add_chain(128).count(b"stablehlo.add") == 128
    assert b"microseconds = 2400 : i64" in _hlo.waiting(2.4e-3)
    reduce = _hlo.all_reduce(4, 2)
    assert reduce.count(b'all_reduce"') == 2 and b"dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>" in reduce
    assert b"num_partitions = 4" in reduce


@pytest.mark.parametrize(("hosts", "places"), [(4, [0, 0, 1, 1, 2, 2, 3, 3]), (1, [0] * 8), (8, list(range(8)))])
def test_stages_are_dealt_to_hosts_in_blocks(hosts: int, places: list[int]) -> None:
    assert stage_places(hosts) == places
    assert ideal_seconds(hosts) == pytest.approx(ITEMS * STAGES / hosts * STAGE_S)


def test_hosts_that_do_not_divide_the_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="divide 8 stages, got 3"):
        stage_places(3)


@pytest.mark.parametrize(
    ("busy", "found"),
    [
        ({1.0: 0.5, 2.0: 0.97, 4.0: 0.99}, 2.0),
        ({1.0: 0.96, 2.0: 0.90, 4.0: 0.99}, 4.0),  # luck does not count
        ({1.0: 0.5}, float("inf")),
    ],
)
def test_parity_is_the_smallest_computation_that_every_larger_one_confirms(
    busy: dict[float, float], found: float
) -> None:
    assert _parity.smallest(busy) == found


def test_shares_are_told_with_how_far_they_are_off() -> None:
    answers = [[{"finished": 100 * weight} for weight in (1, 2, 4, 8)], [{"finished": n} for n in (110, 190, 400, 800)]]
    records = {record.variant: record for record in _shares._records((1, 2, 4, 8), answers, 2.0)}
    assert records["1:2:4:8, client 4 (asked 53.3%)"].median == pytest.approx(100 * 8 / 15)
    assert records["1:2:4:8, client 1: off its share by"].median == pytest.approx(5.0)
    assert records["1:2:4:8: device in use"].median == pytest.approx(75.0)
    goals = _shares.SHARES.goals
    assert "1:2:4:8, client 1: off its share by" in goals and len(goals) == 8


def test_a_trace_has_a_row_for_each_client(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_trace({"one": [1.001, 1.002], "two": [1.5]}, [1.0, 1.0], 1e-3, 0.06, tmp_path / "trace.svg")
    drawn = (tmp_path / "trace.svg").read_text()
    assert drawn.count("<!-- one -->") == 1 and drawn.count("<!-- two -->") == 1
