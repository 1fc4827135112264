"""Machines with addresses of their own: network namespaces joined by a virtual cable. Needs root."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

_SUBNET = "10.213.77"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace. Its processes share memory with one another only, as those of a machine do."""

    name: str
    address: str

    def command(self, *command: str) -> list[str]:
        """``command`` as to be run from outside, on this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    def environment(self) -> dict[str, str]:
        """What its processes have in their environment beside the rest."""
        return {"PTPATHWAYS_MACHINE": self.name}


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """Machines on one network, named after this process; skips the test where namespaces are not allowed."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the `ip` command (package iproute2)")
    # The kernel takes what was removed apart in its own time, so no name is used twice.
    mine = f"{os.getpid() % 1000000}x{next(_numbers)}"
    found = [Machine(f"pw-{mine}-{n}", f"{_SUBNET}.{n + 1}") for n in range(count)]
    switch = f"pw{mine}"
    try:
        _ip("link", "add", switch, "type", "bridge")
        _ip("link", "set", switch, "up")
        for number, machine in enumerate(found):
            cable = f"{switch}v{number}"
            _ip("netns", "add", machine.name)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            _ip("link", "set", cable, "master", switch, "up")
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", machine.name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        _remove(found, switch)
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
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
