"""Making our plugin the client of PyTorch/XLA, before PyTorch/XLA makes one of its own."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from ptpathways import core
from ptpathways.frontend.xla import _private, _replaced, _xla

PLUGIN_NAME = "PATHWAYS"

# torch_xla runs every Execute, and the end of every fetch, on one pool that by default has a thread per core. Execute
# of ours waits when the window of runs in flight is full; a fetch must then still find a thread.
_POOL_THREADS_MIN = 8


def check_not_started() -> None:
    """Raises RuntimeAlreadyStarted when PyTorch/XLA already has a client."""
    if "torch_xla" not in sys.modules:
        return

    if _xla.binding()._xla_runtime_is_initialized():
        raise core.RuntimeAlreadyStarted(
            "pw.init() must come before PyTorch/XLA starts its runtime, which it has done already (it does so when "
            "the first tensor goes to an XLA device, or when devices are asked for); move pw.init() up"
        )


def start(options: core.Options) -> int:
    """Imports torch_xla with our plugin as its client, and creates the client; the number of its devices.

    The client is created here and not by the first tensor, because autograd makes its threads at the first backward
    pass of the process: a device type that has no devices by then never gets any.

    Raises:
        VersionMismatch: torch or torch_xla lacks something that is used here.
        ConnectionFailed: torch_xla could not create the client; the message has its reason.
    """
    if options.backend == "pathways":
        os.environ["PJRT_DEVICE"] = PLUGIN_NAME
        os.environ["PJRT_DYNAMIC_PLUGINS"] = "1"
    else:
        os.environ["PJRT_DEVICE"] = "CPU"
        os.environ["CPU_NUM_DEVICES"] = str(options.device_count)
    if options.log_level in ("error", "warning"):
        # torch_xla warns of every plugin without a profiler, and XLA of what its developers plan; errors still show.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("XLA_THREAD_POOL_SIZE", str(max(_POOL_THREADS_MIN, os.cpu_count() or 1)))

    _private.check()
    _replaced.register()
    if options.backend == "pathways":
        _register_plugin(options.logical_devices)
    try:
        return int(_xla.binding()._xla_num_runtime_devices())
    except RuntimeError as error:
        raise core.ConnectionFailed(f"PyTorch/XLA could not start on this cluster: {error}") from error


def _register_plugin(logical_devices: int) -> None:
    from torch_xla.experimental import plugins

    from ptpathways import native

    class Plugin(plugins.DevicePlugin):
        """Tells torch_xla where our shared library is; the session to use is already known to that library."""

        def library_path(self) -> str:
            return native.library_path

        def client_create_options(self) -> dict[str, Any]:
            return {"logical_devices": logical_devices}

        def physical_chip_count(self) -> int:
            return 1

    plugins.register_plugin(PLUGIN_NAME, Plugin())


def leave_exit_to_parent() -> None:
    """In a forked child: PyTorch/XLA's exit handler would wait for threads that are not there."""
    import torch_xla

    atexit.unregister(torch_xla._prepare_to_exit)


def finish() -> None:
    """Lets torch_xla finish what it has begun, as its own exit handler does. It may run twice.

    That handler keeps the interpreter's lock while it waits, so other threads could not report the wait.
    """
    try:
        _xla.binding()._xla_wait_device_ops([])
    finally:
        _xla.binding()._prepare_to_exit()
