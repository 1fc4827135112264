"""The plugin under PyTorch/XLA: the scenarios of plugin_scenarios.py, each group in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import limited, needs_native, outcome_of

PROGRAM = Path(__file__).with_name("plugin_scenarios.py")
pytestmark = [needs_native, limited]


def ask(group: str, scenario: str) -> Any:
    """What a scenario gave; its group runs once."""
    result = outcome_of(PROGRAM, group)[scenario]
    assert not (isinstance(result, dict) and "error" in result), result["error"]
    return result


# What the plugin does not offer, and why that is right.
NOT_OFFERED = {
    "device.clear_memory_stats": "peaks are the worker's, shared by all clients",
    "compile.cost_analysis": "XLA's CPU plugin has none",
    "topology.deserialize": "a topology is that of a running cluster",
    "topology.client_free_compile": "programs are compiled by workers",
    "buffer.opaque_device_pointer": "buffers lie in other processes",
}


def test_pypjrts_conformance_suite_finds_no_fault() -> None:
    checks = ask("basic", "conformance")
    assert len(checks) > 50
    assert {name: detail for name, (result, detail) in checks.items() if result == "fail"} == {}
    assert {name for name, (result, _) in checks.items() if result == "unsupported"} <= set(NOT_OFFERED)


def test_every_element_type_goes_there_and_back_in_any_layout() -> None:
    assert ask("basic", "element_types") == []


def test_computations_give_eager_results() -> None:
    assert ask("basic", "computations") == pytest.approx([0] * 5, abs=1e-4)


def test_donated_arguments_give_their_memory() -> None:
    result = ask("basic", "donation")
    assert result["value"] == 30
    assert result["peak"] < 2 * 4_000_000  # never two copies of the 4 MB at once
    assert 4_000_000 <= result["used"] < 5_000_000


def test_two_devices_train_as_one() -> None:
    for loss, eager in ask("basic", "two_devices_train"):
        assert loss == pytest.approx(eager, rel=1e-5)


def test_threads_may_use_devices_at_once() -> None:
    assert ask("basic", "threads_on_two_devices") == [40, False]


def test_tensors_are_saved_and_loaded_on_their_device() -> None:
    assert ask("basic", "saved_and_loaded") == ["xla:1", [0, 1, 2, 3, 4]]


def test_a_transferred_value_is_adopted_without_passing_through_the_client() -> None:
    result = ask("basic", "transfer_and_adoption")
    assert result["device"] == "xla:1" and result["equal"]
    assert result["moved"] == {"bytes_uploaded": 0, "bytes_fetched": 0, "copies": 1}
    assert "f32[100000]" in result["mismatch"] and "f32[7]" in result["mismatch"]
    assert "token 12345 names no live buffer" in result["unknown"]


def test_a_failed_compile_names_the_users_line_and_spoils_nothing_else() -> None:
    message, after = ask("basic", "a_failed_compile_names_its_line")
    assert "train.py:42" in message and "no_such_target" in message
    assert after == 32


def test_what_can_never_fit_is_a_clear_error() -> None:
    message = ask("basic", "what_cannot_fit_says_so")
    assert "4398046511104" in message or "RESOURCE_EXHAUSTED" in message or "memory" in message.lower()


def test_replicas_called_one_by_one_run_as_one_gang() -> None:
    result = ask("replicas", "replicas_average_their_gradients")
    assert len(result["replicas"]) == 3
    for weights in result["replicas"]:
        assert weights == result["replicas"][0]
        for row, eager in zip(weights, result["eager"], strict=True):
            assert row == pytest.approx(eager, abs=1e-6)


def test_a_replica_that_never_comes_is_named() -> None:
    message, after = ask("lonely replica", "an_incomplete_gang_fails_in_time")
    assert "no call came for device 1" in message and "gang_timeout_seconds" in message
    assert after == [2, 2, 2, 2]


def test_sharded_models_train_as_eager_ones() -> None:
    result = ask("spmd", "sharded_training")
    for loss, eager in result["losses"]:
        assert loss == pytest.approx(eager, rel=1e-5)
    assert "devices=[2,1,2]" in result["sharding"]


def test_values_cross_hosts_from_worker_to_worker() -> None:
    assert ask("hosts", "across_hosts_goes_worker_to_worker") == pytest.approx(50_000 * 50_001, rel=1e-6)


def test_a_lost_host_is_named_and_the_other_goes_on() -> None:
    result = ask("hosts", "a_lost_host_is_named_and_the_other_goes_on")
    assert result["name"] in result["message"] and "lost" in result["message"]
    assert result["name"] in result["again"]
    assert result["other"] == 8


def test_collectives_reach_across_the_hosts_of_an_island() -> None:
    assert ask("spmd over hosts", "collectives_across_hosts") == 128


def test_a_client_may_be_bound_to_a_slice_of_the_cluster() -> None:
    result = ask("slice", "a_slice_of_one_host")
    columns = [sum(8 * row + column for row in range(8)) for column in range(8)]
    assert result["sum"] == sum(total * total for total in columns)
    assert result["bound"] == [3, 2]
