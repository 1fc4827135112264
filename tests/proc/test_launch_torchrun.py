"""Jobs under torchrun, and under what looks like srun: exit codes, error files, restarts, signals, and bad input."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.testing import is_running, wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(__file__).with_name("launched.py"))
LAUNCH = [sys.executable, "-m", "ptpathways.launch"]
WAIT_S = 150.0


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PTPATHWAYS_")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def _torchrun(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"]
    return [*command, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *arguments]


def _run(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _torchrun(*before, "-m", "ptpathways.launch", *arguments),
        capture_output=True, text=True, timeout=WAIT_S, env=_environment(),
    )  # fmt: skip


def _nothing_left(output: str) -> None:
    found = [line.partition(" pids ")[2] for line in output.splitlines() if line.startswith("FOUND")]
    assert found, output
    pids = [int(pid) for text in found for pid in text.split()]
    wait_until(lambda: not any(is_running(pid) for pid in pids), 10.0)


def test_every_rank_serves_and_rank_0_runs_the_script() -> None:
    done = _run("--devices-per-host", "2", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("FOUND") == 1
    assert "FOUND rank0@island0x2 rank1@island0x2 machines 1" in done.stdout
    _nothing_left(done.stdout)


def test_an_exception_ends_all_ranks_and_is_in_torchruns_summary() -> None:
    done = _run("--islands", "2", SCRIPT, "raise")
    assert done.returncode == 1
    assert "rank0@island0x1 rank1@island1x1" in done.stdout
    summary = done.stderr[done.stderr.index("FAILED") :]
    assert "ValueError: the script failed" in summary and "launched.py" in summary, done.stderr
    _nothing_left(done.stdout)


def test_the_exit_code_is_kept() -> None:
    done = _run(SCRIPT, "exit7")
    assert done.returncode == 1, "torchrun's own"
    assert "exitcode  : 7" in done.stderr
    _nothing_left(done.stdout)


def test_a_job_is_restarted() -> None:
    done = _run(SCRIPT, "raise-once", before=["--max-restarts", "1"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("FOUND") == 2
    _nothing_left(done.stdout)


def test_a_worker_that_dies_fails_its_rank() -> None:
    done = _run(SCRIPT, "kill-worker")
    assert done.returncode == 1
    assert "rank 1's worker" in done.stderr or "rank1" in done.stderr
    _nothing_left(done.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_torchrun_ends_everything(number: signal.Signals) -> None:
    with subprocess.Popen(
        _torchrun("-m", "ptpathways.launch", SCRIPT, "wait"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(number)
        assert process.wait(WAIT_S) != 0
    _nothing_left(line)


# --- without torchrun's agent: what each rank says when they do not fit together


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ranks(
    worlds: Mapping[int, int],
    *,
    timeout_s: float = 60.0,
    options: Mapping[int, Sequence[str]] | None = None,
    apart: bool = False,
) -> dict[int, subprocess.CompletedProcess[str]]:
    """Runs these ranks, each with its world size and options; rank 0 serves the store.

    Ranks ``apart`` share no memory, as on several machines.
    """
    port = str(_free_port())
    processes = {}
    for rank, world_size in worlds.items():
        place = {
            "RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test", "PTPATHWAYS_MACHINE": str(rank) if apart else "",
        }  # fmt: skip
        command = [*LAUNCH, "--torchrun", "--timeout", str(timeout_s), *((options or {}).get(rank, ())), SCRIPT]
        processes[rank] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(**place)
        )
    done = {}
    for rank, process in processes.items():
        out, err = process.communicate(timeout=WAIT_S)
        done[rank] = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    return done


@pytest.mark.parametrize(
    ("worlds", "options", "said"),
    [
        ({0: 2, 1: 3}, {}, "same world size, got 2 on rank 0"),
        ({0: 2, 1: 2}, {1: ["--platform", "other", "--plugin", __file__]}, "same platform, got cpu on rank 0"),
    ],
)
def test_all_ranks_hear_what_does_not_fit(worlds: dict[int, int], options: dict[int, list[str]], said: str) -> None:
    for rank, done in _ranks(worlds, options=options).items():
        assert done.returncode == 1, done.stderr
        assert said in done.stderr, f"rank {rank}: {done.stderr}"
        assert "FOUND" not in done.stdout


def test_a_rank_that_never_comes_is_named() -> None:
    done = _ranks({0: 3, 1: 3}, timeout_s=20.0)
    assert {rank: one.returncode for rank, one in done.items()} == {0: 1, 1: 1}
    for one in done.values():
        assert "never heard of rank 2" in one.stderr and "within 20 s" in one.stderr


def test_a_wrong_token_is_refused_and_named(tmp_path: Path) -> None:
    """Tokens of the users' own do not travel; a rank with another one is told so."""
    options = {}
    for rank in range(2):
        path = tmp_path / f"token{rank}"
        core.write_token(path, core.make_token())
        options[rank] = ["--token-file", str(path)]
    done = _ranks({0: 2, 1: 2}, options=options, apart=True)
    assert done[1].returncode == 1 and "join token" in done[1].stderr
    assert done[0].returncode == 1 and "rank 1" in done[0].stderr and "join token" in done[0].stderr


# --- as srun starts them


def test_slurm(tmp_path: Path) -> None:
    processes = []
    for rank in range(2):
        step = {
            "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": "4711",
            "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost", "HOME": str(tmp_path),
            "PTPATHWAYS_MACHINE": f"node{rank}",
        }  # fmt: skip
        processes.append(
            subprocess.Popen(
                [*LAUNCH, SCRIPT, "exit3"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=_environment(**step),
            )
        )
    said = [process.communicate(timeout=WAIT_S) for process in processes]
    assert [process.returncode for process in processes] == [3, 3], said
    assert "FOUND rank0@island0x1 rank1@island0x1 machines 2" in said[0][0]
    _nothing_left(said[0][0])
    left = "".join(path.read_text() for path in (tmp_path / ".ptpathways").rglob("*") if path.is_file())
    assert "pw1-" not in left, "no token stays behind"


def test_without_a_launcher_it_says_how_to_start() -> None:
    done = subprocess.run([*LAUNCH, SCRIPT], capture_output=True, text=True, timeout=WAIT_S, env=_environment())
    assert done.returncode == 2
    assert "torchrun" in done.stderr and "srun" in done.stderr
