"""NVIDIA GPUs: XLA's CUDA client, as JAX packages it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ptpathways.platforms._plugin import Launch, OptionValue, Plugin, describe_package, files_on_path, plugin_file


class CudaPlatform:
    """XLA on NVIDIA GPUs. CUDA's own libraries come with the package's extra ``with-cuda`` or from the system."""

    name = "cuda"
    packages = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")

    def candidates(self) -> list[Plugin]:
        found: list[Plugin] = []
        for path in files_on_path("jax_plugins/xla_cuda1[23]/xla_cuda_plugin.so"):
            major = re.sub(r"\D", "", path.parent.name)
            found += plugin_file(self.name, path, describe_package(f"jax-cuda{major}-pjrt"))
        return sorted(found, key=lambda plugin: plugin.source, reverse=True)

    def launch(self, plugin: Plugin, devices: int) -> Launch:
        """The first ``devices`` visible GPUs; memory is taken as it is needed, since workers may share a GPU.

        XLA needs ``ptxas`` and ``libdevice``; when they are installed as a package beside the plugin, ``XLA_FLAGS``
        says where.
        """
        options: dict[str, OptionValue] = {
            "platform_name": "cuda",
            "preallocate": False,
            "visible_devices": list(range(devices)),
        }
        environment: dict[str, str] = {}
        toolkit = _toolkit(Path(plugin.path))
        flags = os.environ.get("XLA_FLAGS", "")
        if toolkit is not None and "xla_gpu_cuda_data_dir" not in flags:
            environment["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={toolkit}".strip()
        return Launch(options, environment)


def _toolkit(plugin: Path) -> Path | None:
    """The folder with ``bin/ptxas`` and ``nvvm/libdevice`` that NVIDIA's packages install, if any."""
    site = plugin.parents[2] / "nvidia" if len(plugin.parents) > 2 else None
    if site is None or not site.is_dir():
        return None
    for libdevice in sorted(site.glob("*/nvvm/libdevice")):
        return libdevice.parents[1]
    return None
