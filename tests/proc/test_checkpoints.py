"""The scenarios of checkpoint_scenarios.py: one process for each shape of cluster, and for each that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import checkpoint_scenarios as scenarios
from tests.scenarios import ROOT, limited, needs_native, outcome_of

pytestmark = [needs_native, limited]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


def outcome(mode: str, name: str, folder: Path) -> Any:
    result = outcome_of(Path(scenarios.__file__), mode, str(folder))[name]
    assert "error" not in result or name == "worker_killed", result["error"]
    return result


def test_losses_after_a_resume_are_those_of_the_run_that_went_on(folder: Path) -> None:
    result = outcome("together", "resuming", folder)
    assert len(result["went on"]) == 6
    assert result["again"] == result["went on"]  # bit for bit, into the same objects
    assert result["anew"] == result["went on"]  # and into others
    assert result["note"] == {"by": ["a test", 1]} or result["note"] == {"by": ("a test", 1)}
    assert result["step"] == 6


def test_no_bytes_of_tensors_pass_the_client(folder: Path) -> None:
    result = outcome("together", "resuming", folder)
    assert result["tensors"] > 5000
    assert result["bytes read"] >= result["tensors"]
    assert result["saved"] == [0, 0]
    assert max(result["read"]) <= 64  # counts of steps, which are this process's


def test_another_process_goes_on_bit_for_bit(folder: Path) -> None:
    outcome("together", "resuming", folder)
    result = outcome("resume", "from_checkpoint", folder)
    assert result["got"] == result["expected"]


def test_a_single_device_goes_on_with_what_four_saved(folder: Path) -> None:
    outcome("together", "resuming", folder)
    result = outcome("alone", "from_checkpoint", folder)
    assert result["got"] == pytest.approx(result["expected"], rel=1e-4)


def test_shards_are_written_once_and_read_in_another_division(folder: Path) -> None:
    result = outcome("together", "shardings", folder)
    shapes = {name: sorted(found) for name, found in result["shapes"].items()}
    assert shapes["model.up.weight"] == [[6, 8], [6, 8]]
    assert shapes["model.down.weight"] == [[1, 9], [2, 9], [2, 9], [2, 9]]  # 7 rows on 4 devices, without the padding
    assert shapes["model.big"] == [[1500, 1000], [1500, 1000]]  # what all have is spread over the hosts
    assert shapes["model.down.bias"] == [[7]]
    one, other = result["bytes"].values()
    assert abs(one - other) < 2000
    assert result["same"] and all(result["same"].values())
    assert result["plain"] and all(result["plain"].values())
    assert max(result["read"]) <= 64
    assert result["numbers"] == [3.0, 0.0]


def test_files_of_other_programs_are_read(folder: Path) -> None:
    result = outcome("together", "files_of_others", folder)
    assert result["safetensors"] and result["index"] and result["ours"]
    assert result["torch"] == [True, 3, True]
    assert result["bfloat16"] == [True, "torch.bfloat16"]
    assert result["optimizer"] == ["xla", True]


SAID = {
    "another": [
        "CheckpointMismatch", "missing 2.weight, 2.bias", "unexpected 1.weight, 1.bias",
        "0.weight [4, 4] in it, [5, 4] here",
    ],
    "no such": ["CheckpointError", "there is no"],
    "no object": ["CheckpointMismatch", "it has no 'scheduler'; it has model, optimizer, step"],
    "other optimizer": ["CheckpointMismatch", "groups of [4] parameters, and there are [2] here"],
    "cut off": ["CheckpointError", "it was cut off"],
    "missing file": ["CheckpointError", "lacks its file data-"],
    "newer": ["CheckpointError", "format version 9"],
    "short": ["CheckpointError", "expected a safetensors file"],
    "no directory": ["CheckpointError", "Not a directory"],
    "pickle": ["CheckpointError", "allow_pickle=True"],
    "full": ["CheckpointError", "host", "make room on the disk"],
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_what_is_wrong_is_said(what: str, folder: Path) -> None:
    message = outcome("together", "mistakes", folder)[what]
    for part in SAID[what]:
        assert part in message


def test_nothing_is_lost_when_a_save_or_a_load_fails(folder: Path) -> None:
    result = outcome("together", "mistakes", folder)
    assert set(result["left"]) <= {"data", "manifest.json", ".lock"}
    assert result["step"] == 1
    assert result["unchanged"]
    assert len(result["warned"]) == 1 and "make room" in result["warned"][0]


def test_nothing_is_changed_when_an_object_refuses_its_state(folder: Path) -> None:
    result = outcome("together", "refused_late", folder)
    said = result["said"]
    assert "CheckpointError" in said and "nothing was changed" in said and "ValueError: thirteen" in said
    assert "last: load_state_dict() raised" in said
    assert result["unchanged"] == [True, "of before", True] and result["identities"]
    assert "CheckpointMismatch" in result["loader"] and "loader with batch_size=2, this one has" in result["loader"]
    assert result["still"]
    assert result["then"] == [True, "saved", 0]


def test_the_last_checkpoints_of_a_series_stay_and_dead_ones_go(folder: Path) -> None:
    result = outcome("together", "rotation", folder)
    assert result == {"there": ["step0030", "step0040"], "last": 40}


def test_a_captured_step_goes_on_with_what_was_loaded(folder: Path) -> None:
    result = outcome("one_by_one", "captured", folder)
    assert result["again"] == result["went on"]
    assert result["kept"]


def test_a_killed_worker_or_client_leaves_the_last_good_checkpoint(folder: Path) -> None:
    assert "of a worker" not in str(outcome("one_by_one", "captured", folder))
    assert "CheckpointError" in outcome("one_by_one", "worker_killed", folder)["error"]
    done = subprocess.run(
        [sys.executable, scenarios.__file__, "killed", str(folder)],
        capture_output=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -9
    outcome("together", "resuming", folder)
    result = outcome("after", "after_kills", folder)
    for name in ("of a worker", "of a client"):
        assert result[name] == {"step": 1, "clean": True, "new": True}
