"""The cluster under test: a controller, two workers and the loop, each a process, with proxies between them."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptpathways import core, native
from ptpathways.testing import Proxy, wait_until
from tests.chaos.place import Place, processes
from tests.chaos.plan import CLIENT_CONTROL, LINKS, MEMBERS, WORKERS

ROOT = Path(__file__).parents[2]
CLI = [sys.executable, "-m", "ptpathways.cli"]
CONTROL_PORT = 7450
DATA_PORT = {"a": 7461, "b": 7462}
START_S = 240.0
ASK_S = 10.0
END_S = 40.0
"""Members end by themselves when their controller is gone; a worker that is stuck does so after 8 s. On a machine with
much else to do, the interpreter of a program with PyTorch takes its time to end."""
_SERVES = r"controller of cluster (\S+) at"
_OF_TORCH = "_remote_module_non_scriptable.py"
"""PyTorch writes it when it is imported, and removes it unless it is killed."""


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a member's log."""

    at_s: float
    member: str
    line: str


@dataclass(frozen=True, slots=True)
class Told:
    """A line of the loop's."""

    at_s: float
    what: dict[str, Any]


class Member:
    """A process, whose lines are kept with the time at which they came."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], said: list[Said]) -> None:
        self.name = name
        self._said = said
        self.told: queue.Queue[Told] = queue.Queue()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, **command: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # it has ended; its lines say why

    def close(self) -> None:
        """Ends it, if it has not ended."""
        self.process.kill()
        self.process.wait(START_S)
        for reader in self._readers:
            reader.join(START_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                assert stream is not None
                stream.close()
            except OSError:
                continue

    def _read(self, stream: Any) -> None:
        for line in stream:
            at_s = time.monotonic()
            if self.name == "client" and line.startswith("{"):
                self.told.put(Told(at_s, json.loads(line)))
            else:
                self._said.append(Said(at_s, self.name, line.rstrip()))


class Cluster:
    """Started by the constructor. Members that have ended can be started anew."""

    def __init__(self, place: Place, life: str) -> None:
        self.place, self.life = place, life
        self.said: list[Said] = []
        self.members: dict[str, Member] = {}
        self.runtime = place.folder / f"{life}-runtime"
        self.scratch = place.folder / f"{life}-tmp"
        for folder in (self.runtime, self.scratch):
            folder.mkdir(mode=0o700)
        self._stack = ExitStack()
        self._token = core.make_token()
        self._proxies = {link: self._control_proxy(number) for number, link in enumerate(("client", *WORKERS))}
        self._data = {
            name: self._proxy(3 + number, (place.address(name), DATA_PORT[name])) for number, name in enumerate(WORKERS)
        }
        self.start("controller")
        wait_until(lambda: self.heard(_SERVES, "controller") is not None, START_S)
        for name in WORKERS:
            self.start(name)

    def start(self, name: str) -> Member:
        """Starts a member, in place of one of this name that has ended."""
        if name in self.members:
            self.members[name].close()
        command = {"controller": self._controller, "client": self._client}.get(name, lambda: self._worker(name))()
        more = {
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.scratch),
            "PTPATHWAYS_TOKEN": self._token,
            "PTPATHWAYS_ADDRESS": self._join("client"),
            "PTPATHWAYS_WAIT_NOTICE": "4",
            "PTPATHWAYS_CACHE_DIR": str(self.place.folder / "compiled"),
        }
        environment = self.place.environment(name, self.life, more)
        self.members[name] = Member(name, self.place.command(name, *command), environment, self.said)
        return self.members[name]

    def status(self) -> dict[str, Any]:
        """What `ptpathways status` says; empty: the controller does not answer."""
        address = f"tcp://{self.place.address('controller')}:{CONTROL_PORT}"
        try:
            with native.Session.connect(address, "judge", ASK_S, token=self._token) as session:
                found: dict[str, Any] = json.loads(session.status_json(ASK_S))
        except native.NativeError:
            return {}
        return found

    def pid(self, name: str) -> int:
        """The process of a member; of the controller the one that serves, which is not its standby."""
        if name != "controller":
            return self.members[name].pid
        pid: int = self.status()["controller"]["pid"]
        return pid

    def hosts(self) -> list[dict[str, Any]]:
        """Those that are alive, as ``status`` describes them."""
        return [host for host in self.status().get("hosts", []) if host["alive"]]

    def wait_for_hosts(self) -> None:
        wait_until(lambda: len(self.hosts()) == len(WORKERS), START_S)

    def heard(self, pattern: str, member: str, since_s: float = 0.0) -> Said | None:
        """The first line of the member's log since then that has the pattern."""
        found = (each for each in list(self.said) if each.member == member and each.at_s >= since_s)
        return next((each for each in found if re.search(pattern, each.line)), None)

    def link(self, name: str) -> list[tuple[Proxy, frozenset[str] | None]]:
        """The proxies of a link, each with its callers."""
        assert name in LINKS, name
        if name == CLIENT_CONTROL:
            return [(self._proxies["client"], None)]
        one, other = name.split("-")
        if other == "controller":
            return [(self._proxies[one], None)]
        found = [(self._data[other], self.place.callers(one))]
        return found if one == "client" else [*found, (self._data[one], self.place.callers(other))]

    def listener(self, member: str) -> tuple[str, int]:
        """Where strangers find it."""
        port = DATA_PORT.get(member, CONTROL_PORT)
        return (self._data[member] if member in WORKERS else self._proxies["client"]).address[0], port

    def descriptors(self) -> dict[str, int]:
        """How many file descriptors each living member has."""
        found = {}
        for name in MEMBERS:
            try:
                found[name] = len(os.listdir(f"/proc/{self.members[name].pid}/fd"))
            except (OSError, KeyError):
                continue
        return found

    def close(self) -> list[str]:
        """Ends the cluster in order, as far as it still runs; what is left of it then, before it is removed.

        What a worker or controller that was killed left is removed by the next that starts there. So one is started.
        """
        if self.members["controller"].process.poll() is not None:
            self._wait([name for name in MEMBERS if name in self.members])
            since_s = time.monotonic()
            self.start("controller")
            wait_until(lambda: self.heard(_SERVES, "controller", since_s) is not None, START_S)
        else:
            for name in WORKERS:
                if self.members[name].process.poll() is not None:
                    self.start(name)
            self.wait_for_hosts()
        if "client" in self.members:
            self.members["client"].ask(do="end")
            self._wait(["client"])
        if self.members["controller"].process.poll() is None:
            self.members["controller"].process.terminate()
        self._wait([name for name in MEMBERS if name in self.members])
        left = self.leftovers()
        self.kill()
        return left

    def kill(self) -> None:
        """Ends all that is left of it."""
        for member in self.members.values():
            member.close()
        for pid in processes(self.life):
            os.kill(pid, signal.SIGKILL)
        self._stack.close()

    def leftovers(self) -> list[str]:
        """Processes, segments, files and ports, of a cluster whose controller has ended."""
        found = [f"process {pid}: {command}" for pid, command in processes(self.life).items()]
        names = {match[1] for each in list(self.said) if (match := re.search(_SERVES, each.line))}
        for folder in sorted(set(self.place.shm.values())):
            mine = [f"ptpathways-{name}-" for name in names]
            found += [f"segment {each}" for each in os.listdir(folder) if any(each.startswith(one) for one in mine)]
        for folder in (self.scratch, self.runtime):
            files = [path for path in folder.rglob("*") if path.is_file() and path.name != _OF_TORCH]
            found += [f"file {path.relative_to(self.place.folder)}" for path in files]
        return found + [f"port {each}" for each in self.place.listening()]

    def _wait(self, names: Sequence[str]) -> None:
        """For members to end by themselves."""
        deadline_s = time.monotonic() + END_S
        for name in names:
            try:
                self.members[name].process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue  # a leftover

    def _controller(self) -> list[str]:
        return [*CLI, "controller", "--bind", f"tcp://{self.place.address('controller')}:{CONTROL_PORT}"]

    def _worker(self, name: str) -> list[str]:
        return [
            *CLI, "worker", "--join", self._join(name), "--name", name, "--memory-limit", "32MiB",
            "--root", str(self.place.folder), "--island", "one", "--log-level", "info",
            "--data-endpoint", f"tcp://{self.place.address(name)}:{DATA_PORT[name]}",
            "--advertise", self._data[name].address[0], "--cache-dir", str(self.place.folder / "compiled"),
        ]  # fmt: skip

    def _client(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("loop.py"))]

    def _join(self, name: str) -> str:
        return f"tcp://{self._proxies[name].address[0]}:{CONTROL_PORT}"

    def _control_proxy(self, number: int) -> Proxy:
        return self._proxy(number, (self.place.address("controller"), CONTROL_PORT))

    def _proxy(self, number: int, target: tuple[str, int]) -> Proxy:
        return self._stack.enter_context(Proxy((self.place.between(number), target[1]), target))
