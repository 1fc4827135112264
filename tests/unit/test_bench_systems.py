"""bench: systems measured side by side, places on an axis, and what a child process leaves behind."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from ptpathways import core
from ptpathways.bench import _systems
from ptpathways.bench._child import Child
from ptpathways.bench._leftovers import Leftovers
from ptpathways.bench._plot import plot
from ptpathways.bench._record import Record, Setting
from ptpathways.bench._scale import _ratios
from ptpathways.bench._show import show_records
from ptpathways.bench._systems import Figures, Measured, able, parse_peers, side_by_side
from ptpathways.bench._workload import OURS, Goal, Workload
from ptpathways.bench.peers.runner import measure

WORKLOAD = Workload("w", "", lambda _: [], {("rate", 2): Goal(10, at_least=True)}, axis="hosts")


def _record(system: str, hosts: int, value: float) -> Record:
    return Setting("w", hosts, hosts, {"hosts": hosts}).record(system, "rate", "x/s", [value])


def _module(folder: Path, body: str) -> None:
    code = """
        class System:
            versions = {"odd": "1.0"}
            def __init__(self, setting):
                self.setting = setting
            def figures(self):
                return {"one": lambda: float(self.setting["hosts"])}
            def close(self):
                pass
        open_system = System
    """
    (folder / "odd_system.py").write_text(textwrap.dedent(code) + textwrap.dedent(body))


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(_systems.__file__).parents[2])]))
    return tmp_path


def test_a_batch_is_repeated_for_about_the_time_given() -> None:
    calls: list[float] = []

    def batch() -> float:
        calls.append(0.0)
        return 2.0

    measured = measure(batch, 0.02)
    assert measured["amount"] == 2.0 * (len(calls) - 2)  # two to compile
    assert 0.02 <= measured["seconds"] < 1.0
    assert 0 < measured["p50_s"] <= measured["seconds"]
    assert measure(lambda: 1.0, 0.0)["amount"] == 1.0


def test_systems_are_measured_in_turn_and_one_that_fails_is_left_out(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(own_folder, "")
    (own_folder / "bad_system.py").write_text("raise SystemError('it has no legs')")
    rival = _systems.Peer("bad_system", frozenset({"add"}), own_environment=False)
    monkeypatch.setitem(_systems.PEERS, "rival", rival)
    monkeypatch.setattr(_systems, "_RUNNER_FOLDER", f"{own_folder}{os.pathsep}{_systems._RUNNER_FOLDER}")
    told: list[str] = []
    found = side_by_side([OURS, "rival"], "add", 3, "odd_system", passes=2, seconds=0.01, told=told.append)
    assert list(found) == [OURS]
    assert len(found[OURS].values["one"]) == 2
    assert found[OURS].versions == {"odd": "1.0"}
    assert all(value.amount % 3 == 0 and value.rate > 0 for value in found[OURS].values["one"])
    (line,) = told
    assert "rival with 3 hosts" in line and "it has no legs" in line
    with pytest.raises(core.PathwaysError, match="no legs"):
        side_by_side([OURS], "add", 1, "bad_system", passes=1, seconds=0.01, told=told.append)


def test_rivals_are_named_installed_and_able(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert parse_peers("") == ()
    assert parse_peers("ray, jax") == ("ray", "jax")
    assert parse_peers("all") == tuple(_systems.PEERS)
    with pytest.raises(core.InvalidOption, match=r"among ray, monarch.* got spark"):
        parse_peers("ray,spark")
    monkeypatch.setattr(_systems, "_ROOT", tmp_path)
    console = Console(width=200, record=True, file=io.StringIO())
    assert able(["ray", "jax", "torch_xla"], "add", console) == ["torch_xla"]
    assert able(["jax"], "pipeline", console) == []
    said = console.export_text().splitlines()
    assert "make bench-peers" in said[0] and "make bench-peers" in said[1] and "'pipeline'" in said[2]


def test_every_rival_has_a_program_and_pinned_versions() -> None:
    for name, peer in _systems.PEERS.items():
        assert (_systems._RUNNER_FOLDER / f"{peer.module}.py").exists()
        if peer.own_environment:
            pins = (_systems._RUNNER_FOLDER / "requirements" / f"{name}.txt").read_text().splitlines()
            assert pins and all("==" in pin for pin in pins)


def test_ours_is_compared_with_the_best_rival_across_processes() -> None:
    def figures(rate: float, trip_s: float) -> Figures:
        return Figures({"OpByOp": [Measured(rate, 1.0, 0.1)], "round trip": [Measured(1.0, 1.0, trip_s)]})

    found = {OURS: figures(100.0, 1e-4), "ray": figures(10.0, 4e-4), "dask": figures(20.0, 8e-4)}
    found["jax"] = figures(1e6, 1e-6)  # one process, so no rival here
    records = {record.variant: record.median for record in _ratios(Setting("w", 2, 2), found)}
    assert records == {
        "OpByOp: times as good as the best peer": pytest.approx(5.0),
        "round trip: times as good as the best peer": pytest.approx(4.0),
    }
    assert _ratios(Setting("w", 2, 2), {OURS: figures(1.0, 1.0)}) == []


def test_places_on_the_axis_are_columns_and_only_ours_have_goals() -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    missed = dataclasses.replace(_record(OURS, 2, 7.0), unit="x/h")
    records = [_record(OURS, 1, 5.0), _record(OURS, 2, 12.0), _record("ray", 2, 3.0), missed]
    show_records(records, WORKLOAD, console)
    text = console.export_text()
    assert "w: 1, 2 hosts, 1, 2 devices" in text
    assert "hosts 1" in text and "hosts 2" in text
    assert text.count("✓") == text.count("✗") == 1 and "12.0 ✓" in text and "7.00 ✗ ≥ 10" in text


def test_places_on_the_axis_are_drawn_as_lines(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [_record(system, hosts, 1.0) for system in (OURS, "ray") for hosts in (1, 2)]
    records.append(dataclasses.replace(records[0], unit="us"))
    plot(records, WORKLOAD, tmp_path / "lines.svg")
    drawn = (tmp_path / "lines.svg").read_text()
    assert drawn.count('id="axes_') == 2
    assert drawn.count("ray: rate") == 1  # matplotlib writes the text of its paths as a comment


def test_what_a_child_leaves_behind_goes_with_it(own_folder: Path) -> None:
    semaphore = Path("/dev/shm") / f"sem.hdr{2**22 + 7}-1234"  # of a process that cannot exist
    _module(
        own_folder,
        f"""
        import subprocess, sys, tempfile
        orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
        open({str(semaphore)!r}, "w").close()
        open(tempfile.gettempdir() + "/left", "w").close()
        System.versions = {{"orphan": str(orphan.pid), "folder": tempfile.gettempdir()}}
        """,
    )
    try:
        with _systems.start(OURS, "add", 1, "odd_system") as system:
            orphan, folder = int(system.versions["orphan"]), Path(system.versions["folder"])
            assert Path(f"/proc/{orphan}").exists() and (folder / "left").exists() and semaphore.exists()
        assert not folder.exists() and not semaphore.exists()
        status = Path(f"/proc/{orphan}/status")
        assert not status.exists() or "zombie" in status.read_text()  # whoever adopted it may not have reaped it yet
    finally:
        semaphore.unlink(missing_ok=True)


def test_only_the_marked_are_found() -> None:
    leftovers, others = Leftovers(), Leftovers()
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, env={**os.environ, **leftovers.environment}
    ) as process:
        assert leftovers.processes() == [process.pid]
        assert others.processes() == []
        leftovers.remove()
        assert process.wait(10) == -9
    others.remove()


def test_a_child_may_have_another_interpreter() -> None:
    with pytest.raises(FileNotFoundError):
        Child("runner", interpreter="/nowhere/python")
