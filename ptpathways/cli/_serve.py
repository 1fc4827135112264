"""``ptpathways worker`` and ``ptpathways controller``: the parts of a standing cluster."""

from __future__ import annotations

import argparse
import os
import signal
import socket

from ptpathways import core, native, platforms
from ptpathways.cli._address import endpoint
from ptpathways.launch import WorkerOptions, worker_command, worker_environment

DEFAULT_BIND = "tcp://127.0.0.1:7450"


def worker(arguments: argparse.Namespace) -> int:
    """Becomes the worker's process; does not return.

    Raises:
        PluginNotFound, InvalidOption: as ``platforms.find_plugin``.
    """
    if arguments.island_hosts < 0 or (arguments.island_hosts > 0 and not arguments.island):
        raise core.InvalidOption(
            f"--island-hosts needs --island NAME and a number of at least 1, got {arguments.island_hosts} and "
            f"--island {arguments.island!r}"
        )
    if not 0 < arguments.island_timeout <= 86_400:
        raise core.InvalidOption(
            f"--island-timeout must be above 0 and at most 86400 s, got {arguments.island_timeout}"
        )
    options = WorkerOptions(
        controller=endpoint(arguments.join),
        name=arguments.name or f"{socket.gethostname()}-{os.getpid()}",
        plugin=platforms.find_plugin(arguments.platform, arguments.plugin),
        devices=arguments.devices,
        island=arguments.island,
        island_hosts=arguments.island_hosts,
        island_timeout_s=arguments.island_timeout,
        memory_limit_bytes=core.parse_bytes(arguments.memory_limit) if arguments.memory_limit else 0,
        cache_dir=os.path.abspath(arguments.cache_dir) if arguments.cache_dir else "",
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
    if not 0 < arguments.queue_ms <= 60_000:
        raise core.InvalidOption(f"--queue-ms must be above 0 and at most 60000 ms, got {arguments.queue_ms}")
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # before the controller's threads start
    with native.translated():
        serving = native.Controller(
            {
                "bind": arguments.bind or [DEFAULT_BIND],
                "embedded": False,
                "policy": arguments.policy,
                "queue_ms": arguments.queue_ms,
                "log_level": arguments.log_level,
            }
        )
    for bound in serving.endpoints:
        print(f"controller of cluster {serving.cluster} at {bound}", flush=True)
    print(f"  workers:  ptpathways worker --join {serving.endpoints[0]}", flush=True)
    print(f"  programs: PTPATHWAYS_ADDRESS={serving.endpoints[0]} python train.py", flush=True)
    number = signal.sigwait(numbers)
    serving.close(f"the controller was told to stop ({signal.Signals(number).name})")
    native.clean_up_shared_memory(serving.cluster)
    return 0
