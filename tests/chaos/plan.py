"""Which fault comes when, and what is to come of it: pure functions of the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = (
    "kill",
    "stop 6 s",
    "stop 12 s",
    "stop 30 s",
    "reset",
    "blackhole",
    "delay",
    "garbage",
    "disk full",
    "/dev/shm full",
    "device memory refused",
    "slow reader",
    "clock jump",
)
MEMBERS = ("client", "controller", "a", "b")
BOTH_CONTROLLERS = "controller and standby"
WORKERS = ("a", "b")
CLIENT_CONTROL, WORKER_CONTROL = "client-controller", ("a-controller", "b-controller")
CONTROL_LINKS = (CLIENT_CONTROL, *WORKER_CONTROL)
DATA_LINKS = ("client-a", "client-b", "a-b")
LINKS = (*CONTROL_LINKS, *DATA_LINKS)
WAYS = ("forward", "backward", "both", "cable")
"""Of a blackhole: from the caller, to it, both; or the cable of the machine whose worker (or client) it is."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    target: str
    """A member, a link, or where there is a choice of neither, "stranger at" a member."""
    seconds: float = 0.0
    how: str = ""

    def __str__(self) -> str:
        parts = [self.kind, f"of {self.target}", self.how, f"for {self.seconds:.1f} s" if self.seconds else ""]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is to come of a fault.

    outcome: "survived": the loop goes on, with the same values. "named": it ends with `error`, whose message has
    `names`, within `within_s`. "refused": what was asked for fails so, and the loop goes on. "collected": the
    controller's log has `names` within `within_s`, and the next client is served.
    """

    outcome: str
    error: str = ""
    names: str = ""
    within_s: float = 5.0

    @property
    def ends_the_loop(self) -> bool:
        return self.outcome in ("named", "collected")


SURVIVED = Expectation("survived")


def expectation(fault: Fault) -> Expectation:
    """The table of what is promised."""
    controller_gone = Expectation("named", "ConnectionFailed", r"controller")
    host_lost = Expectation("named", "HostLost", rf"host '{fault.target[0]}'")
    match fault.kind:
        case "kill" if fault.target == "client":
            return Expectation("collected", names=r"client 'client-[^']+'.* is gone")
        case "kill" if fault.target == BOTH_CONTROLLERS:
            return controller_gone
        case "kill" if fault.target == "controller":
            return SURVIVED
        case "kill":
            return host_lost
        case "disk full":
            return Expectation("refused", "CheckpointError", r"host '[ab]'.*([Ss]pace|[Ff]ile too large)")
        case "device memory refused":
            return Expectation("refused", "OutOfDeviceMemory", r"host '[ab]'|device \d")
    return SURVIVED


def cells() -> list[tuple[str, str]]:
    """Every kind with every target that it can have, but the longest pauses (`rounds`)."""
    found = [("kill", member) for member in (*MEMBERS, BOTH_CONTROLLERS)]
    found += [(kind, member) for kind in ("stop 6 s", "stop 12 s") for member in MEMBERS]
    found += [(kind, link) for kind in ("reset", "blackhole", "delay", "garbage", "slow reader") for link in LINKS]
    found += [("garbage", f"stranger at {member}") for member in ("controller", *WORKERS)]
    found += [("disk full", worker) for worker in WORKERS] + [("/dev/shm full", member) for member in ("a", "b")]
    found += [("device memory refused", "client")] * 2
    found += [("clock jump", member) for member in MEMBERS]
    return found


def draw(kind: str, target: str, numbers: random.Random) -> Fault:
    """A fault of this kind on this target, with what else there is to choose."""
    match kind:
        case "stop 6 s" | "stop 12 s" | "stop 30 s":
            return Fault(kind, target, float(kind.split()[1]))
        case "reset":
            return Fault(kind, target, how=numbers.choice(("", "in the middle")))
        case "blackhole":
            return Fault(kind, target, numbers.choice((2.0, 4.0, 8.0, 25.0)), numbers.choice(WAYS))
        case "delay":
            return Fault(kind, target, 3.0, f"{numbers.choice((20, 100, 400))} ms")
        case "slow reader":
            return Fault(kind, target, 4.0, f"{numbers.choice((2, 16, 128))} KiB/s")
        case "clock jump":
            return Fault(kind, target, how=f"{numbers.choice((-86400, -3600, -30, 30, 3600, 86400)):+d} s")
    return Fault(kind, target)


def rounds(seed: int) -> Iterator[Fault]:
    """Faults without end. Each round has every cell once, in an order of its own, and one pause of 30 s.

    Such a pause takes as long as six other faults: each round has one member's, so that there is time for the others.
    """
    numbers = random.Random(seed)
    paused = numbers.sample(MEMBERS, len(MEMBERS))
    for number in itertools.count():
        order = [*cells(), ("stop 30 s", paused[number % len(paused)])]
        numbers.shuffle(order)
        for kind, target in order:
            yield draw(kind, target, numbers)


def short(seed: int) -> list[Fault]:
    """A part for a minute: the kinds that take a second or two on a target each, a pause, and a death at the end."""
    numbers = random.Random(seed)
    quick = [
        ("reset", "client-b"),
        ("reset", "a-b"),
        ("delay", numbers.choice(LINKS)),
        ("slow reader", numbers.choice(LINKS)),
        ("garbage", numbers.choice(DATA_LINKS)),
        ("garbage", f"stranger at {numbers.choice(('controller', *WORKERS))}"),
        ("disk full", "a"),
        ("/dev/shm full", "a"),
        ("device memory refused", "client"),
        ("clock jump", numbers.choice(MEMBERS)),
        ("kill", "controller"),
        ("stop 6 s", numbers.choice(MEMBERS)),
    ]
    numbers.shuffle(quick)
    blackhole = Fault("blackhole", numbers.choice(DATA_LINKS), 3.0, numbers.choice(WAYS))
    ends = [draw("reset", numbers.choice(CONTROL_LINKS), numbers), Fault("kill", numbers.choice(WORKERS))]
    return [*(draw(kind, target, numbers) for kind, target in quick), blackhole, *ends]
