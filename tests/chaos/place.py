"""Where a cluster's members live: on machines that are network namespaces, or on this one where that is not permitted.

In both cases a proxy stands before everything that is listened on, and members are told the proxies' addresses.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ptpathways.testing import Machine, NotPermitted, machines
from tests.chaos.plan import MEMBERS

ENCLOSED = "CHAOS_ENCLOSED"
MARK = "CHAOS_LIFE"
"""In the environment of all processes of a cluster, and of theirs: which cluster's they are."""
ON = {"client": 0, "controller": 0, "a": 1, "b": 2}
"""Machines by member. Client and `a` share memory all the same, as containers of one machine can."""
SHARES_WITH = {"client": "a", "controller": "a", "a": "a", "b": "b"}
SHM_MIB, DISK_MIB = 64, 16
CLOCK_SOURCE = Path(__file__).with_name("clock.c")


def enclose(arguments: Sequence[str]) -> str:
    """Puts this program into namespaces of its own, by starting it anew; why that is not permitted, otherwise.

    Mounts, networks and processes of the campaign then end with it, however it ends, and no other program sees them.
    """
    if os.environ.get(ENCLOSED):
        return ""
    if shutil.which("unshare") is None:
        return "there is no `unshare` command"
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    probe = "mount -t tmpfs none /run && ip link add pwprobe type bridge && ip netns add pwprobe"
    tried = subprocess.run([*command, "sh", "-c", probe], capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        return f"namespaces are not permitted: {tried.stderr.strip().splitlines()[-1] if tried.stderr else 'unshare'}"
    command += ["sh", "-c", 'mount -t tmpfs none /run && ip link set lo up && exec "$@"', "sh", sys.executable, "-m"]
    os.execvpe("unshare", [*command, "tests.chaos", *arguments], {**os.environ, ENCLOSED: "1"})


class Place:
    """Machines and folders for one cluster after another. ``reason``: why the machines are this one, or empty."""

    def __init__(self, folder: Path, lane: int) -> None:
        self.folder, self.lane = folder, lane
        folder.mkdir(mode=0o700)
        self._stack = ExitStack()
        self.reason = "" if os.environ.get(ENCLOSED) else "not in namespaces of its own"
        self._machines: list[Machine] = []
        if not self.reason:
            try:
                self._machines = self._stack.enter_context(machines(3, between=5))
            except NotPermitted as error:
                self.reason = str(error)
        self.disk = self._small_disk("disk", DISK_MIB)
        self.shm = {name: self._small_disk(f"shm-{name}", SHM_MIB) for name in ("a", "b")}
        if self.reason:
            self.shm = dict.fromkeys(self.shm, Path("/dev/shm"))
        self._clock_library = self._compile_clock()
        self.clocks = {member: folder / f"clock-{member}" for member in MEMBERS}

    def close(self) -> None:
        self._stack.close()
        if not self.reason:
            for path in (self.disk, *self.shm.values()):
                subprocess.run(["umount", str(path)], check=False)

    @property
    def has_clocks(self) -> bool:
        return bool(self._clock_library)

    def address(self, member: str) -> str:
        """Where the member listens, and calls from."""
        return self._machines[ON[member]].address if self._machines else f"127.0.{self.lane + 1}.{ON[member] + 1}"

    def between(self, number: int) -> str:
        """An address for the ``number``-th proxy."""
        return self._machines[0].address_between(number) if self._machines else f"127.0.{self.lane + 1}.{200 + number}"

    def callers(self, member: str) -> frozenset[str] | None:
        """The addresses from which the member calls; None where that tells nobody from another."""
        return frozenset([self.address(member)]) if self._machines else None

    def cable(self, member: str) -> Machine | None:
        return self._machines[ON[member]] if self._machines else None

    def command(self, member: str, *command: str) -> list[str]:
        """``command`` as to be run for this member: on its machine, whose clock started at another time."""
        if not self._machines:
            return list(command)
        mounted = f'mount --bind {self.shm[SHARES_WITH[member]]} /dev/shm && exec "$@"'
        since_s = str(100_000 * (1 + ON[member]))
        clocks = ["unshare", "-T", "--boottime", since_s, "--monotonic", since_s]
        return self._machines[ON[member]].command("sh", "-c", mounted, "sh", *clocks, *command)

    def environment(self, member: str, life: str, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PTPATHWAYS_")}
        kept |= {MARK: life, "PTPATHWAYS_MACHINE": f"{self.folder.name}-{SHARES_WITH[member]}"}
        if self._clock_library:
            self.set_clock(member, 0)
            kept |= {"LD_PRELOAD": self._clock_library, "CHAOS_CLOCK": str(self.clocks[member])}
        return {**kept, "OMP_NUM_THREADS": "1", **more}

    def set_clock(self, member: str, ahead_s: int) -> None:
        """How far the member's clock of the day is ahead of this machine's, from now on."""
        with open(self.clocks[member], "r+b" if self.clocks[member].exists() else "wb") as file:
            file.write(struct.pack("<q", ahead_s * 10**9))

    def listening(self) -> list[str]:
        """Ports on which something listens on the machines, in the notation of /proc/net/tcp."""
        found = []
        for machine in self._machines:
            table = subprocess.run(machine.command("cat", "/proc/net/tcp"), capture_output=True, text=True, timeout=30)
            rows = [line.split() for line in table.stdout.splitlines()[1:]]
            found += [f"{machine.name} {row[1]}" for row in rows if row[3] == "0A"]
        return found

    def _small_disk(self, name: str, mib: int) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o1777)
        path.chmod(0o1777)
        if not self.reason:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(path)], check=True)
        return path

    def _compile_clock(self) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return ""
        library = self.folder / "clock.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK_SOURCE)]
        return str(library) if subprocess.run(command, check=False).returncode == 0 else ""


def processes(life: str) -> dict[int, str]:
    """Running processes of this life, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            mine = f"{MARK}={life}".encode() in (entry / "environ").read_bytes().split(b"\0")
            zombie = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            if mine and not zombie:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
        except (OSError, IndexError):
            continue
    return found
