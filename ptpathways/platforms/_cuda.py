"""NVIDIA GPUs: XLA's CUDA client, as JAX packages it."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from ptpathways.platforms._plugin import Launch, OptionValue, Plugin, describe_package, files_on_path, plugin_file

_MEMORY_FRACTION = 0.75
"""Of a GPU's memory, which XLA's client takes at most unless it is told otherwise."""


class CudaPlatform:
    """XLA on NVIDIA GPUs. CUDA's own libraries come with the extra ``ptpathways[cuda13]`` or from the system."""

    name = "cuda"
    packages = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")
    extra = "cuda13"

    def candidates(self) -> list[Plugin]:
        found: list[Plugin] = []
        for path in files_on_path("jax_plugins/xla_cuda1[23]/xla_cuda_plugin.so"):
            major = re.sub(r"\D", "", path.parent.name)
            found += plugin_file(self.name, path, describe_package(f"jax-cuda{major}-pjrt"))
        return sorted(found, key=lambda plugin: plugin.source, reverse=True)

    def launch(self, plugin: Plugin, devices: int, index: int, workers: int) -> Launch:
        """The next ``devices`` visible GPUs; memory is taken as it is needed, since others may use a GPU, too.

        Workers of one machine take GPUs in turn, and begin again with the first when there are no more. Those that
        share GPUs divide the memory that one worker would take, three quarters, evenly.

        Enqueueing a computation whose arguments have not arrived must not wait for them, for the worker's thread that
        enqueues also hears of lost hosts; so asynchronous dispatch is on unless ``PJRT_GPU_ENABLE_ASYNC_DISPATCH`` says
        otherwise.

        XLA needs ``ptxas`` and ``libdevice``; when they are installed as a package beside the plugin, ``XLA_FLAGS``
        says where.
        """
        count = _gpu_count()
        options: dict[str, OptionValue] = {
            "platform_name": "cuda",
            "preallocate": False,
            "visible_devices": gpus_of(index, devices, count),
        }
        if (sharing := sharing_of(workers, devices, count)) > 1:
            options["memory_fraction"] = _MEMORY_FRACTION / sharing
        environment: dict[str, str] = {}
        if "PJRT_GPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
            environment["PJRT_GPU_ENABLE_ASYNC_DISPATCH"] = "1"
        toolkit = _toolkit(Path(plugin.path))
        flags = os.environ.get("XLA_FLAGS", "")
        if toolkit is not None and "xla_gpu_cuda_data_dir" not in flags:
            environment["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={toolkit}".strip()
        return Launch(options, environment)


def gpus_of(index: int, devices: int, count: int) -> list[int]:
    """The GPUs of the ``index``-th worker of a machine with ``count`` of them; the plugin says if they are too few."""
    first = index % max(1, count // devices) * devices
    return list(range(first, first + devices))


def sharing_of(workers: int, devices: int, count: int) -> int:
    """How many of so many workers of a machine have the same GPU, at most."""
    return math.ceil(workers / max(1, count // devices))


def _gpu_count() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip()])
    return len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)])


def _toolkit(plugin: Path) -> Path | None:
    """The folder with ``bin/ptxas`` and ``nvvm/libdevice`` that NVIDIA's packages install, if any."""
    site = plugin.parents[2] / "nvidia" if len(plugin.parents) > 2 else None
    if site is None or not site.is_dir():
        return None
    for libdevice in sorted(site.glob("*/nvvm/libdevice")):
        return libdevice.parents[1]
    return None
