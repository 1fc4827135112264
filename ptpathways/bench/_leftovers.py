"""Cleaning up after a process that does not do so itself: some rivals do not when they fail or are killed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import tempfile
from pathlib import Path

_MARK = "PTPATHWAYS_BENCH_CHILD"
_END_TIMEOUT_S = 5.0
_SHARED = Path("/dev/shm")
_SEMAPHORE = re.compile(r"sem\.(?:hdr|obj)(\d+)-\d+")  # Ray's: sem.hdr<pid>-<time>


class Leftovers:
    """What a process and its descendants may leave: they are known by a variable of their environment."""

    def __init__(self) -> None:
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        self._folder = tempfile.mkdtemp(prefix="pwb", dir="/tmp")  # short: sockets with long names go there
        self._known = _semaphores()

    @property
    def environment(self) -> dict[str, str]:
        """Variables to start the process with."""
        name, _, value = self._mark.partition("=")
        return {name: value, "TMPDIR": self._folder}

    def remove(self) -> None:
        """Kills what still runs, and removes the temporary folder and semaphores that are nobody's. Idempotent."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                _kill(pid)
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, pid in _semaphores().items() - self._known.items():
            if not Path(f"/proc/{pid}").exists():
                (_SHARED / name).unlink(missing_ok=True)

    def processes(self) -> list[int]:
        """Process ids of the marked that still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended, or it is another user's
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found


def _kill(pid: int) -> None:
    """Returns once it has ended. Raises ProcessLookupError."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], _END_TIMEOUT_S)
    finally:
        os.close(descriptor)


def _semaphores() -> dict[str, int]:
    """Process ids by file name."""
    if not _SHARED.is_dir():
        return {}
    matches = (_SEMAPHORE.fullmatch(name) for name in os.listdir(_SHARED))
    return {match.group(): int(match.group(1)) for match in matches if match}
