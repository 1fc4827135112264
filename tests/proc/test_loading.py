"""``torch.load`` onto devices and from them: every ``map_location`` that torch knows, and what is said of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

from tests.proc import loading_scenarios as scenarios
from tests.scenarios import limited, needs_native, outcome_of

pytestmark = [needs_native, limited]

WAYS = [
    f"{place}, {kind}"
    for place in ("cpu", "device")
    for kind in ("state, {}, weights", "state, {}, all", "model, {}, all")
]


def outcome() -> Any:
    return outcome_of(Path(scenarios.__file__))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["device", "slice", "text", "no number", "table", "table of devices"])
def test_tensors_are_where_map_location_says_with_their_values_and_ties(way: str, name: str) -> None:
    found = outcome()
    place = found["whole"] if name in ("device", "no number") else found["one"]
    assert found[way.format(name)] == [[place], True, True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["cpu", "function"])
def test_tensors_come_back_to_the_cpu(way: str, name: str) -> None:
    assert outcome()[way.format(name)] == [["cpu"], True, True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["none", "function of no opinion"])
def test_without_another_place_tensors_go_where_they_were_saved(way: str, name: str) -> None:
    found = outcome()
    assert found[way.format(name)] == [["cpu" if way.startswith("cpu") else found["whole"]], True, True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["unbound", "too large"])
def test_a_place_that_is_no_slice_is_refused_with_what_to_do(way: str, name: str) -> None:
    said = outcome()[way.format(name)]
    assert said.startswith("SliceUnavailable: torch.load: a tensor") and "map_location=pw.device()" in said


@pytest.mark.parametrize("kind", ["weights", "all"])
def test_files_of_torchs_old_format_are_loaded_to_the_cpu_and_refused_elsewhere(kind: str) -> None:
    found = outcome()
    for place in ("cpu", "device"):
        assert found[f"{place}, old, cpu, {kind}"][:2] == [["cpu"], True]
        for name in ("device", "slice", "text", "table"):
            said = found[f"{place}, old, {name}, {kind}"]
            assert said.startswith("InvalidOption: torch.load") and 'map_location="cpu"' in said
    assert found[f"device, old, none, {kind}"].startswith("InvalidOption")


def test_an_optimizers_state_follows_its_parameters() -> None:
    assert outcome()["moved"] == [True] * 20


def test_files_that_are_mapped_pickles_and_tied_values() -> None:
    found = outcome()
    assert found["mapped"]
    assert abs(found["sizes"][0] - found["sizes"][1]) < 2000, "tied weights are in the file twice"
    assert found["gradients"] == [True, False]
    assert found["pickled after an error"] == found["whole"]
    assert found["for accelerate"]


def test_models_go_through_safetensors_with_their_ties() -> None:
    pytest.importorskip("safetensors")
    assert outcome()["safetensors"] == [True] * 4


@pytest.mark.parametrize("what", ["state", "parameters", "from the cpu"])
def test_what_is_assigned_keeps_ties_identity_and_optimizers(what: str) -> None:
    assert outcome()["assigned"][what] == [True] * 5
