"""Workers placed by Ray: a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ptpathways.launch._processes import wait_gone
from tests.scenarios import ROOT

pytest.importorskip("ray", reason="Ray is not installed (pip install 'ptpathways[ray]')")

PROGRAM_S = 110.0
NOTICED_S = 5.0
GONE_S = 30.0


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.proc.ray_cluster"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        address = next(line.strip() for line in holder.stdout if line[0].isdigit())
        yield address
        holder.stdin.close()
        holder.wait(GONE_S)


def _environment(address: str) -> dict[str, str]:
    return {**os.environ, "RAY_ADDRESS": address, "RAY_DEDUP_LOGS": "0", "PYTHONPATH": str(ROOT)}


def _run(address: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tests.proc.ray_programs", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROGRAM_S, cwd=ROOT, env=_environment(address)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(240)
def test_a_loop_has_the_losses_of_a_local_cluster(ray_address: str) -> None:
    assert json.loads(_run(ray_address, "digits")[-1]) == json.loads(_run(ray_address, "digits", "local")[-1])


def test_run_places_the_workers_of_a_script_that_names_none(ray_address: str) -> None:
    script = str(ROOT / "tests/proc/ray_programs.py")
    command = [
        sys.executable,
        "-m",
        "ptpathways",
        "run",
        "--launcher",
        "ray",
        "--hosts",
        "2",
        "--devices-per-host",
        "2",
    ]
    done = subprocess.run(
        [*command, script, "digits", "given"],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        cwd=ROOT,
        env=_environment(ray_address),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    losses = json.loads(done.stdout.splitlines()[-1])
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("what", "words"), [("worker", "was killed by SIGKILL"), ("actor", "was lost by Ray")])
def test_a_host_that_dies_is_named_at_once(ray_address: str, what: str, words: str) -> None:
    """By Ray's actor, or by the connection that closed: whichever is seen first."""
    heard = json.loads(_run(ray_address, "killed", what)[-1])
    said = heard["said"]
    assert "'host1'" in said and (words in said or "the process ended or was killed" in said), heard
    assert heard["after_s"] < NOTICED_S
    assert heard["here"] == 4
    assert heard["again"] == 16  # on a new worker in the place of the one that ended, too


def test_what_ray_cannot_place_is_said_in_its_words(ray_address: str) -> None:
    said, hosts = _run(ray_address, "too_many")[-2:]
    for words in ("3 workers with CPU: 2 each", "its cluster has CPU: 4", "on 2 nodes", "within 3 s"):
        assert words in said
    assert hosts == "2"


def test_nothing_is_left_of_a_driver_that_is_killed(ray_address: str) -> None:
    command = [sys.executable, "-m", "tests.proc.ray_programs", "waits"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=_environment(ray_address)
    ) as driver:
        assert driver.stdout is not None
        pids = next(json.loads(line) for line in driver.stdout if line.startswith("["))
        assert len(pids) == 2
        driver.send_signal(signal.SIGKILL)
    assert not wait_gone(pids, GONE_S)
    assert _run(ray_address, "too_many")[-1] == "2"  # the bundles are free again


def test_where_there_is_no_ray_cluster_it_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ptpathways as pw; pw.init(launcher='ray')"],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        cwd=ROOT,
        env=_environment("127.0.0.1:9"),
    )
    assert done.returncode != 0
    assert "needs a Ray cluster, got none at '127.0.0.1:9'" in done.stderr and "ray start --head" in done.stderr
