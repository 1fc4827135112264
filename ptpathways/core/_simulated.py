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
    """A cluster of simulated devices inside this process, for ``init(simulated=...)``.

    Controller, scheduler, programs and messages are the real ones. The devices compute nothing: a computation
    occupies its devices for its cost, and every value that is fetched is zero.

    Raises:
        InvalidOption: a value cannot be used; the message names it and what is allowed.
    """

    hosts: int = 1
    """Hosts, each with ``devices_per_host`` devices."""
    devices_per_host: int = 1
    islands: int = 1
    """The hosts are divided into so many islands, neighbours together."""
    cost_us: float | Mapping[str, float] = 10.0
    """Microseconds a computation takes. A mapping goes by the function's name: the first pattern that fits counts
    (``"*"`` stands for any text), and 10 where none fits."""
    collective_us: float = 0.0
    """On top, for computations whose devices meet."""
    latency_us: float = 0.0
    """Microseconds that the bytes of a transfer between hosts take to arrive."""
    bandwidth_gbs: float = 0.0
    """1e9 bytes per second that a host sends; 0: no limit."""
    local_bandwidth_gbs: float = 0.0
    """The same from device to device of one host."""
    compile_us: float = 0.0
    memory: str = "16GiB"
    """Of each device; more is refused, or waits for room."""
    rendezvous: str = "always"
    """Which computations over several devices start on all of them at once, when the last is free: ``always``, those
    whose module names a collective (``explicit``), or ``never``."""

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
        """Where no pattern fits."""
        return 10.0 if isinstance(self.cost_us, Mapping) else float(self.cost_us)

    @property
    def costs_us(self) -> tuple[tuple[str, float], ...]:
        """The patterns and their costs, the first that fits counts."""
        return tuple(self.cost_us.items()) if isinstance(self.cost_us, Mapping) else ()


def _check_number(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < float("inf"):  # type: ignore[arg-type]
        raise InvalidOption(f"simulated {name} must be a number of at least 0, got {value!r}")
