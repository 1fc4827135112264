"""The systems that are measured side by side: ours, and rivals in environments of their own (``make bench-peers``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console

from ptpathways import core
from ptpathways.bench._child import Child
from ptpathways.bench._workload import OURS

_ROOT = Path(__file__).resolve().parents[2]
_RUNNER_FOLDER = Path(__file__).parent / "peers"
_OPEN_TIMEOUT_S = 240.0
_SLACK_S = 120.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A rival: its program, and what that can measure."""

    module: str
    works: frozenset[str]
    own_environment: bool = True
    """Else it is measured with this interpreter."""

    def interpreter(self, name: str) -> Path:
        """Python with the rival installed; may not exist."""
        return _ROOT / ".peers" / name / "bin" / "python" if self.own_environment else Path(sys.executable)


PEERS: dict[str, Peer] = {
    "ray": Peer("ray_peer", frozenset({"add", "pipeline"})),
    "monarch": Peer("monarch_peer", frozenset({"add", "pipeline"})),
    "jax": Peer("jax_peer", frozenset({"add", "allreduce"})),
    "torch_xla": Peer("torch_xla_peer", frozenset({"add", "allreduce"}), own_environment=False),
    "gloo": Peer("gloo_peer", frozenset({"allreduce"}), own_environment=False),
    "dask": Peer("dask_peer", frozenset({"add", "pipeline"})),
}
"""Every rival by name; works are those of ``peers.runner.Setting``."""


def parse_peers(text: str) -> tuple[str, ...]:
    """Names of rivals from ``"ray,jax"``, or all from ``"all"``.

    Raises:
        InvalidOption: an unknown name.
    """
    names = tuple(PEERS) if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise core.InvalidOption(f"peers must be among {', '.join(PEERS)}, or 'all', got {', '.join(unknown)}")
    return names


def able(names: Sequence[str], work: str, console: Console | None = None) -> list[str]:
    """Those of ``names`` that are installed and can do ``work``; says a line for each of the others."""
    console = console or Console(stderr=True)
    found = []
    for name in names:
        if work not in PEERS[name].works:
            console.print(f"{name}: skipped, it has nothing to compare for {work!r}", style="yellow")
        elif not PEERS[name].interpreter(name).exists():
            console.print(f"{name}: skipped, not installed; `make bench-peers` does that", style="yellow")
        else:
            found.append(name)
    return found


class RunningSystem:
    """A started system that measures on request."""

    def __init__(self, child: Child, work: str, hosts: int) -> None:
        self._child = child
        described = child.ask({"work": work, "hosts": hosts}, _OPEN_TIMEOUT_S)
        self.figures: list[str] = described["figures"]
        self.versions: dict[str, str] = described["versions"]

    def measure(self, figure: str, seconds: float) -> Measured:
        """Raises as ``Child.ask`` does."""
        return Measured(**self._child.ask({"figure": figure, "seconds": seconds}, seconds + _SLACK_S))

    def __enter__(self) -> RunningSystem:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.close()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a system did: see ``peers.runner.Batch``."""

    amount: float
    seconds: float
    p50_s: float

    @property
    def rate(self) -> float:
        """Amount per second."""
        return self.amount / self.seconds


@dataclass(slots=True)
class Figures:
    """What was measured of one system, by figure, one value for each pass."""

    values: dict[str, list[Measured]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def start(name: str, work: str, hosts: int, own_module: str) -> RunningSystem:
    """Starts a rival, or with ``OURS`` the module of ours.

    Raises:
        PathwaysError: it did not start; the message has the end of what it wrote.
        DeadlineExceeded: not within 240 s.
    """
    if name == OURS:
        child = Child("ptpathways.bench.peers.runner", own_module)
    else:
        peer = PEERS[name]
        environment = {"PYTHONPATH": str(_RUNNER_FOLDER)}
        child = Child("runner", peer.module, environment=environment, interpreter=peer.interpreter(name))
    try:
        return RunningSystem(child, work, hosts)
    except BaseException:
        child.close()
        raise


def side_by_side(
    names: Sequence[str],
    work: str,
    hosts: int,
    own_module: str,
    passes: int,
    seconds: float,
    told: Callable[[str], None],
) -> dict[str, Figures]:
    """Starts each system ``passes`` times, in turn there and back, and measures all its figures for ``seconds`` each.

    By name. A rival that fails is left out, and ``told`` says why.

    Raises:
        PathwaysError: ours failed.
    """
    found = {name: Figures() for name in names}
    for turn in range(passes):
        for name in names if turn % 2 == 0 else reversed(names):
            if name not in found:
                continue
            try:
                with start(name, work, hosts, own_module) as system:
                    found[name].versions = system.versions
                    for figure in system.figures:
                        found[name].values.setdefault(figure, []).append(system.measure(figure, seconds))
            except core.PathwaysError as error:
                if name == OURS:
                    raise
                del found[name]
                told(f"{name} with {hosts} hosts: left out, it failed: {error}")
    return found
