"""The loops of mesh_scenarios.py on hosts x devices, a process per shape: as eager CPU training does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways import core, platforms
from ptpathways.launch import WorkerOptions, local, worker_command, worker_environment
from ptpathways.testing import wait_until
from tests.proc import mesh_scenarios as scenarios
from tests.proc.mesh_basis import BATCH, LENGTH, STEPS
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

SHAPES = [(1, 4), (2, 2), (4, 1)]
"""Hosts and devices of each."""

SHAPES_FOR_MORE = SHAPES[:2]

BATCH_BYTES = 2 * 8 * BATCH * LENGTH
"""Of a batch of tokens and labels, 64-bit."""


def outcome(shape: tuple[int, int], name: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), *map(str, shape))[name]
    assert "error" not in result, result["error"]
    return result


def check_numbers(result: Any) -> None:
    assert len(result["losses"]) == len(result["eager"]) > 0
    assert result["losses"] == pytest.approx(result["eager"], rel=1e-4)
    assert result["losses"][-1] < result["losses"][0]
    assert result["parameters"] < 1e-4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", [method.__name__ for method in scenarios.METHODS])
def test_twenty_steps_give_what_eager_training_gives(shape: tuple[int, int], method: str) -> None:
    result = outcome(shape, method)
    assert len(result["losses"]) == STEPS
    check_numbers(result)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("method", "copies"), [("data_parallel", 1), ("tensor_parallel", 4), ("fully_sharded", 1)])
def test_only_batches_pass_the_client(shape: tuple[int, int], method: str, copies: int) -> None:
    """Parameters are computed on the devices, from a seed and bounds; training sends batches, each part once."""
    result = outcome(shape, method)
    assert result["uploaded to initialise"] <= 128 and result["fetched to initialise"] == 0
    batches = STEPS * BATCH_BYTES * copies
    assert batches <= result["uploaded to train"] <= batches + 2048
    assert result["fetched to train"] == 4 * STEPS  # the losses


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_was_marked_stays_marked_and_the_optimizer_follows(shape: tuple[int, int]) -> None:
    marked = {
        "data_parallel": "{replicated}",
        "tensor_parallel": "{devices=[4,1]",
        "fully_sharded": "{devices=[4,1]",
        "data_and_tensor": "{devices=[2,1,2]",
        "fully_sharded_by_strategy": "{devices=[4,1]",
    }
    for method, start in marked.items():
        result = outcome(shape, method)
        assert result["weight"].startswith(start)
        assert result["state"] == [result["weight"]] * 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", scenarios.METHODS_ON_SLICES)
def test_two_models_train_at_once_on_two_slices(shape: tuple[int, int], method: str) -> None:
    result = outcome(shape, "two_slices")[method]
    first, second = result["devices"]
    assert len(first) == len(second) == 2 and not set(first) & set(second)
    assert len(set(result["torch devices"])) == 2 and "xla:0" not in result["torch devices"]
    for losses, eager, distance in zip(result["losses"], result["eager"], result["parameters"], strict=True):
        assert len(losses) == STEPS
        assert losses == pytest.approx(eager, rel=1e-4)
        assert distance < 3e-4  # AdamW takes a gradient that is nearly zero as large as any other
    start = {"data": "{replicated}", "fsdp": "{devices=[2,1]", "tensor": "{devices=[2,1]"}[method]
    for weight, state in zip(result["weights"], result["states"], strict=True):
        assert weight.startswith(start) and state == [weight] * 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parameters_and_activations_are_laid_out_in_the_middle_of_a_training(shape: tuple[int, int]) -> None:
    result = outcome(shape, "laid_out_by_hand")
    assert len(result["losses"]) == STEPS
    check_numbers(result)
    assert result["passed the client"] == [0, 0]
    up, down, head = result["lies"]
    assert up.startswith("{devices=[2,1,2]") and down.startswith("{devices=[1,2,2]") and head == "{replicated}"
    assert result["weight"] == up and result["activation"].startswith("{devices=[2,1,2]")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_host_gets_only_its_part_of_a_batch(shape: tuple[int, int]) -> None:
    result = outcome(shape, "a_batch_enters_in_parts")
    assert result["sum"] == 4096 * 256 and result["sent"] == 4 * 4096 * 256
    assert result["held"] == pytest.approx([result["sent"] / shape[0]] * shape[0], rel=0.1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parameters_depend_on_the_seed_and_not_on_the_cluster(shape: tuple[int, int]) -> None:
    alone, here = outcome((1, 1), "initialised"), outcome(shape, "initialised")
    assert alone == here and here["plain"] == here["marked"] == here["again"] != here["meta"]
    assert len(set(here["plain"])) > 10


@pytest.mark.parametrize("shape", SHAPES_FOR_MORE, ids=str)
def test_a_seed_gives_the_same_losses_on_any_cluster(shape: tuple[int, int]) -> None:
    alone, _ = outcome((1, 1), "seeded")
    first, second = outcome(shape, "seeded")
    assert first == second
    assert first == pytest.approx(alone, rel=1e-5)
    assert len(set(first)) == len(first)


def test_a_single_device_trains_the_same() -> None:
    check_numbers(outcome((1, 1), "data_parallel"))


def test_a_model_from_the_cpu_and_batches_that_do_not_divide() -> None:
    result = outcome((1, 4), "made_on_the_cpu")
    check_numbers(result)
    (warning,) = result["warnings"]
    assert "a batch of 7 cannot be divided over 4 devices" in warning


@pytest.mark.parametrize("shape", SHAPES_FOR_MORE, ids=str)
def test_a_checkpoint_of_sharded_parameters_goes_on(shape: tuple[int, int]) -> None:
    result = outcome(shape, "resumed")
    assert len(result) == 4 and max(result) < 1e-4


@pytest.mark.parametrize("shape", SHAPES_FOR_MORE, ids=str)
def test_a_dimension_that_does_not_divide_is_padded(shape: tuple[int, int]) -> None:
    result = outcome(shape, "a_dimension_that_does_not_divide")
    assert result["weight"].startswith("{devices=[4,1]") and result["difference"] < 1e-5


@pytest.mark.parametrize("shape", SHAPES_FOR_MORE, ids=str)
def test_mistakes_are_named(shape: tuple[int, int]) -> None:
    said = outcome(shape, "refused")
    assert "say batch_axis=NAME, or batch_axis=()" in said["axis"] and "there are rows (4)" in said["axis"]
    assert "mesh axis 'data', which does not exist" in said["name"]
    assert "Mesh over all 4 devices of the slice, got (4,)" in said["mesh"]
    assert said["meta"].startswith("ValueError: prepare() got weight on the meta device")
    assert said["strategy"].startswith("InvalidSharding: strategy is 'ddp'")
    assert "weight of shape (4, 2): partition spec ('rows', None) names axis 'rows'" in said["rule"]
    assert "names axis 'x', which does not exist; there are rows (4)" in said["spec"]
    assert "dimension 0 of the tensor has 5 elements, which 'rows' (4) does not divide" in said["odd"]
    assert "the tensor is on cpu, which is no slice" in said["here"]
    assert said["freed"].startswith("SliceUnavailable: ") and "was released" in said["freed"]
    assert "on a slice of 1" in said["other mesh"]


def test_hosts_with_different_numbers_of_devices_are_one_mesh() -> None:
    with local.serve(core.Options(hosts=1, devices_per_host=1)) as cluster:
        bigger = WorkerOptions(
            controller=cluster.address,
            name="bigger",
            plugin=platforms.find_plugin(),
            devices=2,
            island="island0",
            runtime_dir=str(cluster.runtime_dir),
        )
        with subprocess.Popen(
            worker_command(bigger), env=worker_environment(bigger), stderr=subprocess.DEVNULL
        ) as worker:
            try:
                wait_until(lambda: len(json.loads(cluster.controller.status_json())["hosts"]) == 2, 60.0)
                result = outcome_of(Path(scenarios.__file__), cluster.address)["odd_devices"]
            finally:
                worker.terminate()
    assert "error" not in result, result["error"]
    assert result["devices"] == [1, 2]
    check_numbers(result)
