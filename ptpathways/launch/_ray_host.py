"""What runs on a node of a Ray cluster: an actor that has one worker process. Needs no torch.

The worker is a process of its own, as under every launcher, and ends with the actor's process: when Ray kills the
actor, because the program that asked for it has ended in whatever way, nothing is left behind.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ptpathways import core, native, platforms
from ptpathways.launch import _addresses, _cache, _runtime_dir
from ptpathways.launch._processes import describe_exit
from ptpathways.launch._worker_command import WorkerOptions, worker_command, worker_environment


@dataclass(frozen=True, slots=True)
class About:
    """A node, as its actor tells."""

    hostname: str
    address: str
    """By which Ray reaches it."""
    machine: str
    version: str
    """Of ptpathways there."""
    has_token: bool
    """It has the cluster's join token in its own environment."""


@dataclass(frozen=True, slots=True)
class Order:
    """The worker that an actor is to start. It carries no secret."""

    controller: str
    name: str
    index: int
    island: str
    island_hosts: int
    options: core.Options
    """As the program gave them, without the token."""


class RayHost:
    """The actor. ``start`` once, then ``wait``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._log = Path()

    def describe(self) -> About:
        """This node."""
        import ray

        native.load()
        has_token = bool(os.environ.get(core.TOKEN_VARIABLE))
        address = ray.util.get_node_ip_address()
        return About(socket.gethostname(), address, native.machine_token(), core.__version__, has_token)

    def start(self, order: Order, token: str) -> int:
        """Starts the worker; its process id.

        Args:
            token: what a worker needs of the cluster's; empty: this node's environment has it.

        Raises:
            PluginNotFound: there is no plugin for the platform on this node.
        """
        native.clean_up_dead_shared_memory()
        options = order.options
        bind, advertise = _addresses.data_endpoint(order.controller)
        self._folder = _runtime_dir.create()
        self._log = self._folder / f"{order.name}.log"
        worker = WorkerOptions(
            controller=order.controller,
            name=order.name,
            plugin=platforms.find_plugin(options.platform, options.plugin),
            devices=options.devices_per_host,
            index=order.index,
            island=order.island,
            island_hosts=order.island_hosts,
            island_timeout_s=options.startup_timeout_s,
            memory_limit_bytes=options.memory_per_device_bytes,
            cache_dir=_cache.cache_folder(options.cache_dir),
            runtime_dir=str(self._folder),
            data_endpoint=bind or "tcp://127.0.0.1:*",
            advertise=advertise,
            token=token or os.environ.get(core.TOKEN_VARIABLE, ""),
            log_level=options.log_level,
            parent_pid=os.getpid(),
            connect_timeout_s=options.startup_timeout_s,
        )
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                worker_command(worker),
                env=worker_environment(worker),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._process.pid

    def wait(self) -> str:
        """Returns when the worker has ended: how, and the last lines that it printed."""
        assert self._process is not None
        reason = describe_exit(self._process.wait(), self._log)
        _runtime_dir.remove(self._folder)
        return reason
