"""``ptpathways worker`` and ``ptpathways controller``: the parts of a standing cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from ptpathways import core, launch, native, platforms
from ptpathways.cli._token import token_of
from ptpathways.launch import (
    DEFAULT_PORT,
    WorkerOptions,
    cache_folder,
    data_endpoint,
    endpoint,
    reachable,
    stays_here,
    worker_command,
    worker_environment,
)

DEFAULT_BIND = f"tcp://127.0.0.1:{DEFAULT_PORT}"
_WARNING = (
    "ptpathways controller: WARNING: --insecure: there is no join token. Every user and program of this machine can "
    "join this cluster, and run code and read files as you."
)


def worker(arguments: argparse.Namespace) -> int:
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
    controller = endpoint(arguments.join)
    token = token_of(arguments, controller)
    bind, advertise = data_endpoint(controller, arguments.data_endpoint, arguments.advertise)
    options = WorkerOptions(
        controller=controller,
        name=arguments.name or f"{socket.gethostname()}-{os.getpid()}",
        plugin=platforms.find_plugin(arguments.platform, arguments.plugin),
        devices=arguments.devices,
        island=arguments.island,
        island_hosts=arguments.island_hosts,
        island_timeout_s=arguments.island_timeout,
        memory_limit_bytes=core.parse_bytes(arguments.memory_limit) if arguments.memory_limit else 0,
        cache_dir=cache_folder(arguments.cache_dir),
        root=os.path.abspath(arguments.root),
        data_endpoint=bind,
        advertise=advertise,
        token=token,
        log_level=arguments.log_level,
    )
    _take_descriptors()
    command = worker_command(options)
    os.execve(command[0], command, worker_environment(options))


def controller(arguments: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM.

    Raises:
        ConnectionFailed, InvalidOption: an endpoint cannot be bound.
    """
    if not 0 < arguments.queue_ms <= 60_000:
        raise core.InvalidOption(f"--queue-ms must be above 0 and at most 60000 ms, got {arguments.queue_ms}")
    if not 1 <= arguments.lease <= 86_400:
        raise core.InvalidOption(f"--lease must be from 1 to 86400 s, got {arguments.lease}")
    _take_descriptors()
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # before the controller's threads start
    binds = [_as_bind(bind) for bind in arguments.bind or [DEFAULT_BIND]]
    token = token_of(arguments)
    made = not token
    if made:
        token = core.make_token()
    if token == core.INSECURE:
        print(_WARNING, file=sys.stderr, flush=True)
    with native.translated("connecting"):
        serving = native.Controller(
            {
                "bind": binds,
                "token": token,
                "embedded": False,
                "policy": arguments.policy,
                "queue_ms": arguments.queue_ms,
                "lease_s": arguments.lease,
                "log_level": arguments.log_level,
            }
        )
    kept: list[Path] = []
    try:
        if token != core.INSECURE:
            kept = launch.keep(serving.endpoints, token)
        for bound in serving.endpoints:
            print(f"controller of cluster {serving.cluster} at {bound}", flush=True)
        _say_how_to_join(serving.endpoints, arguments.advertise, token, made=made)
        number = signal.sigwait(numbers)
        serving.close(f"the controller was told to stop ({signal.Signals(number).name})")
    finally:
        serving.close("the controller ended")
        launch.forget(kept, token)
        native.clean_up_shared_memory(serving.cluster)
    return 0


def _take_descriptors() -> None:
    """Every peer takes some: as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _as_bind(bind: str) -> str:
    """``HOST:PORT`` as an endpoint; endpoints, with ``*`` for a port too, as they are."""
    return bind if bind.startswith(("tcp://", "ipc://")) else f"tcp://{bind}"


def _say_how_to_join(endpoints: list[str], advertise: str, token: str, *, made: bool) -> None:
    """Prints the commands for other terminals and machines. ``made``: nobody knows the token yet."""
    addresses = [address for bound in endpoints for address in reachable(bound, advertise)]
    prefix = ""
    if token == core.INSECURE:
        prefix = f"{core.TOKEN_VARIABLE}={token} "
    elif all(stays_here(bound) for bound in endpoints):
        print("programs of this user on this machine find the cluster's join token by themselves", flush=True)
    elif made:
        print(f"the cluster's join token, made for this run; whoever has it can run code here:\n  {token}", flush=True)
        prefix = f"{core.TOKEN_VARIABLE}={token} "
    else:
        print(f"members need this cluster's join token: {core.TOKEN_VARIABLE} or --token-file", flush=True)
    for address in addresses:
        print(f"  workers:  {prefix}ptpathways worker --join {address}", flush=True)
    print(f"  programs: {prefix}PTPATHWAYS_ADDRESS={addresses[0]} python train.py", flush=True)
