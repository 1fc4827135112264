"""CPU devices: XLA's CPU client as a PJRT plugin."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from ptpathways.platforms._plugin import Launch, Plugin, describe_package, files_on_path, package_folder, plugin_file

_ONEDNN = "onednn-cpu-gomp"
_THREADS_MIN = 32
_THREADS_PER_DEVICE = 4

# A device buffer of tens of MiB that comes fresh from the kernel costs more in page faults (about 30 ms for 64 MiB)
# than any copy into it. A training step frees and allocates the same sizes over and over, so glibc keeps what was
# freed: large blocks come from the heap, which is not given back, and all threads share one.
_KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_ARENA_MAX": "1",
}


# XLA's CPU compiler lets min and max skip nan unless it is told not to: the maximum of nan and 3 would be 3.
_EXACT_MAXIMA = "--xla_cpu_enable_fast_min_max=false"
# The compiler uses half of a processor's 512 bits unless it is told to use all. Others are not concerned.
_WIDE_VECTORS = "--xla_cpu_prefer_vector_width=512"


class CpuPlatform:
    """XLA on the host's cores; one process can have any number of CPU devices."""

    name = "cpu"
    packages = ("fastatomstruct-xla-cpu", "lammps-jax-pjrt-cpu")
    extra = ""

    def candidates(self) -> list[Plugin]:
        folder = package_folder("fastatomstruct_xla_cpu")
        found = plugin_file(self.name, folder and folder / "libpjrt_cpu.so", describe_package("fastatomstruct-xla-cpu"))
        source = describe_package("lammps-jax-pjrt-cpu")
        for module in ("lammps_jax_pjrt_cpu", "pjrt_cpu"):
            folder = package_folder(module)
            for path in sorted(folder.rglob("*pjrt*cpu*.so")) if folder else []:
                found += plugin_file(self.name, path, source)
        for path in files_on_path("jax_plugins/*cpu*/*.so"):
            found += plugin_file(self.name, path, source)
        return found

    def launch(self, plugin: Plugin, devices: int, index: int, workers: int) -> Launch:
        """``cpu_device_count``, and for several devices a thread pool that cannot starve.

        Freed device memory stays with the process, for the next step. ``max`` and its relatives keep nan, as torch's
        do, and vectors are as wide as the processor's, unless ``XLA_FLAGS`` says otherwise.

        XLA sizes its CPU thread pool by ``NPROC``, by default the number of cores. Every device of an in-process
        collective blocks one thread of it, so with fewer threads than devices the rendezvous never completes and XLA
        aborts the process. One device has no such collective and keeps the default.
        """
        environment = dict(_KEEP_FREED_MEMORY)
        flags = os.environ.get("XLA_FLAGS", "")
        own = [flag for flag in (_EXACT_MAXIMA, _WIDE_VECTORS) if flag.split("=")[0] not in flags]
        if own:
            environment["XLA_FLAGS"] = " ".join([*flags.split(), *own])
        if devices > 1:
            environment["NPROC"] = str(max(_THREADS_MIN, _THREADS_PER_DEVICE * devices))
        return Launch({"cpu_device_count": devices}, environment, find_onednn())


def find_onednn() -> str:
    """Path of oneDNN's library, or ``""`` when its package is not installed.

    ``PTPATHWAYS_ONEDNN`` names another file, or is ``off``.
    """
    chosen = os.environ.get("PTPATHWAYS_ONEDNN", "")
    if chosen:
        return chosen
    try:
        files = importlib.metadata.files(_ONEDNN) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = [path for file in files if file.name == "libdnnl.so.3" and (path := Path(file.locate())).is_file()]
    return str(found[0].resolve()) if found else ""
