"""The programs of program_scenarios.py, in a process of their own, on real workers; and saved ones, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import cli, core, programs
from tests.proc import program_scenarios as scenarios
from tests.scenarios import ROOT, limited, outcome_of


def program_file(folders: pytest.TempPathFactory) -> Path:
    """Where the scenarios save a program."""
    return folders.getbasetemp() / "saved_program.zip"


def outcome(folders: pytest.TempPathFactory) -> Any:
    """For each scenario None, or the traceback."""
    return outcome_of(Path(scenarios.__file__), str(program_file(folders)))


@limited
@pytest.mark.parametrize("name", [scenario.__name__ for scenario in scenarios.PROGRAMS])
def test_programs(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert (failure := outcome(tmp_path_factory)[name]) is None, failure


@pytest.fixture
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the scenario ``saved_programs`` wrote."""
    assert outcome(tmp_path_factory)["saved_programs"] is None
    return program_file(tmp_path_factory)


def replayed(*arguments: str) -> dict[str, Any]:
    """Runs ``ptpathways replay --json`` where torch cannot be imported."""
    program = "import sys; sys.modules['torch'] = None; from ptpathways import cli; sys.exit(cli.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "replay", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@limited
@pytest.mark.parametrize(("hosts", "devices"), [("1", "2"), ("1", "4"), ("2", "2")])
def test_a_saved_program_gives_the_same_numbers_without_torch(saved: Path, hosts: str, devices: str) -> None:
    found = replayed(str(saved), "--hosts", hosts, "--devices-per-host", devices, "--repeat", "3")
    assert [result["first"] for result in found["results"]] == [[3.0, 5.0], [8.0, 10.0]]
    assert found["platform"] == "cpu" and found["hosts"] == int(hosts) and found["repeat"] == 3
    assert 0 < found["median_ms"] <= found["p90_ms"] and found["pipelined_ms"] > 0


@limited
def test_arguments_without_values_are_made_up_and_stay_the_same(saved: Path) -> None:
    first, second = (replayed(f"{saved}.types", "--repeat", "1") for _ in range(2))
    assert [one["checksum"] for one in first["results"]] == [one["checksum"] for one in second["results"]]
    assert first["results"][1]["first"] == [8.0, 10.0]  # only the second argument's value was saved


@limited
def test_results_of_a_run_are_the_next_ones_arguments(saved: Path) -> None:
    """1 + 3 + 3 runs: the argument that is given up is the second result of the run before."""
    found = replayed(f"{saved}.train", "--chain", "--repeat", "3")
    total, weight = found["results"]
    assert found["chained"] == {"weight": weight["name"]}
    assert weight["first"] == [8.0 - 7 * 0.5, 9.0 - 7 * 1.0]
    assert total["first"] == [8.0 - 6 * 0.5 + 9.0 - 6 * 1.0]
    assert replayed(f"{saved}.train", "--repeat", "3")["results"][1]["first"] == [7.5, 8.0]


def test_the_bundle_is_checked(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = programs.Bundle.load(saved)
    before = set(tmp_path.iterdir())
    (tmp_path / "link.zip").symlink_to(tmp_path / "beyond.zip")
    bundle.save(tmp_path / "link.zip")
    assert set(tmp_path.iterdir()) - before == {tmp_path / "link.zip", tmp_path / "beyond.zip"}
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="expected a file or a new name"):
            bundle.save(other)
    assert (tmp_path / "pipe").is_fifo()
    again = programs.Bundle.load(bundle.save(tmp_path / "again.zip"))
    assert again.program == bundle.program and again.modules == bundle.modules
    np.testing.assert_array_equal(again.values[0], bundle.values[0])
    assert (tmp_path / "again.zip").read_bytes() == saved.read_bytes()
    broken = tmp_path / "broken.zip"
    broken.write_bytes(saved.read_bytes()[:-40])
    with pytest.raises(core.InvalidProgram, match="no saved program"):
        programs.Bundle.load(broken)
    assert cli.main(["replay", str(broken)]) == 1
    assert "no saved program" in capsys.readouterr().err
    assert cli.main(["replay", str(saved), "--devices-per-host", "1"]) == 1
    assert "device" in capsys.readouterr().err
