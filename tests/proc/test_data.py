"""Input pipelines on the workers' hosts, in real clusters of three shapes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import data_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]
SHAPES = ["1x1", "2x2", "4x1"]


def outcome(shape: str, scenario: str) -> Any:
    result = outcome_of(Path(scenarios.__file__), *shape.split("x"))[scenario]
    assert "failure" not in result, result["failure"]
    return result


def flat(epoch: list[Any], part: int = 0) -> list[Any]:
    return [value for batch in epoch for value in batch[part]]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_is_that_of_seed_and_epoch(shape: str) -> None:
    result = outcome(shape, "order")
    first, second = result["epochs"]
    assert [flat(first), flat(second)] == result["asked"]
    assert flat(first) != flat(second) and sorted(flat(first)) == list(range(scenarios.SAMPLES))
    assert [len(batch[0]) for batch in first] == [8, 8, 6]


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_order_and_random_numbers_are_the_same_for_any_number_of_hosts_and_devices(shape: str) -> None:
    assert outcome(shape, "order")["epochs"] == outcome("1x1", "order")["epochs"]
    assert len(set(flat(outcome(shape, "order")["epochs"][0], 1))) == scenarios.SAMPLES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_loop_goes_on_in_the_middle_of_an_epoch(shape: str) -> None:
    result = outcome(shape, "order")
    assert result["position"] == [2, 2] and len(result["rest"]) == 1
    assert result["resumed"] == result["rest"]
    assert result["after"] == [[3, 0], 3]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_byte_of_a_batch_passes_the_client(shape: str) -> None:
    assert outcome(shape, "order")["uploaded"] == 0


def test_batches_are_divided_over_the_devices() -> None:
    assert "devices=[4,1]0,1,2,3" in outcome("2x2", "order")["sharding"]


def test_only_the_hosts_of_a_slice_make_its_batches() -> None:
    result = outcome("2x2", "on_a_slice")
    assert result["hosts"] == [result["host"]] and "devices=[2,1]0,1" in result["sharding"]
    assert result["epochs"] == outcome("1x1", "order")["epochs"]


def test_a_prepared_loop_computes_what_it_computes_with_a_loader_of_its_own() -> None:
    result = outcome("2x2", "training")
    assert result["remote"] == pytest.approx(result["here"], rel=1e-5) and len(result["here"]) == 6


def test_each_device_is_sent_only_its_part_of_a_batch_of_this_process() -> None:
    assert outcome("2x2", "training")["sent"] == 16 * 1024 * 4


def test_a_stream_is_read_whole_and_gone_on_with() -> None:
    result = outcome("1x1", "streamed")
    assert [int(sample[0]) for batch in result["whole"] for sample in batch] == list(range(scenarios.SAMPLES))
    assert result["resumed"] == result["whole"][1:]


def test_two_processes_give_what_one_gives() -> None:
    result = outcome("1x1", "order")
    assert result["first again"] == result["epochs"][0]


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("raise", "InputPipelineFailed", ["LookupError: ", "sample 9 is not there", "in __getitem__", "Traceback"]),
        ("exit", "InputPipelineFailed", ["exit code 7", "fault.<locals>.<lambda>"]),
        ("hang", "DeadlineExceeded", ["within 2 s", "the dataset's code hangs"]),
        ("long", "InputPipelineFailed", ["LookupError: sample 9 xxxx", "characters are left out", "Traceback"]),
        ("unprintable", "InputPipelineFailed", ["Unprintable: ", "in __getitem__", "Traceback"]),
    ],
)
def test_a_fault_of_the_dataset_reaches_the_loop_at_its_batch(kind: str, name: str, said: list[str]) -> None:
    result = outcome("1x1", "faults")[kind]
    assert result["error"] == name
    for text in ["batch 2 of epoch 0", "host 'host0'", *said]:
        assert text in result["message"]
    assert result["given"] in (2, 3, 4) and result["good"] == [True, True]
    assert result["position"] == [0, result["given"]]  # where a state that is saved now goes on
    if result["given"] > 2:  # its value, before or after what computes with it was submitted
        by_a_run = r"function '[\w.]+' \(\S+\): host 'host0': "
        value = result["value"]
        assert re.match(rf"{name}: host 'host0': ({by_a_run})?batch 2 of epoch 0: ", value), value[:300]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("shuffled stream", "ValueError: input pipeline 'stream'"),
        ("no function", "TypeError: dataset_fn must be a function without arguments"),
        ("batch size", "ValueError: batch_size must be an integer of at least 1, got 0"),
        ("state", "ValueError: the state is of a loader with batch_size=8, this one has batch_size=4"),
    ],
)
def test_what_cannot_be_is_refused(what: str, said: str) -> None:
    assert said in outcome("1x1", "refusals")[what]


def test_a_pipeline_ends_with_its_worker_and_the_loop_hears_of_the_host() -> None:
    result = outcome("4x1", "lost_worker")
    assert result["children"] == 1 and result["gone"] == [True]
    assert result["error"] in ("HostLost", "RuntimeError") and "host3" in result["message"]


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_left_of_a_cluster_that_had_pipelines(shape: str) -> None:
    outcome(shape, "order")
    workers = outcome_of(Path(scenarios.__file__), *shape.split("x"))["pids"]
    marks = [str(pid) for pid in workers]
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(argument.endswith("data/_process.py") for argument in arguments) and set(arguments) & set(marks):
                left.append(entry.name)
    assert not left and not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_torch_xlas_loader_reads_in_the_loops_thread_and_loses_no_error() -> None:
    pytest.importorskip("accelerate")
    result = outcome("2x2", "of_torch_xla")
    assert result["right"] and result["same"] and result["threads"] == ["MainThread"]
    assert result["failing"][0] == 1 and result["failing"][1]
    assert result["with settings"] and result["of threads"] == result["failing"][1]
    assert len(result["refused"]) == 6 and "must be at least 1, got 0" in result["refused"][0], result["refused"]
    assert result["kinds"] == []
    assert result["last of a stream"] == [8, 8, 6]
    assert result["on a slice"] == [True, [2.0 * index for index in range(scenarios.BATCH)]]
