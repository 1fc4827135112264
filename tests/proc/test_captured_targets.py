"""``CapturedStep.compile_for`` and ``save``: the program that a captured step becomes, and what compilers say of it.

The compilers of GPUs and TPUs are those of ``make plugins``; without them the programs are tested, and run on the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc.captured_target_scenarios import HIDDEN, ROWS, WIDTH
from tests.scenarios import ROOT, needs_native

pytestmark = [needs_native, pytest.mark.timeout(400)]

PLUGINS = ROOT / "build" / "plugins"
TARGETS = {"v5e:2x4": "libtpu/libtpu.so", "h200:1x8": "jax_plugins/xla_cuda13/xla_cuda_plugin.so"}
INSTALLED = [target for target, plugin in TARGETS.items() if (PLUGINS / plugin).is_file()]
PARAMETERS = 2 * WIDTH * HIDDEN + HIDDEN + WIDTH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    program = Path(__file__).with_name("captured_target_scenarios.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), *INSTALLED],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_step_is_its_computation_with_state_that_is_given_up(found: Any) -> None:
    train = found["train"]
    assert (train["slices"], train["nodes"]) == (["data=4"], ["compute"])
    arguments = train["arguments"]
    assert arguments["model.0.weight"] == [f"f32[{HIDDEN},{WIDTH}]", True]
    assert arguments["optimizer.state.0.exp_avg_sq"] == [f"f32[{HIDDEN},{WIDTH}]", True]
    batches = [f"f32[{ROWS},{WIDTH}]{{data,-}}", False]
    assert arguments["argument0"] == arguments["argument1"] == batches
    donated = [name for name, (_, given_up) in arguments.items() if given_up]
    assert len(donated) == 4 + 4 * 3  # parameters; per parameter two moments and the step's number
    assert train["donated"] == [len(donated)]
    assert {f"new.{name}" for name in donated} <= set(train["results"])
    assert "result0" in train["results"]
    assert {name.partition(".")[0] for name in arguments} >= {"seed", "rate", "number"}
    assert found["same without arguments"]


def test_no_module_has_calls_that_only_our_workers_know(found: Any) -> None:
    for step in ("train", "prepared", "halves", "method"):
        assert found[step]["own_calls"] == []


def test_it_neither_runs_the_step_nor_changes_it(found: Any) -> None:
    assert found["untouched"] and found["goes on"]


def test_layouts_name_the_axes_of_the_mesh_that_the_loop_was_prepared_with(found: Any) -> None:
    prepared = found["prepared"]
    assert prepared["slices"] == ["data=2,model=2"]
    assert prepared["arguments"]["model.0.weight"] == [f"f32[{HIDDEN},{WIDTH}]{{model,-}}", True]
    assert prepared["arguments"]["argument0"] == [f"f32[{ROWS},{WIDTH}]{{data,-}}", False]


def test_a_step_over_slices_has_their_transfers(found: Any) -> None:
    halves = found["halves"]
    assert halves["slices"] == ["data=2", "data=2"]
    assert halves["nodes"].count("transfer") == 2 and halves["nodes"].count("compute") >= 4
    assert halves["arguments"]["argument0"][0].startswith(f"f32[4,{WIDTH}]")  # not of the batches of 8


def test_a_step_that_is_a_method(found: Any) -> None:
    assert found["method"]["nodes"] == ["compute"]
    assert found["method"]["arguments"]["argument1"][0].startswith(f"f32[8,{WIDTH}]")
    assert not any(given_up for _, given_up in found["method"]["arguments"].values())


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("never called", "is not captured yet, so it is not known what it computes: call it until two calls in a row"),
        ("other shapes", f"(float32[4, {WIDTH}] on cpu, float32[4, {WIDTH}] on cpu), and is captured for (float32[16,"),
        ("another structure", f"y=float32[{ROWS}, {WIDTH}] on cpu), and is captured for"),
        ("several kinds", "example arguments must say which is meant"),
        ("refused", "is not captured, and traced at every call: it changes the length of seen"),
    ],
)
def test_what_cannot_be_compiled_is_refused(found: Any, what: str, said: str) -> None:
    refused = found["refused"][what]
    assert refused.startswith("InvalidProgram: step ") and said in refused, refused


def test_bad_targets_are_refused(found: Any) -> None:
    refused = found["refused"]
    assert refused["target"].startswith("InvalidOption: a target's chip must be one of"), refused
    for said in refused["too few devices"]:
        assert "must have at least the 4 devices of slice" in said, said


@pytest.mark.parametrize("name", ["train", "prepared", "halves"])
def test_a_saved_step_runs_on_cpu_devices(found: Any, folder: Path, name: str) -> None:
    command = ["replay", str(folder / f"{name}.zip"), "--hosts", "2", "--devices-per-host", "2", "--repeat", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "ptpathways", *command, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(json.loads(done.stdout)["results"]) == len(found[name]["results"])


@pytest.mark.parametrize("target", TARGETS)
def test_it_compiles_for_chips_that_are_not_here(found: Any, target: str) -> None:
    if target not in INSTALLED:
        pytest.skip(f"the plugin of {target} is not in build/plugins; `make plugins` puts it there")
    whole = found["compiled"][INSTALLED.index(target)]
    (step,) = whole["functions"]
    assert (step["error"], step["devices"], step["calls"], whole["used_devices"]) == ("", 4, 1, 4)
    state = 3 * 4 * PARAMETERS  # in bytes, on each device: parameters and two moments
    assert state <= step["aliased_bytes"] <= step["argument_bytes"] < 1.5 * state
    # The state counts once, and the gradients that the call leaves behind beside it.
    assert state + 4 * PARAMETERS <= whole["peak_bytes"] <= whole["device_memory"]
    assert whole["largest"][0]["bytes"] == 4 * WIDTH * HIDDEN
    assert [use["axes"] for use in step["collectives"] if use["opcode"] == "all-reduce"] == ["data"]
    products = 6 * ROWS * WIDTH * HIDDEN * 2 / 4  # of two layers, forward and backward, on each device; not for x
    assert 0.8 * products <= step["flops"] and whole["step_seconds"] > 0
    axes = {use["axes"] for use in found["prepared for"][INSTALLED.index(target)]["functions"][0]["collectives"]}
    assert axes == {"data", "model"}
