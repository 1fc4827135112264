"""Targets to compile for: their names, and what a plugin is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptpathways import core, platforms


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "plugin.so"
    path.touch()
    return str(path)


def test_gpus_are_hosts_of_gpus(plugin: str) -> None:
    target = platforms.find_target("H200:2x8", plugin)
    assert (target.chip.name, target.devices, target.devices_per_host) == ("h200", 16, 8)
    assert target.options["topology"] == "1x2x8"
    config = str(target.options["target_config"])
    assert "core_count: 132" in config
    assert "cuda_compute_capability { major: 9 }" in config
    assert f"device_memory_size: {target.chip.memory}" in config


def test_tpus_are_a_torus(plugin: str) -> None:
    target = platforms.find_target("v5p:2x2x4", plugin)
    assert (target.topology, target.devices, target.devices_per_host) == ("v5p:2x2x4", 16, 16)
    assert target.options == {}
    assert target.environment["TPU_SKIP_MDS_QUERY"] == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "chip must be one of a100, h100"),
        ("h300:1x8", "chip must be one of .* got 'h300'"),
        ("h200", "hosts and GPUs of each, such as h200:2x8, got 'h200'"),
        ("h200:8", "hosts and GPUs of each"),
        ("h200:0x8", "hosts and GPUs of each"),
        ("h200:1x8x2", "hosts and GPUs of each"),
        ("v5e", "a torus, such as v5e:2x4"),
        ("v5e:4", "a torus"),
        ("v5e:2x2x2x2", "a torus"),
    ],
)
def test_what_is_no_target_is_refused(plugin: str, text: str, message: str) -> None:
    with pytest.raises(core.InvalidOption, match=message):
        platforms.find_target(text, plugin)


def test_every_chip_has_figures_that_can_be() -> None:
    for chip in platforms.CHIPS.values():
        assert chip.platform in platforms.PLATFORMS
        assert 10e9 < chip.memory < 400e9
        assert 50e12 < chip.flops < 5000e12
        assert 0.4e12 < chip.bandwidth < 10e12
        assert chip.network <= chip.link < chip.bandwidth
        assert chip.source
        assert bool(chip.target_config) == (chip.platform == "cuda")
