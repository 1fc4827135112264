"""Options of ``init``: one immutable record, and one table of the environment variables that stand for them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptpathways.core._errors import InvalidOption
from ptpathways.core._simulated import Simulated
from ptpathways.core._token import TOKEN_VARIABLE, check_token
from ptpathways.core._units import memory_limit

BACKENDS = ("pathways", "xla-cpu")
POLICIES = ("fifo", "fair", "priority", "arrival")
"""Whose computations go next when several clients share devices (docs/scheduling.md)."""
RECOMPILES = ("warn", "ignore", "raise")
WAITS = ("warn", "ignore")
LAUNCHERS = ("local", "ray")
"""Who places the workers of a cluster that a program starts (docs/launch.md)."""
LOG_LEVELS = ("error", "warning", "info", "debug")
_STARTUP_MAX_S = 1_000_000
_NUMBER_ARGUMENTS = "PTPATHWAYS_NUMBER_ARGUMENTS"  # read by the plugin
_HOST_AND_PORT = re.compile(r"[^/]+:\d+")


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that overrides an option."""

    name: str
    option: str
    parse: Callable[[str], Any]
    what: str


ENVIRONMENT: tuple[Variable, ...] = (
    Variable("PTPATHWAYS_ADDRESS", "address", str, "endpoint of a standalone controller, e.g. tcp://host:7450"),
    Variable(TOKEN_VARIABLE, "token", str, "the cluster's join token; see `ptpathways token`"),
    Variable("PTPATHWAYS_LAUNCHER", "launcher", str, "who places an embedded cluster's workers: local, ray"),
    Variable("PTPATHWAYS_BIND", "bind", str, "where an embedded controller listens for other machines' workers"),
    Variable("PTPATHWAYS_REMOTE_HOSTS", "remote_hosts", int, "workers of other machines to wait for"),
    Variable("PTPATHWAYS_HOSTS", "hosts", int, "worker processes that an embedded cluster starts"),
    Variable("PTPATHWAYS_DEVICES_PER_HOST", "devices_per_host", int, "devices of each of them (CPU only)"),
    Variable("PTPATHWAYS_ISLANDS", "islands", int, "islands the hosts are divided into; empty: one"),
    Variable("PTPATHWAYS_PLATFORM", "platform", str, "what the workers' devices are: cpu, cuda, tpu"),
    Variable("PTPATHWAYS_PLUGIN", "plugin", str, "path of the workers' PJRT plugin, instead of the installed one"),
    Variable("PTPATHWAYS_MEMORY_PER_DEVICE", "memory_per_device", str, "bytes, or 512MiB, 16GiB; empty: what it has"),
    Variable("PTPATHWAYS_CACHE_DIR", "cache_dir", str, "folder where compiled programs are kept, or off"),
    Variable("PTPATHWAYS_STARTUP_TIMEOUT_S", "startup_timeout_s", float, "how long init waits for the cluster"),
    Variable("PTPATHWAYS_LOG_LEVEL", "log_level", str, "error, warning, info or debug"),
    Variable("PTPATHWAYS_POLICY", "policy", str, "how an embedded controller shares devices: fifo, fair, priority"),
    Variable("PTPATHWAYS_WEIGHT", "weight", float, "this client's share under the fair policy"),
    Variable("PTPATHWAYS_PRIORITY", "priority", int, "this client's class under the priority policy: higher first"),
    Variable("PTPATHWAYS_RECOMPILES", "recompiles", str, "what a compile after warm-up does: warn, ignore or raise"),
    Variable("PTPATHWAYS_RECOMPILE_LIMIT", "recompile_limit", int, "how many of them are told of"),
    Variable("PTPATHWAYS_WAITS", "waits", str, "what a line that waits at every step does: warn or ignore"),
    Variable("PTPATHWAYS_LEASE", "lease_s", float, "seconds for which a member that is silent stays one"),
    Variable("PTPATHWAYS_WAIT_NOTICE", "wait_notice_s", float, "seconds after which a wait says for what; 0: never"),
    Variable("PTPATHWAYS_COMPILE_NOTICE", "compile_notice_s", float, "seconds before a compile is shown; 0: never"),
    Variable("PTPATHWAYS_LOGICAL_DEVICES", "logical_devices", int, "slices that a process can use as torch devices"),
    Variable("PTPATHWAYS_BACKEND", "backend", str, "pathways, or xla-cpu for PyTorch/XLA's own CPU client"),
)
"""Every environment variable that ``Options.from_environment`` reads, in the order of the documentation."""


@dataclass(frozen=True, slots=True)
class Options:
    """Holds the options of ``init``, validated when it is made. Immutable.

    Raises:
        InvalidOption: a value cannot be used; the message names the option, the value and what is allowed.
    """

    address: str = ""
    """Endpoint of a standalone controller: ``HOST:PORT``, ``tcp://HOST:PORT`` or ``ipc:///PATH``. Empty: embed a
    controller in this process and start workers for it."""
    token: str = field(default="", repr=False)
    """The cluster's join token, from which the keys of all members are derived; required beyond this machine."""
    launcher: str = "local"
    """Where the workers of an embedded cluster are started: ``local``, on this machine, or ``ray``, on the nodes of a
    Ray cluster. Ignored with ``address``."""
    bind: str = ""
    """Endpoint such as ``tcp://0.0.0.0:7450`` where an embedded controller also listens, so that workers of other
    machines can join (``ptpathways worker --join``); needs ``token``. Empty: workers of this machine only."""
    remote_hosts: int = 0
    """Number of workers on other machines that ``init`` waits for, besides the ``hosts`` it starts; needs ``bind`` or
    ``address``."""
    hosts: int = 1
    """Number of worker processes to start with an embedded controller; ignored with ``address``. May be 0 if
    ``remote_hosts`` is not."""
    devices_per_host: int = 1
    """Devices of each started worker (CPU platform)."""
    islands: int | None = None
    """Number of islands that the started workers are divided into, consecutive hosts together. A slice, and a
    computation with collectives, lies in one island. None: on the CPU platform all hosts are one island; on others each
    host is one, because processes of one machine have no collectives between them there."""
    platform: str = "cpu"
    """Platform of the workers' devices: ``cpu``, ``cuda`` or ``tpu``."""
    plugin: str = ""
    """Path of the PJRT plugin that workers load; empty: the one installed for the platform."""
    memory_per_device: str = ""
    """Memory limit of each device of an embedded cluster, in bytes or as ``"512MiB"``, at least 1 MiB; empty: all that
    the device has."""
    cache_dir: str = ""
    """Folder where the workers of an embedded cluster keep compiled executables for the next start; only this user may
    write there. Empty: ``ptpathways/compiled`` in the user's cache folder. ``off``: nothing is kept."""
    startup_timeout_s: float = 60.0
    """Seconds that ``init`` waits until every host has joined."""
    log_level: str = "warning"
    """Log level of controller, workers and the client's native part: ``error``, ``warning``, ``info`` or ``debug``."""
    policy: str = "fifo"
    """How an embedded controller shares devices among clients: ``fifo``, ``fair`` or ``priority``. ``arrival`` runs
    computations on each host as they arrive, without a common order: only for experiments with the deadlocks that this
    causes."""
    weight: float = 1.0
    """This client's share of an island's time under the fair policy, relative to other clients' weights (0.001 to
    1000000)."""
    priority: int = 0
    """This client's class under the priority policy, from -1000000 to 1000000: the higher class runs first."""
    recompiles: str = "warn"
    """Effect of a compile after its loop's warm-up: ``warn`` with its cause, ``ignore``, or ``raise`` if there are more
    than ``recompile_limit``."""
    recompile_limit: int = 64
    """Number of compiles after warm-up that are reported one by one."""
    waits: str = "warn"
    """Effect of a line that reads a value (``item()``) at every step: ``warn`` once with its cost, or ``ignore``."""
    lease_s: float = 60.0
    """Seconds for which a silent member of the cluster (stopped, suspended, cut off) stays one, from 1 to 86400. If it
    answers again in time, it continues. A process that ends is lost at once."""
    wait_notice_s: float = 10.0
    """Seconds after which a wait reports on standard error what it waits for and what the hosts do meanwhile; 0:
    never."""
    compile_notice_s: float = 2.0
    """Seconds after which a running compilation is shown, with its line and time so far; 0: never."""
    logical_devices: int = 64
    """Number of torch devices of this process, from 2 to 120, the slice of all devices included: so many slices can be
    in use as torch devices at a time. Autograd starts a thread for each at the first backward pass."""
    backend: str = "pathways"
    """``pathways``, or ``xla-cpu``: PyTorch/XLA's own CPU client in this process, for comparison."""
    simulated: Simulated | None = None
    """Simulated devices in this process instead of worker processes; they replace ``hosts`` and
    ``devices_per_host``."""

    def __post_init__(self) -> None:
        self._check_members()
        least = {"hosts": 0 if self.remote_hosts else 1, "devices_per_host": 1, "remote_hosts": 0, "recompile_limit": 0}
        for name, minimum in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= 65536:
                raise InvalidOption(f"option {name} must be an integer from {minimum} to 65536, got {value!r}")
        if self.islands is not None:
            most = 65536 if self.address else self.hosts
            number = isinstance(self.islands, int) and not isinstance(self.islands, bool)
            if not number or not 1 <= self.islands <= most:
                raise InvalidOption(
                    f"option islands must be an integer from 1 to the number of hosts ({most}), got {self.islands!r}"
                )
        for name in ("address", "platform", "plugin", "memory_per_device", "cache_dir", "log_level", "backend"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOption(f"option {name} must be text, got {getattr(self, name)!r}")
        address = f"tcp://{self.address}" if _HOST_AND_PORT.fullmatch(self.address) else self.address
        if address and not (_is_tcp(address) or address.startswith("ipc://")):
            raise InvalidOption(
                "option address must be HOST:PORT or an endpoint such as 'tcp://host:7450' or 'ipc:///path', got "
                f"{self.address!r}"
            )
        object.__setattr__(self, "address", address)
        if not self.platform:
            raise InvalidOption("option platform must name a platform such as 'cpu', 'cuda' or 'tpu', got ''")
        _ = self.memory_per_device_bytes
        _check_choice("log_level", self.log_level, LOG_LEVELS)
        _check_choice("backend", self.backend, BACKENDS)
        _check_choice("policy", self.policy, POLICIES)
        _check_choice("launcher", self.launcher, LAUNCHERS)
        if self.launcher != "local" and self.remote_hosts and not self.address:
            raise InvalidOption(
                "option remote_hosts is for workers that join by themselves; with launcher "
                f"{self.launcher!r} give hosts alone"
            )
        _check_choice("recompiles", self.recompiles, RECOMPILES)
        _check_choice("waits", self.waits, WAITS)
        if self.simulated is not None:
            if not isinstance(self.simulated, Simulated):
                raise InvalidOption(f"option simulated must be a Simulated, got {self.simulated!r}")
            if self.address:
                raise InvalidOption("a simulated cluster lives in this process; give address or simulated, not both")
            if self.backend != "pathways":
                raise InvalidOption(f"a simulated cluster needs backend 'pathways', got {self.backend!r}")
        if not _is_number(self.startup_timeout_s) or not 0 < self.startup_timeout_s <= _STARTUP_MAX_S:
            raise InvalidOption(
                f"option startup_timeout_s must be a positive number of at most {_STARTUP_MAX_S:,} seconds, got "
                f"{self.startup_timeout_s!r}"
            )
        if not _is_number(self.lease_s) or not 1 <= self.lease_s <= 86_400:
            raise InvalidOption(f"option lease_s must be a number of seconds from 1 to 86400, got {self.lease_s!r}")
        for name in ("wait_notice_s", "compile_notice_s"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < float("inf"):
                raise InvalidOption(f"option {name} must be a number of seconds, or 0, got {value!r}")
        if not isinstance(self.logical_devices, int) or not 2 <= self.logical_devices <= 120:
            raise InvalidOption(f"option logical_devices must be from 2 to 120, got {self.logical_devices!r}")
        if not _is_number(self.weight) or not 1e-3 <= self.weight <= 1e6:
            raise InvalidOption(f"option weight must be a number from 0.001 to 1000000, got {self.weight!r}")
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or abs(self.priority) > 1_000_000:
            raise InvalidOption(f"option priority must be an integer from -1000000 to 1000000, got {self.priority!r}")

    def _check_members(self) -> None:
        for name in ("token", "bind"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOption(f"option {name} must be text, got a {type(getattr(self, name)).__name__}")
        object.__setattr__(self, "token", check_token(self.token))
        if self.bind and not (_is_tcp(self.bind) or re.fullmatch(r"tcp://.+:\*", self.bind)):
            raise InvalidOption(f"option bind must be an endpoint such as 'tcp://0.0.0.0:7450', got {self.bind!r}")
        if self.bind and self.address:
            raise InvalidOption(
                "option bind is for an embedded controller; with address there is none, give one of both"
            )
        if self.remote_hosts and not (self.bind or self.address):
            raise InvalidOption("option remote_hosts needs bind, the endpoint where those workers join, got none")

    @property
    def memory_per_device_bytes(self) -> int:
        """``memory_per_device`` in bytes; 0 if it is empty."""
        return memory_limit(self.memory_per_device)

    def island_of(self, host: int) -> str:
        """Returns the name of the island of the ``host``-th started worker; empty: an island of its own."""
        if self.islands is None and self.platform != "cpu":
            return ""
        return f"island{host * (self.islands or 1) // self.hosts}"

    @property
    def embedded(self) -> bool:
        """Whether this process starts its own controller (``address`` is empty)."""
        return not self.address

    @property
    def device_count(self) -> int:
        """Devices of the workers that an embedded cluster starts, or of the simulated cluster."""
        return self.hosts * self.devices_per_host if self.simulated is None else self.simulated.device_count

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, /, **given: Any) -> Options:
        """Returns the options that were ``given``, else those of the environment, else the defaults.

        A value of None counts as not given. With ``PTPATHWAYS_ADDRESS`` set, a program that calls ``init(hosts=1)``
        joins that cluster unchanged, because ``hosts`` matters only to an embedded cluster.

        Args:
            environment: environment variables by name; default: ``os.environ``. Empty values count as not set.
            given: options by name.

        Raises:
            InvalidOption: an unknown option, or a value that cannot be used.
        """
        environment = os.environ if environment is None else environment
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - names)
        if unknown:
            raise InvalidOption(f"unknown option {', '.join(unknown)}; the options are {', '.join(sorted(names))}")
        values = {name: value for name, value in given.items() if value is not None}
        for variable in ENVIRONMENT:
            text = environment.get(variable.name)
            if text is None or text == "" or variable.option in values:
                continue
            if variable.option in {"address", "bind", "remote_hosts"} and "simulated" in values:
                continue  # the program asks for a cluster of its own
            try:
                values[variable.option] = variable.parse(text)
            except ValueError:
                kind = "an integer" if variable.parse is int else "a number"
                raise InvalidOption(f"environment variable {variable.name} must be {kind}, got {text!r}") from None
        if (text := environment.get(_NUMBER_ARGUMENTS, "")) not in ("", "on", "off"):
            raise InvalidOption(f"environment variable {_NUMBER_ARGUMENTS} must be 'on' or 'off', got {text!r}")
        return cls(**values)


def _is_tcp(endpoint: str) -> bool:
    """Whether it has a port; which hosts there are, the network knows."""
    found = re.fullmatch(r"tcp://.+:(\d{1,5})", endpoint)
    return found is not None and 0 < int(found[1]) < 65536


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def environment_table() -> str:
    """The variables as lines of text: name, option, default, meaning."""
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    rows = [("variable", "option", "default", "meaning")]
    rows += [(v.name, v.option, str(defaults[v.option] or "(none)"), v.what) for v in ENVIRONMENT]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for *cells, meaning in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([*padded, meaning]))
    return "\n".join(lines)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidOption(f"option {name} must be one of {', '.join(allowed)}, got {value!r}")
