"""How the ranks of one job find each other through a store of theirs: who takes part, where, and with which token.

Rank 0 opens a *generation*, whose number begins every key: a job that is restarted uses its store again, and nobody
may take the word of a rank that is gone. The others write who they are under the latest generation and wait for rank
0's answer there. One answer serves all: how to join, or why nobody may.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from ptpathways import core

_POLL_S = (0.02, 0.5)
_LISTED = 8
_ANSWER_S = 10.0


class Store(Protocol):
    """What is asked of a launcher's store. Values are texts."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> str | None:
        """The value, or None while there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Rank:
    """What a rank tells of itself."""

    rank: int
    world_size: int
    host: str
    """The machine's name, for messages."""
    machine: str
    """Equal on ranks that can share memory (``native.machine_token``)."""
    version: str
    platform: str
    plugin: str
    """Tells builds of the plugin apart."""
    devices: int
    has_token: bool
    """Whether its environment has a token of the user's, so that none need travel through the store."""

    def __str__(self) -> str:
        return f"rank {self.rank} (on {self.host})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What rank 0 tells the others."""

    addresses: list[str] = field(default_factory=list)
    """Where its controller can be reached over TCP, the likeliest first; none when all ranks are on one machine."""
    local_address: str = ""
    """The controller for ranks on rank 0's machine."""
    machine: str = ""
    folder: str = ""
    """Where sockets of a job on one machine go; empty: ranks are on several."""
    token: str = field(default="", repr=False)
    islands: int = 1
    error: str = ""
    """Why there is no cluster; then nothing else is said."""


def island_of(rank: int, world_size: int, islands: int) -> str:
    """The island of a rank: neighbours together."""
    return f"island{rank * islands // world_size}"


def disagreement(ranks: Sequence[Rank], islands: int) -> str:
    """Why these ranks cannot be one cluster; empty when they can. Rank 0 comes first.

    All must be of one version and count the same ranks. Ranks of one island must also have the same platform and
    plugin, for they run one computation together, and on accelerators the same number of devices.
    """
    first = ranks[0]
    for other in ranks[1:]:
        for what, ours, theirs in (
            ("ptpathways version", first.version, other.version),
            ("world size", first.world_size, other.world_size),
        ):
            if ours != theirs:
                return f"all ranks must have the same {what}, got {ours} on {first} and {theirs} on {other}"
    if not 1 <= islands <= len(ranks):
        return f"islands must be from 1 to the number of ranks ({len(ranks)}), got {islands}"
    members: dict[str, Rank] = {}
    for rank in ranks:
        member = members.setdefault(island_of(rank.rank, len(ranks), islands), rank)
        for what, wanted, got in (
            ("platform", member.platform, rank.platform),
            ("plugin", member.plugin, rank.plugin),
            ("number of devices", member.devices, rank.devices),
        ):
            if what == "number of devices" and rank.platform == "cpu":
                continue  # our own collectives do not mind
            if wanted != got:
                return (
                    f"ranks of one island must have the same {what}, got {wanted} on {member} and {got} on {rank}; "
                    f"make them alike, or give each an island of its own (--islands {len(ranks)})"
                )
    return ""


class Meeting:
    """One rank's part. ``sleep`` and ``clock`` are the machine's unless a test gives others."""

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        *,
        clock: core.Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._clock = clock or core.SystemClock()
        self._sleep = sleep
        self._generation = 0

    # --- rank 0

    def open(self, own: Rank) -> None:
        """Rank 0 begins a new generation."""
        self._generation = int(self._store.get("generation") or 0) + 1
        self._store.set(self._key("rank/0"), json.dumps(asdict(own)))
        self._store.set("generation", str(self._generation))

    def gather(self, timeout_s: float) -> list[Rank]:
        """All ranks, in order.

        Raises:
            DeadlineExceeded: some have not come; says which.
        """
        found: dict[int, Rank] = {}

        def all_there() -> bool:
            for rank in range(self._world_size):
                if rank not in found and (text := self._store.get(self._key(f"rank/{rank}"))) is not None:
                    found[rank] = Rank(**json.loads(text))
            return len(found) == self._world_size

        if not self._wait(all_there, timeout_s):
            missing = [str(rank) for rank in range(self._world_size) if rank not in found]
            listed = ", ".join(missing[:_LISTED]) + (" and others" if len(missing) > _LISTED else "")
            raise core.DeadlineExceeded(
                f"expected {self._world_size} ranks within {timeout_s:g} s, got {len(found)}; never heard of rank "
                f"{listed}: look at that machine's output, and that every node was started with the same rendezvous"
            )
        return [found[rank] for rank in range(self._world_size)]

    def answer(self, answer: Answer) -> None:
        """Tells all others."""
        self._store.set(self._key("answer"), json.dumps(asdict(answer)))

    def failure(self) -> str:
        """Why a rank gave up before its worker had joined; empty when none did."""
        for rank in range(1, self._world_size):
            if text := self._store.get(self._key(f"failed/{rank}")):
                return text
        return ""

    def end(self, exit_code: int) -> None:
        """Tells the others how the program ended."""
        self._store.set(self._key("ended"), str(exit_code))

    def linger(self, timeout_s: float) -> bool:
        """Waits until every other rank has heard what it must; for a store that ends with rank 0. Whether all have."""

        def all_left() -> bool:
            ranks = range(1, self._world_size)
            return all(self._store.get(self._key(f"left/{rank}")) is not None for rank in ranks)

        return self._wait(all_left, timeout_s)

    # --- the others

    def join(self, own: Rank, timeout_s: float) -> Answer:
        """Waits for rank 0's answer of this run.

        Raises:
            ConnectionFailed: rank 0 says why there is no cluster.
            DeadlineExceeded: it says nothing.
        """
        found: list[Answer] = []
        refused: set[int] = set()  # generations that were answered before this process was there: of an earlier run

        def answered() -> bool:
            latest = int(self._store.get("generation") or 0)
            if latest == 0 or latest in refused:
                return False
            if latest != self._generation:
                self._generation = latest
                if self._store.get(self._key("answer")) is not None:
                    refused.add(latest)
                    return False
                self._store.set(self._key(f"rank/{self._rank}"), json.dumps(asdict(own)))
            text = self._store.get(self._key("answer"))
            if text is None:
                return False
            found.append(Answer(**json.loads(text)))
            return True

        # Rank 0 may have begun to wait a little later, and it is the one that knows who did not come.
        if not self._wait(answered, timeout_s + _ANSWER_S):
            raise core.DeadlineExceeded(
                f"rank {self._rank} expected rank 0's answer within {timeout_s:g} s, got none; look at rank 0's output"
            )
        if found[0].error:
            raise core.ConnectionFailed(f"rank 0 could not make a cluster: {found[0].error}")
        return found[0]

    def fail(self, reason: str) -> None:
        """Tells rank 0 that this rank's worker will not join."""
        self._store.set(self._key(f"failed/{self._rank}"), reason)

    def leave(self) -> None:
        """Tells rank 0 that this rank needs the store no more."""
        self._store.set(self._key(f"left/{self._rank}"), "1")

    def ended(self, timeout_s: float) -> int | None:
        """The program's exit code, or None when rank 0 does not tell."""
        codes: list[str] = []

        def told() -> bool:
            if (text := self._store.get(self._key("ended"))) is not None:
                codes.append(text)
            return bool(codes)

        return int(codes[0]) if self._wait(told, timeout_s) else None

    def _key(self, name: str) -> str:
        return f"{self._generation}/{name}"

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = self._clock.now_s() + timeout_s
        pause_s = _POLL_S[0]
        while not done():
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0:
                return False
            self._sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _POLL_S[1])
        return True
