"""Which plugin a worker gets: found by package without importing it, or named by its path."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ptpathways import core, platforms
from ptpathways.platforms import _cuda
from tests.scenarios import ROOT


def _install(root: Path, relative: str) -> Path:
    file = root / relative
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\x7fELF")
    return file


def test_the_installed_cpu_plugin_is_found_with_its_version() -> None:
    plugin = platforms.find_plugin("cpu")
    assert Path(plugin.path).name == "libpjrt_cpu.so" and Path(plugin.path).is_file()
    assert plugin.source.startswith("fastatomstruct-xla-cpu 20")
    assert plugin in platforms.discover()


def test_a_path_needs_no_known_platform(tmp_path: Path) -> None:
    file = _install(tmp_path, "lib/pjrt_new.so")
    plugin = platforms.find_plugin("new", str(file))
    assert plugin == platforms.Plugin("new", str(file), "option")
    assert platforms.launch_of(plugin, 4) == platforms.Launch()


def test_a_path_that_is_no_file_is_named() -> None:
    with pytest.raises(core.PluginNotFound, match=r"'/nowhere/x\.so'"):
        platforms.find_plugin("cpu", "/nowhere/x.so")


def test_an_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(core.InvalidOption, match=r"cpu, cuda, tpu.*'abacus'"):
        platforms.find_plugin("abacus")


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_what_is_not_installed_says_what_to_install(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(core.PluginNotFound) as caught:
        platforms.find_plugin(platform)
    for package in platforms.PLATFORMS[platform].packages:
        assert f"`pip install {package}`" in str(caught.value)


def test_the_newest_cuda_is_preferred_and_told_where_its_toolkit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for major in (12, 13):
        _install(tmp_path, f"jax_plugins/xla_cuda{major}/xla_cuda_plugin.so")
    _install(tmp_path, "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    plugin = platforms.find_plugin("cuda")
    assert "xla_cuda13" in plugin.path and plugin.source.startswith("jax-cuda13-pjrt")
    launch = platforms.launch_of(plugin, 2)
    assert launch.create_options["visible_devices"] == [0, 1]
    toolkit = tmp_path / "nvidia" / "cuda_nvcc"
    assert launch.environment["XLA_FLAGS"] == f"--xla_dump_to=/x --xla_gpu_cuda_data_dir={toolkit}"


def test_flags_of_the_cpu_compiler_are_added_to_the_users_unless_they_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = platforms.find_plugin("cpu")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    flags = platforms.launch_of(plugin, 1).environment["XLA_FLAGS"].split()
    assert flags == ["--xla_cpu_enable_fast_min_max=false", "--xla_cpu_prefer_vector_width=512"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x --xla_cpu_prefer_vector_width=256")
    flags = platforms.launch_of(plugin, 1).environment["XLA_FLAGS"].split()
    assert flags == ["--xla_dump_to=/x", "--xla_cpu_prefer_vector_width=256", "--xla_cpu_enable_fast_min_max=false"]


@pytest.mark.parametrize(
    ("index", "devices", "count", "gpus"),
    [(0, 1, 4, [0]), (3, 1, 4, [3]), (4, 1, 4, [0]), (1, 2, 4, [2, 3]), (1, 3, 4, [0, 1, 2]), (1, 1, 0, [0])],
)
def test_workers_of_a_machine_share_out_its_gpus(index: int, devices: int, count: int, gpus: list[int]) -> None:
    assert _cuda.gpus_of(index, devices, count) == gpus


@pytest.mark.parametrize(
    ("workers", "devices", "count", "sharing"),
    [(1, 1, 1, 1), (4, 1, 4, 1), (2, 1, 1, 2), (5, 1, 4, 2), (4, 2, 4, 2), (3, 1, 0, 3)],
)
def test_workers_that_share_a_gpu_divide_its_memory(workers: int, devices: int, count: int, sharing: int) -> None:
    assert _cuda.sharing_of(workers, devices, count) == sharing


def test_only_workers_that_share_a_gpu_are_given_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    plugin = platforms.find_plugin("cuda")
    assert "memory_fraction" not in platforms.launch_of(plugin, 1).create_options
    assert platforms.launch_of(plugin, 1, 1, 3).create_options["memory_fraction"] == 0.25


def test_libtpu_can_be_named_by_the_variable_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _install(tmp_path, "libtpu/libtpu.so")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(file))
    plugin = platforms.find_plugin("tpu")
    assert plugin.path == str(file)
    assert platforms.launch_of(plugin, 4).environment == {"TPU_LIBRARY_PATH": str(file)}


@pytest.mark.parametrize(("devices", "threads"), [(1, None), (2, "32"), (8, "32"), (16, "64")])
def test_cpu_devices_that_meet_in_collectives_get_threads_enough(devices: int, threads: str | None) -> None:
    launch = platforms.launch_of(platforms.find_plugin("cpu"), devices)
    assert launch.create_options == {"cpu_device_count": devices}
    assert launch.environment.get("NPROC") == threads


def test_looking_for_plugins_imports_neither_them_nor_torch() -> None:
    script = (
        "import sys; from ptpathways import platforms; platforms.discover(); "
        "print([m for m in ('torch', 'torch_xla', 'numpy', 'jax', 'fastatomstruct_xla_cpu') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_onednn_is_found_by_its_package_and_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PTPATHWAYS_ONEDNN", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert platforms.find_onednn() == ""
    library = _install(tmp_path, "lib/libdnnl.so.3")
    _install(tmp_path, "onednn_cpu_gomp-2023.2.0.dist-info/METADATA").write_text("Name: onednn-cpu-gomp\n")
    (tmp_path / "onednn_cpu_gomp-2023.2.0.dist-info/RECORD").write_text("lib/libdnnl.so,,\nlib/libdnnl.so.3,,\n")
    assert platforms.find_onednn() == str(library)
    plugin = platforms.Plugin("cpu", "x", "option")
    assert platforms.launch_of(plugin, 1).kernels == str(library)
    monkeypatch.setenv("PTPATHWAYS_ONEDNN", "off")
    assert platforms.launch_of(plugin, 1).kernels == "off"


def test_extras_that_messages_name_are_there_and_bring_the_first_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for platform in platforms.PLATFORMS.values():
        brought = project["optional-dependencies"][platform.extra] if platform.extra else project["dependencies"]
        assert any(line.startswith(f"{platform.packages[0]}==") for line in brought), platform.name


def test_cuda_is_told_not_to_wait_for_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PJRT_GPU_ENABLE_ASYNC_DISPATCH", raising=False)
    plugin = platforms.find_plugin("cuda")
    assert platforms.launch_of(plugin, 1).environment["PJRT_GPU_ENABLE_ASYNC_DISPATCH"] == "1"
    monkeypatch.setenv("PJRT_GPU_ENABLE_ASYNC_DISPATCH", "0")
    assert "PJRT_GPU_ENABLE_ASYNC_DISPATCH" not in platforms.launch_of(plugin, 1).environment
