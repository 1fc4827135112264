"""bench: statistics, pairing, records, memory by mapping, the table and the command line."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ptpathways import bench, core
from ptpathways.bench._harness import interleave
from ptpathways.bench._memory import mappings, part_of
from ptpathways.bench._plot import plot
from ptpathways.bench._record import Record, Setting, cpu_model, memory_kib, write_json_lines
from ptpathways.bench._show import number, show_records
from ptpathways.bench._stats import quantile, summarise
from ptpathways.bench._workload import BenchOptions, Goal, Workload

RECORD = Setting("dispatch", hosts=2, devices=4).record("ptpathways", "pipelined", "runs/s", [10.0, 30.0, 20.0])
PLAIN = Workload("dispatch", "", lambda _: [])
KEYS = [
    "workload",
    "system",
    "variant",
    "hosts",
    "devices",
    "at",
    "unit",
    "median",
    "p10",
    "p90",
    "repeats",
    "versions",
    "machine",
    "date",
]


def test_quantiles_of_a_known_row() -> None:
    row = [3.0, 1.0, 2.0, 5.0, 4.0]
    assert [quantile(row, f) for f in (0.0, 0.1, 0.5, 0.9, 1.0)] == pytest.approx([1.0, 1.4, 3.0, 4.6, 5.0])
    assert summarise([7.0]).p10 == summarise([7.0]).p90 == 7.0


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_the_median_is_the_standard_librarys_and_the_spread_encloses_it(values: list[float]) -> None:
    summary = summarise(values)
    assert summary.median == pytest.approx(statistics.median(values), rel=1e-9, abs=1e-6)
    assert min(values) <= summary.p10 <= summary.p90 <= max(values)
    assert summary.repeats == len(values)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_what_has_no_quantile_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        quantile(values, 0.5)
    with pytest.raises(ValueError, match="fraction"):
        quantile([1.0], 1.5)


def test_variants_take_turns_and_the_warm_up_is_thrown_away() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    values = interleave({"a": lambda: measure("a"), "b": lambda: measure("b")}, repeats=2, warm_up=1)
    assert "".join(calls) == "abbaab"
    assert values == {"a": [4.0, 5.0], "b": [3.0, 6.0]}
    with pytest.raises(ValueError, match="at least one repeat"):
        interleave({}, repeats=0)


def test_a_record_is_one_line_of_json_that_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    write_json_lines(path, [RECORD])
    write_json_lines(path, [RECORD])  # appends
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == second == dataclasses.asdict(RECORD)
    assert list(first) == KEYS
    assert (first["median"], first["p10"], first["p90"], first["repeats"]) == (20.0, 12.0, 28.0, 3)
    assert set(first["versions"]) == {"ptpathways", "torch", "torch_xla", "python"}
    assert first["versions"]["ptpathways"] == core.__version__
    assert first["machine"]["cores"] > 0 and first["machine"]["memory_mib"] > 0 and first["machine"]["cpu"]
    assert first["date"].endswith("+00:00")


def test_texts_of_proc_are_read() -> None:
    assert cpu_model("processor : 0\nmodel name\t: Some CPU: fast\n") == "Some CPU: fast"
    assert cpu_model("") != ""
    assert memory_kib("Name: x\nRss:   1234 kB\nPss: 7 kB\n", "Rss") == 1234
    with pytest.raises(ValueError, match="expected a line 'Pss'"):
        memory_kib("Rss: 1 kB", "Pss")
    with pytest.raises(ValueError, match="must be in kB"):
        memory_kib("Rss: 1 MB", "Rss")


SMAPS = """\
5600-5700 r-xp 00001000 08:01 42                         /opt/plugin dir/libpjrt.so
Size:                100 kB
Rss:                  80 kB
SwapPss:               0 kB
7f00-7f10 rw-p 00000000 00:00 0 
Rss:                  12 kB
7f10-7f20 rw-p 00000000 00:00 0                          [heap]
Rss:                   4 kB
"""  # noqa: W291


def test_resident_memory_is_told_by_mapping() -> None:
    found = list(mappings(SMAPS))
    assert found == [("/opt/plugin dir/libpjrt.so", 80), ("", 12), ("[heap]", 4)]
    assert [part_of(path, "/opt/plugin dir/libpjrt.so") for path, _ in found] == ["plugin library", "heap", "heap"]
    assert part_of("/usr/bin/python3.11", "p") == part_of("/x/lib-dynload/_ssl.so", "p") == "Python"
    assert part_of("/x/_native.cpython-311-x86_64-linux-gnu.so", "p") == "ptpathways and libzmq"
    assert part_of("/lib/x86_64-linux-gnu/libc.so.6", "p") == "system libraries"


def test_the_own_process_adds_up() -> None:
    from ptpathways.bench._memory import memory_of

    memory = memory_of(os.getpid(), "/nowhere")
    assert sum(memory.parts.values()) == pytest.approx(memory.rss, rel=0.05)
    assert 0 < memory.pss <= memory.rss and memory.parts["Python"] > 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(113_421.7, "113,422"), (86.94, "86.9"), (1.234, "1.23"), (0.03912, "0.0391"), (0.0, "0.00"), (1e-5, "0.0000100")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("goal", "verdict"), [(Goal(20, at_least=True), "≥ 20 met"), (Goal(19, False), "≤ 19 missed")])
def test_the_table_says_whether_a_goal_is_met(goal: Goal, verdict: str) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    rival = dataclasses.replace(RECORD, system="rival")
    show_records([RECORD, rival], dataclasses.replace(PLAIN, goals={"pipelined": goal}), console)
    text = console.export_text()
    assert "dispatch: 2 hosts, 4 devices" in text
    assert text.count(verdict) == 1, text
    assert core.__version__ in text


def test_the_plot_has_a_panel_for_each_unit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [RECORD, dataclasses.replace(RECORD, unit="us", variant="round trip")]
    plot(records, PLAIN, tmp_path / "one.svg")
    plot(records[:1], PLAIN, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_text().count('id="axes_') == 2
    assert (tmp_path / "two.svg").read_text().count('id="axes_') == 1


def test_an_unknown_workload_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(core.InvalidOption, match=r"one of dispatch, parity, stages, .*, got 'speed'"):
        bench.run("speed", BenchOptions())
    assert bench.main(["speed"]) == 2
    errors = capsys.readouterr().err
    assert "'speed'" in errors
    assert all(name in errors for name in bench.WORKLOADS)


def test_without_a_name_the_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in bench.WORKLOADS)


def test_options_are_checked_and_reach_the_workload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(core.InvalidOption, match="hosts must be at least 1, got 0"):
        BenchOptions(hosts=0)
    assert bench.main(["transfer", "--hosts", "1"]) == 2
    assert "at least 2 hosts, got 1" in capsys.readouterr().err
    seen: list[BenchOptions] = []

    def measure(options: BenchOptions) -> list[Record]:
        seen.append(options)
        return [RECORD]

    monkeypatch.setitem(bench.WORKLOADS, "dispatch", dataclasses.replace(bench.WORKLOADS["dispatch"], run=measure))
    path = tmp_path / "figures.jsonl"
    arguments = ["--hosts", "3", "--devices-per-host", "2", "--repeats", "4", "--quick", "--json", str(path)]
    assert bench.main(["dispatch", *arguments]) == 0
    assert seen == [BenchOptions(3, 2, 4, True)]
    assert json.loads(path.read_text())["workload"] == "dispatch"
    assert seen[0].cluster(hosts=1) == core.Options(hosts=3, devices_per_host=2)
    assert BenchOptions().cluster(hosts=4) == core.Options(hosts=4)
    assert (BenchOptions().repeats_or(7, 2), BenchOptions(quick=True).repeats_or(7, 2)) == (7, 2)


def test_only_workloads_of_any_platform_take_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["train", "--platform", "cuda"]) == 2
    assert "one of workload transfer, device, got cuda of train" in capsys.readouterr().err
    assert BenchOptions(platform="cuda", plugin="/p.so").cluster(hosts=1) == core.Options(
        hosts=1, platform="cuda", plugin="/p.so"
    )
    with pytest.raises(core.InvalidOption, match="measures 1 device of 1 host, got 2"):
        bench.run("device", BenchOptions(hosts=2))


def test_losses_of_two_systems_are_compared() -> None:
    from ptpathways.bench._device import check_losses

    check_losses({"ptpathways": [10.98, 9.001], "jax": [10.98, 9.0]})
    with pytest.raises(core.PathwaysError, match="expected the same losses"):
        check_losses({"ptpathways": [10.98, 9.1], "jax": [10.98, 9.0]})


def test_importing_the_room_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, ptpathways.bench; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
