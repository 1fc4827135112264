"""Jobs under a real Slurm of two nodes on this machine; skipped where Debian's slurmd and munge are not installed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptpathways.testing import is_running, wait_until
from tests.proc import slurm_cluster

if missing := slurm_cluster.missing():
    pytest.skip(f"Slurm is not installed here: there is no {', '.join(missing)}", allow_module_level=True)

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(__file__).with_name("launched.py"))
SRUN = ["srun", "-N", "2", "--ntasks-per-node", "1"]
LAUNCH = [sys.executable, "-m", "ptpathways.launch", "--timeout", "60"]
JOB_S = 100.0
GONE_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A home of its own: every Slurm of these tests counts its jobs from 1, and ranks meet in a folder of the home."""
    home = tmp_path_factory.mktemp("home")
    with slurm_cluster.running(nodes=2) as environment:
        kept = {name: value for name, value in environment.items() if not name.startswith("PTPATHWAYS_")}
        yield {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SRUN, *LAUNCH, *arguments], env=environment, capture_output=True, text=True, timeout=JOB_S, cwd=ROOT
    )


def _pids(output: str) -> list[int]:
    found = [line.partition(" pids ")[2] for line in output.splitlines() if line.startswith("FOUND")]
    assert found, output
    return [int(pid) for text in found for pid in text.split()]


def _nothing_left(pids: list[int]) -> None:
    wait_until(lambda: not any(is_running(pid) for pid in pids), GONE_S)


def test_a_step_of_two_nodes_is_one_cluster(cluster: dict[str, str]) -> None:
    done = _run(cluster, "--devices-per-host", "2", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("FOUND") == 1
    assert "FOUND rank0@island0x2 rank1@island0x2 machines 1" in done.stdout
    _nothing_left(_pids(done.stdout))
    steps = list((Path(cluster["HOME"]) / ".ptpathways" / "slurm").iterdir())
    assert [step.name for step in steps] == ["tests.1.0.0"]
    assert not list(steps[0].glob("*answer")), "the token of a step that has ended"


def test_the_exit_code_is_the_programs(cluster: dict[str, str]) -> None:
    done = _run(cluster, SCRIPT, "exit7")
    assert done.returncode == 7, done.stderr
    _nothing_left(_pids(done.stdout))


def test_a_worker_that_dies_is_named(cluster: dict[str, str]) -> None:
    done = _run(cluster, SCRIPT, "kill-worker")
    assert done.returncode not in (0, 7)
    assert "rank1" in done.stderr or "rank 1" in done.stderr, done.stderr
    _nothing_left(_pids(done.stdout))


@pytest.mark.parametrize("way", ["scancel", "kill"])
def test_a_step_that_is_ended_leaves_nothing(cluster: dict[str, str], way: str) -> None:
    """By Slurm's own command, and by kill -9 of the srun that the user sees."""
    command = [*SRUN, "--job-name", f"ends-{way}", *LAUNCH, SCRIPT, "wait"]
    with subprocess.Popen(command, env=cluster, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as srun:
        assert srun.stdout is not None
        line = next(line for line in srun.stdout if line.startswith("FOUND"))
        if way == "scancel":
            subprocess.run(["scancel", "--name", f"ends-{way}"], env=cluster, check=True)
        else:
            srun.send_signal(signal.SIGKILL)
        srun.wait(JOB_S)
    _nothing_left(_pids(line))


def test_a_batch_script_finds_slurm_by_itself(cluster: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_text(f"#!/bin/sh\n{' '.join([*SRUN, *LAUNCH, SCRIPT])}\n")
    out = tmp_path / "out"
    command = ["sbatch", "--wait", "-N", "2", "--ntasks-per-node", "1", "-o", str(out), str(job)]
    done = subprocess.run(command, env=cluster, capture_output=True, text=True, timeout=JOB_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr + out.read_text()
    assert "FOUND rank0@island0x1 rank1@island0x1" in out.read_text()


def test_a_task_that_never_comes_is_named_in_time(cluster: dict[str, str]) -> None:
    """Two tasks, of which the second does something else."""
    program = f'if [ "$SLURM_PROCID" = 0 ]; then exec {" ".join(LAUNCH[:-1])} 5 {SCRIPT}; else exec sleep 30; fi'
    began = time.monotonic()
    done = subprocess.run(
        [*SRUN, "--kill-on-bad-exit", "sh", "-c", program], env=cluster, capture_output=True, text=True, timeout=JOB_S
    )
    assert done.returncode != 0
    assert "rank 1" in done.stderr or "ranks 1" in done.stderr, done.stderr
    assert time.monotonic() - began < 25
