"""``ptpathways worker`` and ``ptpathways controller``: the parts of a standing cluster."""

from __future__ import annotations

import argparse
import os
import signal
import socket

from ptpathways import core, native, platforms
from ptpathways.launch import WorkerOptions, worker_command, worker_environment

DEFAULT_BIND = "tcp://127.0.0.1:7450"


def worker(arguments: argparse.Namespace) -> int:
    """Becomes the worker's process; does not return.

    Raises:
        PluginNotFound, InvalidOption: as ``platforms.find_plugin``.
    """
    options = WorkerOptions(
        controller=_endpoint(arguments.join),
        name=arguments.name or f"{socket.gethostname()}-{os.getpid()}",
        plugin=platforms.find_plugin(arguments.platform, arguments.plugin),
        devices=arguments.devices,
        island=arguments.island,
        memory_limit_bytes=core.parse_bytes(arguments.memory_limit) if arguments.memory_limit else 0,
        data_endpoint=arguments.data_endpoint,
        log_level=arguments.log_level,
    )
    command = worker_command(options)
    os.execve(command[0], command, worker_environment(options))


def controller(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM.

    Raises:
        ConnectionFailed, InvalidOption: an endpoint cannot be bound.
    """
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # before the controller's threads start
    with native.translated():
        serving = native.Controller(
            {"bind": arguments.bind or [DEFAULT_BIND], "embedded": False, "log_level": arguments.log_level}
        )
    for endpoint in serving.endpoints:
        print(f"controller of cluster {serving.cluster} at {endpoint}", flush=True)
    print(f"  workers:  ptpathways worker --join {serving.endpoints[0]}", flush=True)
    print(f"  programs: PTPATHWAYS_ADDRESS={serving.endpoints[0]} python train.py", flush=True)
    number = signal.sigwait(numbers)
    serving.close(f"the controller was told to stop ({signal.Signals(number).name})")
    native.clean_up_shared_memory(serving.cluster)
    return 0


def _endpoint(address: str) -> str:
    """``HOST:PORT`` as an endpoint; endpoints as they are."""
    if address.startswith(("tcp://", "ipc://")):
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise core.InvalidOption(f"the controller's address must be HOST:PORT, tcp://... or ipc://..., got {address!r}")
    return f"tcp://{address}"
