"""Google TPUs: libtpu is a PJRT plugin."""

from __future__ import annotations

import os
from pathlib import Path

from ptpathways.platforms._plugin import Launch, Plugin, describe_package, package_folder, plugin_file

_PATH_VARIABLE = "TPU_LIBRARY_PATH"


class TpuPlatform:
    """XLA on the TPUs of this host. One process owns all of them, so one worker per host."""

    name = "tpu"
    packages = ("libtpu",)
    extra = "tpu"

    def candidates(self) -> list[Plugin]:
        override = os.environ.get(_PATH_VARIABLE)
        found = plugin_file(self.name, Path(override), _PATH_VARIABLE) if override else []
        folder = package_folder("libtpu")
        packaged = plugin_file(self.name, folder and folder / "libtpu.so", describe_package("libtpu"))
        if packaged and found and packaged[0].path == found[0].path:  # PyTorch/XLA sets the variable to the package's
            return packaged
        return found + packaged

    def launch(self, plugin: Plugin, devices: int, index: int, workers: int) -> Launch:
        """libtpu has no option for the number of devices; it owns all that the host has.

        Nor has it one for the host's number: it knows its pod from the machine's metadata, or from ``TPU_WORKER_ID``
        and ``TPU_WORKER_HOSTNAMES``.
        """
        return Launch({}, {"TPU_LIBRARY_PATH": plugin.path}, node_id_option="", num_nodes_option="")
