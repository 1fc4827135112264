"""Devices to compile for that this machine need not have: named chips, and how a plugin is told of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ptpathways import core
from ptpathways.platforms._discover import find_plugin
from ptpathways.platforms._plugin import OptionValue, Plugin

_GIB = 1 << 30
_TPU = re.compile(r"\d+(x\d+){1,2}")
_GPU = re.compile(r"(\d+)x(\d+)")
# libtpu looks for a TPU's metadata when it is loaded, which takes minutes and prints errors where there is no TPU; and
# it lets one process of a machine load it at a time, since that is to own the TPUs.
_NO_TPU_HERE = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_MIN_LOG_LEVEL": "3",
}
_QUIET_CUDA = {"TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True, slots=True)
class Chip:
    """One kind of accelerator, as its maker describes it: one of its devices, where it has several."""

    name: str
    platform: str
    memory: int
    """Bytes."""
    flops: float
    """Peak of bf16 products without sparsity, in floating-point operations per second."""
    bandwidth: float
    """Of its memory, in bytes per second."""
    link: float
    """To other chips of its host or torus, in one direction, in bytes per second."""
    network: float
    """To chips of other hosts, in bytes per second."""
    source: str
    """Where the figures are from."""
    target_config: Mapping[str, float] = field(default_factory=dict)
    """What XLA's compiler for GPUs asks about a GPU (``GpuDeviceInfoProto``), beside what all of them have."""
    devices: int = 1
    """Of a chip: its cores, where programs see each by itself."""


_NVIDIA = "NVIDIA's data sheet; XLA's public target specifications"
_CLOUD_TPU = "Google Cloud's TPU documentation"
# One ConnectX-7 of 400 Gbit/s for each GPU, as in NVIDIA's reference systems; A100 systems have 200 Gbit/s.
_NETWORK_400 = 50e9
_NETWORK_200 = 25e9


def _gpu(cores: int, fpus: int, shared: int, cache: int, clock: float, capability: int) -> Mapping[str, float]:
    return {
        "core_count": cores,
        "fpus_per_core": fpus,
        "shared_memory_per_core": shared,
        "shared_memory_per_block_optin": shared - 1024,
        "l2_cache_size": cache,
        "clock_rate_ghz": clock,
        "capability": capability,
    }


_HOPPER = 233472
_AMPERE = 167936
_CHIPS = (
    Chip(
        "a100", "cuda", 85_100_068_864, 312e12, 2.039e12, 300e9, _NETWORK_200, _NVIDIA,
        _gpu(108, 64, _AMPERE, 41_943_040, 1.41, 8),
    ),
    Chip(
        "h100", "cuda", 84_942_979_072, 989.4e12, 3.352e12, 450e9, _NETWORK_400, _NVIDIA,
        _gpu(132, 128, _HOPPER, 52_428_800, 1.98, 9),
    ),
    Chip(
        "h200", "cuda", 151_397_597_184, 989.4e12, 4.8e12, 450e9, _NETWORK_400, _NVIDIA,
        _gpu(132, 128, _HOPPER, 52_428_800, 1.98, 9),
    ),
    Chip(
        "b200", "cuda", 191_514_411_008, 2250e12, 7.672e12, 900e9, _NETWORK_400, _NVIDIA,
        _gpu(148, 128, _HOPPER, 132_644_864, 1.965, 10),
    ),
    Chip("v3", "tpu", 16 * _GIB, 61.5e12, 0.45e12, 164e9, 164e9, _CLOUD_TPU, devices=2),
    Chip("v4", "tpu", 32 * _GIB, 275e12, 1.228e12, 300e9, 300e9, _CLOUD_TPU),
    Chip("v5e", "tpu", 16 * _GIB, 197e12, 0.819e12, 200e9, 200e9, _CLOUD_TPU),
    Chip("v5p", "tpu", 95 * _GIB, 459e12, 2.765e12, 600e9, 600e9, _CLOUD_TPU),
    Chip("v6e", "tpu", 32 * _GIB, 918e12, 1.638e12, 400e9, 400e9, _CLOUD_TPU),
)  # fmt: skip

CHIPS: dict[str, Chip] = {chip.name: chip for chip in _CHIPS}
"""Every chip that can be compiled for, by its name."""


@dataclass(frozen=True, slots=True)
class Target:
    """Chips, and what their plugin needs to know of them (``PJRT_TopologyDescription_Create``)."""

    text: str
    chip: Chip
    devices: int
    devices_per_host: int
    """Between which ``Chip.link`` is the way; all of a TPU's torus."""
    plugin: Plugin
    topology: str
    options: Mapping[str, OptionValue]
    environment: Mapping[str, str]
    """To be set before the plugin is loaded."""


def find_target(text: str, plugin: str = "") -> Target:
    """The target that ``text`` names: ``h200:2x8`` is 2 hosts of 8 GPUs, ``v5e:4x4`` a torus of 16 chips.

    Args:
        plugin: path of the PJRT plugin; default: the best that is installed.

    Raises:
        InvalidOption: no such chip, or no such form.
        PluginNotFound: the plugin that compiles for it is not installed; the message says what to install.
    """
    text = text.strip()
    name, _, shape = text.partition(":")
    chip = CHIPS.get(name.lower())
    if chip is None:
        raise core.InvalidOption(f"a target's chip must be one of {', '.join(CHIPS)}, got {name!r} in {text!r}")
    if chip.platform == "cuda":
        return _gpus(text, chip, shape, find_plugin("cuda", plugin))
    if not _TPU.fullmatch(shape):
        raise core.InvalidOption(
            f"a target of TPUs must be a chip and a torus, such as {chip.name}:2x4 "
            f"or of three dimensions {chip.name}:2x2x2, got {text!r}"
        )
    devices = chip.devices * math.prod(int(size) for size in shape.split("x"))
    topology = f"{chip.name}:{shape}"
    return Target(text, chip, devices, devices, find_plugin("tpu", plugin), topology, {}, _NO_TPU_HERE)


def _gpus(text: str, chip: Chip, shape: str, plugin: Plugin) -> Target:
    matched = _GPU.fullmatch(shape)
    hosts, per_host = (int(size) for size in matched.groups()) if matched else (0, 0)
    if hosts < 1 or per_host < 1:
        raise core.InvalidOption(
            f"a target of GPUs must be a chip, hosts and GPUs of each, such as {chip.name}:2x8, got {text!r}"
        )
    options: dict[str, OptionValue] = {"target_config": _target_config(chip), "topology": f"1x{hosts}x{per_host}"}
    return Target(text, chip, hosts * per_host, per_host, plugin, "", options, _QUIET_CUDA)


def _target_config(chip: Chip) -> str:
    """``stream_executor.GpuTargetConfigProto`` (openxla/xla, device_description.proto), as text."""
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "threads_per_core_limit": 2048,
        "block_dim_limit_x": 2147483647,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "memory_bandwidth": int(chip.bandwidth),
        "device_memory_size": chip.memory,
        **{key: value for key, value in chip.target_config.items() if key != "capability"},
    }
    lines = [f"  {key}: {value}" for key, value in info.items()]
    lines.append(f"  cuda_compute_capability {{ major: {int(chip.target_config['capability'])} }}")
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 12 }",
            "runtime_version { major: 13 minor: 0 patch: 0 }",
            f'device_description_str: "NVIDIA {chip.name.upper()}"',
        ]
    )
