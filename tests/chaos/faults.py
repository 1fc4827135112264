"""Faults as verbs: each does something to a cluster, and gives back what undoes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from ptpathways.testing import SHUT, USUAL, Way, resume_process, stop_process
from tests.chaos.cluster import Cluster
from tests.chaos.plan import BOTH_CONTROLLERS, DATA_LINKS, Fault

Undo = Callable[[], None]
TOO_MANY_ROWS = 40_000
"""Of 2 KiB each, over two devices of 32 MiB."""
_IN_THE_MIDDLE_BYTES = 100_000
"""After so many more, a connection is reset: within a batch."""
_GREETING = bytes([0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1])
"""With which a peer that speaks ZeroMQ's protocol begins."""


def nothing() -> None:
    pass


def begin(cluster: Cluster, fault: Fault) -> Undo:
    """Does it; what undoes it, when the time has come."""
    match fault.kind:
        case "kill":
            if fault.target == BOTH_CONTROLLERS:
                pids = [cluster.members["controller"].pid, cluster.pid("controller")]
            else:
                pids = [cluster.pid(fault.target)]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            return nothing
        case "stop 6 s" | "stop 12 s" | "stop 30 s":
            pid = cluster.pid(fault.target)
            stop_process(pid)
            return lambda: resume_process(pid)
        case "reset":
            return _reset(cluster, fault)
        case "blackhole":
            return _blackhole(cluster, fault)
        case "delay":
            return _pass_as(cluster, fault.target, both=Way(delay_s=int(fault.how.split()[0]) * 1e-3))
        case "slow reader":
            return _pass_as(cluster, fault.target, both=Way(bytes_per_s=int(fault.how.split()[0]) * 1024))
        case "garbage" if fault.target.startswith("stranger at "):
            _speak_nonsense(cluster.listener(fault.target.removeprefix("stranger at ")))
            return nothing
        case "garbage":
            for proxy, callers in cluster.link(fault.target):
                proxy.damage(callers)
            return nothing
        case "disk full":
            return fill(cluster, cluster.place.disk, fault.target)
        case "/dev/shm full":
            return fill(cluster, cluster.place.shm[fault.target], fault.target)
        case "device memory refused":
            return nothing  # the loop asks for it
        case "clock jump":
            cluster.place.set_clock(fault.target, int(fault.how.split()[0]))
            return nothing
    raise ValueError(f"there is no fault {fault}")


def _reset(cluster: Cluster, fault: Fault) -> Undo:
    for proxy, callers in cluster.link(fault.target):
        if fault.how:
            proxy.reset_after(_IN_THE_MIDDLE_BYTES if fault.target in DATA_LINKS else 1)
        else:
            proxy.cut(reset=True, callers=callers)
    return nothing


def _blackhole(cluster: Cluster, fault: Fault) -> Undo:
    machine = cluster.place.cable(fault.target.split("-")[0])
    if fault.how == "cable" and machine is not None:
        machine.plug(connected=False)
        return lambda: machine.plug(connected=True)
    match fault.how:
        case "forward":
            return _pass_as(cluster, fault.target, SHUT, USUAL)
        case "backward":
            return _pass_as(cluster, fault.target, USUAL, SHUT)
    return _pass_as(cluster, fault.target, both=SHUT)


def _pass_as(cluster: Cluster, link: str, forward: Way = USUAL, backward: Way = USUAL, both: Way | None = None) -> Undo:
    proxies = cluster.link(link)
    for proxy, callers in proxies:
        proxy.pass_as(both or forward, both or backward, callers)

    def undo() -> None:
        for proxy, callers in proxies:
            proxy.pass_as(USUAL, USUAL, callers)

    return undo


def fill(cluster: Cluster, folder: Path, member: str) -> Undo:
    """Leaves nothing of a small disk; where there is none, the member may make no file larger than 4 KiB."""
    if cluster.place.reason:
        pid = cluster.members[member].pid
        usual = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

        def lift() -> None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)

        return lift
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))

    return lambda: path.unlink(missing_ok=True)


def _speak_nonsense(listener: tuple[str, int]) -> None:
    """As somebody who has the address and no key: bytes of chance, half of them after a greeting."""
    numbers = random.Random(listener[1])
    deadline_s = time.monotonic() + 5.0
    for start in (b"", _GREETING, b"GET / HTTP/1.1\r\n\r\n", _GREETING):
        with contextlib.suppress(OSError), socket.create_connection(listener, timeout=5) as stranger:
            stranger.sendall(start + numbers.randbytes(1 << 12))
            stranger.settimeout(max(0.1, deadline_s - time.monotonic()))
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(1 << 12):  # what is answered before the connection is closed
                pass


# What the campaign does to itself, to see that its judge finds it.


def leave_segment(cluster: Cluster) -> None:
    """Leaves a file in /dev/shm that has the name of one of the cluster's, and its lock, until this process ends.

    Without the lock its owner counts as dead, and the next worker that starts there removes it.
    """
    said = cluster.heard(r"controller of cluster \S+ at", "controller")
    assert said is not None
    name = said.line.split("of cluster ", 1)[1].split()[0]
    segment = os.open(Path(cluster.place.shm["b"]) / f"ptpathways-{name}-7-7", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(segment, b"left")
    fcntl.flock(segment, fcntl.LOCK_EX)


def leave_process(cluster: Cluster) -> None:
    """Leaves a process that the client has started."""
    pid = cluster.members["client"].pid
    environment = dict(
        entry.decode().split("=", 1)
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"=" in entry
    )
    os.posix_spawn("/bin/sleep", ["sleep", "600"], environment, setsigdef=[signal.SIGTERM])
