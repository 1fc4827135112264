"""CPU devices: XLA's CPU client as a PJRT plugin."""

from __future__ import annotations

import os

from ptpathways.platforms._plugin import Launch, Plugin, describe_package, files_on_path, package_folder, plugin_file

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


class CpuPlatform:
    """XLA on the host's cores; one process can have any number of CPU devices."""

    name = "cpu"
    packages = ("fastatomstruct-xla-cpu", "lammps-jax-pjrt-cpu")

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

    def launch(self, plugin: Plugin, devices: int, index: int) -> Launch:
        """``cpu_device_count``, and for several devices a thread pool that cannot starve.

        Freed device memory stays with the process, for the next step. ``max`` and its relatives keep nan, as torch's
        do, unless ``XLA_FLAGS`` says otherwise.

        XLA sizes its CPU thread pool by ``NPROC``, by default the number of cores. Every device of an in-process
        collective blocks one thread of it, so with fewer threads than devices the rendezvous never completes and XLA
        aborts the process. One device has no such collective and keeps the default.
        """
        environment = dict(_KEEP_FREED_MEMORY)
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_cpu_enable_fast_min_max" not in flags:
            environment["XLA_FLAGS"] = f"{flags} {_EXACT_MAXIMA}".strip()
        if devices > 1:
            environment["NPROC"] = str(max(_THREADS_MIN, _THREADS_PER_DEVICE * devices))
        return Launch({"cpu_device_count": devices}, environment)
