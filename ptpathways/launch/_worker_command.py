"""The command line and environment of a worker process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptpathways import core, native, platforms
from ptpathways.launch import _tokens

_SCRIPT = Path(__file__).with_name("_worker_process.py")
_PIPELINE_SCRIPT = Path(__file__).parents[1] / "data" / "_process.py"
"""Run in a process of its own when a client opens an input pipeline."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """One worker: whom it joins, as what, and with which devices."""

    controller: str
    """Endpoint of the controller."""
    name: str
    """Unique among the live hosts of the cluster."""
    plugin: platforms.Plugin
    devices: int = 1
    index: int = 0
    """Which of this machine's workers it is: they share out its devices."""
    workers: int = 1
    """How many of them there are, as far as is known."""
    island: str = ""
    """Hosts of one island can take part in one collective computation; empty: an island of its own."""
    island_hosts: int = 0
    """How many hosts' plugins make one client together, this one included, so that the island's collectives are the
    plugin's own; 0: this host's plugin has a client of its own."""
    island_timeout_s: float = 60.0
    """How long the first of them waits for the others."""
    memory_limit_bytes: int = 0
    """Per device; 0: what the plugin reports."""
    cache_dir: str = ""
    """Where compiled programs outlive the worker; empty: nowhere."""
    root: str = ""
    """The folder below which it reads and writes files for clients; empty: anywhere."""
    runtime_dir: str = ""
    """Where its sockets go; empty: it listens for peers on loopback TCP."""
    data_endpoint: str = ""
    """Where peers connect for bulk data; empty: chosen by ``runtime_dir``."""
    advertise: str = ""
    """The host under which peers reach ``data_endpoint``; empty: the one it is bound to."""
    token: str = field(default="", repr=False)
    """The cluster's join token. It goes through the process's environment, which only its own user can read."""
    log_level: str = "warning"
    parent_pid: int = 0
    """The worker ends when this process does; 0: it does not look."""
    connect_timeout_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment, last."""

    def native_options(self) -> dict[str, object]:
        """What ``native.run_worker`` takes."""
        launch = platforms.launch_of(self.plugin, self.devices, self.index, self.workers)
        return {
            "controller": self.controller,
            "name": self.name,
            "island": self.island,
            "island_hosts": self.island_hosts,
            "island_timeout_s": self.island_timeout_s,
            "node_id_option": launch.node_id_option,
            "num_nodes_option": launch.num_nodes_option,
            "platform": self.plugin.platform,
            "plugin": self.plugin.path,
            "memory_limit_bytes": self.memory_limit_bytes,
            "cache_dir": self.cache_dir,
            "kernels": launch.kernels,
            "root": self.root,
            "runtime_dir": self.runtime_dir,
            "data_endpoint": self.data_endpoint,
            "advertise": self.advertise,
            "log_level": self.log_level,
            "parent_pid": self.parent_pid,
            "python": sys.executable,
            "pipeline_script": str(_PIPELINE_SCRIPT),
            "connect_timeout_s": self.connect_timeout_s,
            "create_options": dict(launch.create_options),
        }

    def process_environment(self) -> dict[str, str]:
        """The variables to add to the process's environment before the plugin is loaded."""
        launch = platforms.launch_of(self.plugin, self.devices, self.index, self.workers)
        return {**launch.environment, core.TOKEN_VARIABLE: _tokens.worker_token(self.token), **self.environment}


def worker_arguments(options: Mapping[str, object]) -> list[str]:
    """``options`` as arguments of ``_worker_process``."""
    arguments = []
    for key, value in options.items():
        if key == "create_options":
            assert isinstance(value, Mapping)
            arguments += [_argument(f"option.{name}", item) for name, item in value.items()]
        else:
            arguments.append(_argument(key, value))
    return arguments


def worker_command(options: WorkerOptions) -> list[str]:
    """The command that starts the worker: the interpreter without site packages, and no package imported."""
    paths = {"extension": native.find_extension(), "zmq": native.find_zmq()}
    return [sys.executable, "-I", "-S", str(_SCRIPT), *worker_arguments({**options.native_options(), **paths})]


def worker_environment(options: WorkerOptions) -> dict[str, str]:
    """The whole environment of the worker's process."""
    return {**os.environ, **options.process_environment()}


def _argument(key: str, value: object) -> str:
    match value:
        case bool():
            return f"{key}:bool={int(value)}"
        case int():
            return f"{key}:int={value}"
        case float():
            return f"{key}:float={value!r}"
        case list():
            return f"{key}:ints={','.join(map(str, value))}"
        case _:
            return f"{key}={value}"
