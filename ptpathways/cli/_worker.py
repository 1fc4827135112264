"""``ptpathways worker``: serves this host's devices."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket

from ptpathways import core, native, platforms
from ptpathways.cli._token import token_of
from ptpathways.launch import (
    WorkerOptions,
    cache_folder,
    data_endpoint,
    endpoint,
    worker_command,
    worker_environment,
)

_MOST_DEVICES = 65_536
_CONTROLLER_S = 30.0
"""How long a controller that begins is waited for, as long as one that does not answer."""


def main(arguments: argparse.Namespace) -> int:
    """Becomes the worker's process; does not return.

    Raises:
        ConnectionFailed: there is no route to the controller.
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
    if not 1 <= arguments.devices <= _MOST_DEVICES:
        raise core.InvalidOption(f"--devices must be from 1 to {_MOST_DEVICES}, got {arguments.devices}")
    if len(arguments.name.encode(errors="replace")) > core.MAX_NAME_BYTES or not arguments.name.isprintable():
        raise core.InvalidOption(
            f"--name must be printable text of at most {core.MAX_NAME_BYTES} bytes, got "
            f"{arguments.name[:40]!a} of {len(arguments.name)} characters"
        )
    controller = endpoint(arguments.join)
    plugin = platforms.find_plugin(arguments.platform, arguments.plugin)
    memory_limit = core.parse_bytes(arguments.memory_limit) if arguments.memory_limit else 0
    cache_dir = cache_folder(arguments.cache_dir)
    # What is wrong here is said before a controller is waited for.
    token = token_of(arguments, "worker", controller, _CONTROLLER_S)
    bind, advertise = data_endpoint(controller, arguments.data_endpoint, arguments.advertise)
    options = WorkerOptions(
        controller=controller,
        name=arguments.name or f"{socket.gethostname()}-{os.getpid()}",
        plugin=plugin,
        devices=arguments.devices,
        island=arguments.island,
        island_hosts=arguments.island_hosts,
        island_timeout_s=arguments.island_timeout,
        memory_limit_bytes=memory_limit,
        cache_dir=cache_dir,
        root=os.path.abspath(arguments.root),
        data_endpoint=bind,
        advertise=advertise,
        token=token,
        log_level=arguments.log_level,
    )
    take_descriptors()
    native.clean_up_dead_shared_memory()  # of workers that were killed here
    command = worker_command(options)
    environment = worker_environment(options)
    if arguments.platform == "cpu" and arguments.log_level != "debug":
        # XLA writes several kB about the processor for each thing that it loads from the cache; errors are returned.
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.execve(command[0], command, environment)


def take_descriptors() -> None:
    """Every peer takes some: as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
