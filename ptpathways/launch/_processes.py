"""Child processes that are watched: their death is told at once, and none outlives who started it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptpathways import core

_TAIL_LINES = 20
_TAIL_BYTES = 65536
_LINE_MAX = 300
_NOISE = (
    "cpu_aot_loader.cc",
    "All log messages before absl::InitializeLog()",
    "cpu_device_count set via create_options",
)
"""What XLA writes into any worker's log, whatever happens; lines of the first kind have some 4 kB."""
_REASONS = ("Check failed", "F0000 ", "terminate called", "ERROR: AddressSanitizer")
"""Begins what a library says before it ends the process; dozens of lines of its stack follow."""
_NOTE = b"ptpathways worker notes: "
"""Begins a line of a worker's log that its user is to read (csrc/worker/note.h)."""
_LOOK_MS = 1000


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start; what it prints goes to the file ``log``."""

    name: str
    arguments: Sequence[str]
    environment: dict[str, str]
    log: Path


class Processes:
    """Starts commands and watches them until they have ended.

    One thread, ``ptpathways-watch``, starts the processes, for the kernel tells a child that its parent died when the
    *thread* that started it does; and so it lives as long as they. On it are called ``on_exit(name, reason)`` for every
    process that ends before ``stop`` was called, and ``on_note(text)`` for what a worker has noted in its log, at most
    a second later, once for the same text.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        on_exit: Callable[[str, str], None],
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self._commands = list(commands)
        self._on_exit = on_exit
        self._notes = None if on_note is None else Notes([command.log for command in self._commands], on_note)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()  # guards _exited and _failure
        self._exited: dict[str, str] = {}
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._pids: dict[str, int] = {}
        self._thread = threading.Thread(target=self._watch, name="ptpathways-watch", daemon=True)

    def start(self, timeout_s: float = 30.0) -> None:
        """Starts every process; returns when they run.

        Raises:
            OSError: one could not be started; those that were are killed.
            DeadlineExceeded: the machine did not start them in time.
        """
        self._thread.start()
        if not self._started.wait(timeout_s):
            raise core.DeadlineExceeded(f"expected {len(self._commands)} processes to start within {timeout_s} s")
        if self._failure is not None:
            raise self._failure

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of all that were started."""
        return dict(self._pids)

    def exited(self) -> dict[str, str]:
        """Why each process that has ended did, by name."""
        with self._lock:
            return dict(self._exited)

    def said(self) -> dict[str, str]:
        """The last lines that each process has printed, by name."""
        return {command.name: tail_of(command.log) for command in self._commands}

    def stop(self, grace_s: float) -> None:
        """Waits up to ``grace_s`` for the processes to end by themselves, then makes them. None is left after it."""
        self._stopping.set()
        if not self._thread.is_alive():
            return
        self._thread.join(grace_s)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._thread.is_alive():
                return
            for process in list(self._running.values()):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
            self._thread.join(grace_s)

    def _watch(self) -> None:
        try:
            for command in self._commands:
                process = _spawn(command)
                self._running[command.name] = process
                self._pids[command.name] = process.pid
        except BaseException as error:
            self._failure = error
            for process in self._running.values():
                process.kill()
        logs = {command.name: command.log for command in self._commands}
        poller = select.poll()
        by_descriptor: dict[int, str] = {}
        for name, process in self._running.items():
            descriptor = os.pidfd_open(process.pid)
            by_descriptor[descriptor] = name
            poller.register(descriptor, select.POLLIN)
        self._started.set()
        while by_descriptor:
            ended = poller.poll(None if self._notes is None else _LOOK_MS)
            if self._notes is not None:
                self._notes.look()
            for descriptor, _ in ended:
                poller.unregister(descriptor)
                os.close(descriptor)
                name = by_descriptor.pop(descriptor)
                reason = describe_exit(self._running[name].wait(), logs[name])
                del self._running[name]
                with self._lock:
                    self._exited[name] = reason
                if not self._stopping.is_set():
                    self._on_exit(name, reason)


class Notes:
    """What workers note in their logs, as it comes. Each text is told once, whichever of them notes it."""

    def __init__(self, logs: Sequence[Path], tell: Callable[[str], None]) -> None:
        self._read = dict.fromkeys(logs, 0)
        self._tell = tell
        self._told: set[str] = set()

    def look(self) -> None:
        """Tells of the notes that are new since the last call."""
        for log, start in self._read.items():
            try:
                if log.stat().st_size == start:
                    continue
                with open(log, "rb") as file:
                    file.seek(start)
                    new = file.read(_TAIL_BYTES)
            except OSError:
                continue
            whole = new[: new.rfind(b"\n") + 1] or (new if len(new) == _TAIL_BYTES else b"")
            self._read[log] = start + len(whole)
            for line in whole.splitlines():
                text = line.removeprefix(_NOTE).decode(errors="replace")
                if line.startswith(_NOTE) and text not in self._told:
                    self._told.add(text)
                    self._tell(text)


def show(note: str) -> None:
    """Tells the user at the terminal."""
    print(f"ptpathways: {note}", file=sys.stderr, flush=True)


def _spawn(command: Command) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the terminal is for the client, which then ends its workers in order.
    with open(command.log, "wb") as log:
        return subprocess.Popen(
            command.arguments,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def describe_exit(code: int, log: Path | None = None) -> str:
    """``"was killed by SIGKILL"`` or ``"exited with code 1"``, with the end of what it printed."""
    if code < 0:
        try:
            what = f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            what = f"was killed by signal {-code}"
    else:
        what = f"exited with code {code}"
    tail = tail_of(log) if log is not None else ""
    return f"{what}; the end of its log:\n{tail}" if tail else what


def tail_of(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a file that say something, cut to some length, and before them why a library ended the process.

    Nothing when there is no such file.
    """
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            if (start := file.tell() - _TAIL_BYTES) > 0:
                file.seek(start)
                file.readline()  # which began before
            else:
                file.seek(0)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    telling = [line for line in text.rstrip().splitlines() if not any(noise in line for noise in _NOISE)]
    reasons = [line for line in telling[:-lines] if any(reason in line for reason in _REASONS)]
    shown = [*reasons[-2:], *telling[-lines:]]
    return "\n".join(line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}..." for line in shown)


def wait_gone(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Waits until none of the processes runs; those that still do after ``timeout_s``. They need not be children."""
    deadline_s = time.monotonic() + timeout_s
    poller = select.poll()
    waiting: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            waiting[descriptor] = pid
            poller.register(descriptor, select.POLLIN)
    try:
        while waiting:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            for descriptor, _ in poller.poll(left_s * 1000):
                poller.unregister(descriptor)
                os.close(descriptor)
                del waiting[descriptor]
        return list(waiting.values())
    finally:
        for descriptor in waiting:
            os.close(descriptor)
