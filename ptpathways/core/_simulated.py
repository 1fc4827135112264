"""What a simulated cluster is made of: how many devices, and what everything costs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ptpathways.core._errors import InvalidOption
from ptpathways.core._units import parse_bytes

RENDEZVOUS = ("always", "explicit", "never")


@dataclass(frozen=True, slots=True)
class Simulated:
    """Describes a cluster of simulated devices inside this process, for ``init(simulated=...)``.

    Controller, scheduler, programs and messages are the real ones. The devices compute nothing: a computation
    occupies its devices for its cost, and every fetched value is zero.

    Raises:
        InvalidOption: a value cannot be used; the message names it and what is allowed.
    """

    hosts: int = 1
    """Hosts, each with ``devices_per_host`` devices (1 to 16384)."""
    devices_per_host: int = 1
    """Devices of each host (1 to 1024)."""
    islands: int = 1
    """Number of islands that the hosts are divided into, consecutive hosts together."""
    cost_us: float | Mapping[str, float] = 10.0
    """Microseconds that a computation takes. A mapping has patterns of function names (``"*"`` matches any text): the
    first match counts; without one it is 10."""
    collective_us: float = 0.0
    """Additional microseconds of a computation over several devices that starts on all of them at once
    (``rendezvous``)."""
    latency_us: float = 0.0
    """Microseconds until the bytes of a transfer between hosts arrive."""
    bandwidth_gbs: float = 0.0
    """Send bandwidth of a host in 1e9 bytes per second; 0: unlimited."""
    local_bandwidth_gbs: float = 0.0
    """Bandwidth between devices of one host in 1e9 bytes per second; 0: unlimited."""
    compile_us: float = 0.0
    """Microseconds that a compilation takes."""
    memory: str = "16GiB"
    """Memory of each device, in bytes or with a unit. A computation that needs more than is free waits; one that can
    never fit is refused."""
    rendezvous: str = "always"
    """Which computations over several devices start on all of them at once, when the last is free: ``always``, all;
    ``explicit``, those whose module has a collective; ``never``, none."""

    def __post_init__(self) -> None:
        for name, most in (("hosts", 16384), ("devices_per_host", 1024), ("islands", self.hosts)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise InvalidOption(f"simulated {name} must be an integer from 1 to {most}, got {value!r}")
        if isinstance(self.cost_us, Mapping):
            object.__setattr__(self, "cost_us", MappingProxyType(dict(self.cost_us)))
            for pattern, cost in self.cost_us.items():
                _check_number(f"cost_us[{pattern!r}]", cost)
        else:
            _check_number("cost_us", self.cost_us)
        for name in ("collective_us", "latency_us", "bandwidth_gbs", "local_bandwidth_gbs", "compile_us"):
            _check_number(name, getattr(self, name))
        if not isinstance(self.memory, str):
            raise InvalidOption(f"simulated memory must be a text such as '16GiB', got {self.memory!r}")
        _ = self.memory_bytes
        if self.rendezvous not in RENDEZVOUS:
            raise InvalidOption(f"simulated rendezvous must be one of {', '.join(RENDEZVOUS)}, got {self.rendezvous!r}")

    @property
    def device_count(self) -> int:
        """Devices of all hosts."""
        return self.hosts * self.devices_per_host

    @property
    def memory_bytes(self) -> int:
        """``memory`` in bytes."""
        return parse_bytes(self.memory)

    @property
    def default_cost_us(self) -> float:
        """Microseconds of a computation that no pattern of ``cost_us`` matches."""
        return 10.0 if isinstance(self.cost_us, Mapping) else float(self.cost_us)

    @property
    def costs_us(self) -> tuple[tuple[str, float], ...]:
        """The patterns of ``cost_us`` with their microseconds, in order: the first match counts."""
        return tuple(self.cost_us.items()) if isinstance(self.cost_us, Mapping) else ()


def _check_number(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < float("inf"):  # type: ignore[arg-type]
        raise InvalidOption(f"simulated {name} must be a number of at least 0, got {value!r}")
