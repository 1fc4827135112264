"""Machines with addresses of their own: network namespaces joined by a virtual cable. Needs root."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_SUBNETS = 100
_numbers = itertools.count()


class NotPermitted(RuntimeError):
    """Network namespaces cannot be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace. Its processes share memory with one another only, as those of a machine do."""

    name: str
    address: str
    cable: str
    """The end of its cable that is outside."""

    def command(self, *command: str) -> list[str]:
        """``command`` as to be run from outside, on this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    def environment(self) -> dict[str, str]:
        """What its processes have in their environment beside the rest."""
        return {"PTPATHWAYS_MACHINE": self.name}

    def address_between(self, number: int) -> str:
        """The ``number``-th address of the process's own machine that made this one, on the same network."""
        return f"{self.address.rpartition('.')[0]}.{200 + number}"

    def plug(self, *, connected: bool) -> None:
        """Puts its cable in or pulls it out: then packets to and from it are lost, and no connection hears of it."""
        _ip("link", "set", self.cable, "up" if connected else "down")


@contextmanager
def machines(count: int, *, between: int = 0) -> Iterator[list[Machine]]:
    """Machines on one network, named after this process.

    This process's own machine is on the network, too, with ``between`` addresses (``Machine.address_between``) for what
    stands between the machines.

    Raises:
        NotPermitted: there is no `ip` command, or this user may not make namespaces.
    """
    if shutil.which("ip") is None:
        raise NotPermitted("network namespaces need the `ip` command (package iproute2)")
    # The kernel takes what was removed apart in its own time, so no name is used twice.
    number = next(_numbers)
    mine = f"{os.getpid() % 1000000}x{number}"
    switch, subnet = f"pw{mine}", f"10.213.{number % _SUBNETS}"
    found = [Machine(f"pw-{mine}-{n}", f"{subnet}.{n + 1}", f"{switch}v{n}") for n in range(count)]
    try:
        _ip("link", "add", switch, "type", "bridge")
        _ip("link", "set", switch, "up")
        for other in range(between):
            _ip("addr", "add", f"{found[0].address_between(other)}/24", "dev", switch)
        for machine in found:
            _ip("netns", "add", machine.name)
            _ip("link", "add", machine.cable, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            _ip("link", "set", machine.cable, "master", switch, "up")
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", machine.name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        _remove(found, switch)
        raise NotPermitted(f"network namespaces are not allowed here: {error.stderr.strip()}") from None
    try:
        yield found
    finally:
        _remove(found, switch)


def _remove(found: Sequence[Machine], switch: str) -> None:
    for machine in found:
        subprocess.run(["ip", "netns", "del", machine.name], capture_output=True, timeout=30)
    subprocess.run(["ip", "link", "del", switch], capture_output=True, timeout=30)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
