"""``bench paper``: its processes on small simulated clusters, its layers by the real compiler (``make plugins``)."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from ptpathways.bench._child import Child
from ptpathways.bench._paper_models import Layout, Model
from tests.scenarios import ROOT, needs_native

pytestmark = needs_native

PROCESS = "ptpathways.bench._paper_process"
PLUGINS = ROOT / "build" / "plugins"
STEP_S = 0.02


def _seconds(hosts: int, islands: int, request: dict[str, Any], costs_us: dict[str, float], **links: float) -> float:
    costs = json.dumps({"cost_us": {**costs_us, "*": 1.0}, **links})
    with Child(PROCESS, str(hosts), "1", str(islands), costs, environment={"PYTHONPATH": str(ROOT)}) as child:
        found: float = child.ask({**request, "steps": 2})["seconds"]
    return found


def test_a_step_over_all_devices_takes_their_time() -> None:
    assert _seconds(4, 1, {"do": "spmd"}, {"step": STEP_S * 1e6}) >= STEP_S


def test_a_pipeline_takes_its_stages_time_and_its_bubble() -> None:
    request = {"do": "pipeline", "stages": 4, "microbatches": 8, "batch": 16, "length": 4, "width": 8}
    costs = {"forward*": 2000.0, "backward*": 4000.0}
    assert _seconds(4, 1, {**request, "schedule": "gpipe"}, costs) >= (8 + 3) * 6e-3


def test_islands_exchange_their_gradients_while_they_compute() -> None:
    """Eight gradients of 1 MB from each of two hosts to the other."""
    request = {"do": "islands", "islands": 2, "chunks": 8, "parameters": 2_000_000}
    costs = {"forward": 1e4, "backward": 5e3}
    assert _seconds(2, 2, request, costs) >= 0.05
    slow = _seconds(2, 2, request, costs, bandwidth_gbs=0.05)
    assert slow >= 0.95 * 8 * 1e6 / 0.05e9  # the network's time; devices compute meanwhile


@pytest.mark.skipif(not (PLUGINS / "libtpu" / "libtpu.so").is_file(), reason="libtpu is not in build/plugins")
def test_layers_compile_for_the_papers_chips() -> None:
    model = Model("small T5", 2, 64, 256, 4, 16, 16, 32, encoder_layers=2, encoder_length=64, vocabulary=512)
    path = os.pathsep.join([str(PLUGINS), str(Path(ROOT))])
    with Child(PROCESS, "1", "8", "1", "{}", environment={"PYTHONPATH": path}) as child:
        layout = dataclasses.asdict(Layout(4, 2, fully_sharded=True))
        found = child.ask({"do": "times", "model": dataclasses.asdict(model), "layout": layout, "batch": 16}, 300)
    assert set(found) == {"forward", "backward", "forward_encoder", "backward_encoder", "head", "update"}
    assert all(times["compute"] > 0 for times in found.values())
    assert found["backward"]["model"] > found["forward"]["model"] > 0
    assert found["backward"]["data"] > found["forward"]["data"] > 0
