"""A cluster's own folder: its sockets and its workers' logs, gone when it ends.

Its maker holds a lock (flock) on the folder. The lock ends with the process, however it ends, and it means the same to
programs that share the folder above but not this process's numbers, such as containers; systemd-tmpfiles heeds it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "ptpathways-"

_SOCKET_PATH_MAX = 107
_LONGEST_NAME = len("/controller") + 24


def base_folder() -> Path:
    """``$XDG_RUNTIME_DIR`` if usable, else the folder for temporary files; ``/tmp`` if their paths are too long.

    A path of a Unix socket has at most 107 bytes.
    """
    return next(_candidates())


def _candidates() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in (runtime, tempfile.gettempdir()):
        length = len(os.fsencode(folder)) + len(f"/{PREFIX}-0000000000-xxxxxxxx") + _LONGEST_NAME
        if folder and os.access(folder, os.W_OK | os.X_OK) and length <= _SOCKET_PATH_MAX:
            yield Path(folder)
    yield Path("/tmp")


_locks: dict[Path, int] = {}
"""The locks of this process, as file descriptors, by folder."""


def create() -> Path:
    """A new folder that only this user can read; folders whose makers are gone are removed on the way."""
    for base in _candidates():
        remove_dead(base)
        with contextlib.suppress(OSError):  # for root everything seems writable, /proc and what is read-only, too
            return _create(base)
    return _create(Path("/tmp"))


def _create(base: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
        with contextlib.suppress(OSError):  # until it was locked, another could take it for one whose maker is gone
            descriptor = _open(folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(folder, descriptor):
                _locks[folder] = descriptor
                return folder
            os.close(descriptor)


def remove(folder: Path) -> None:
    """Removes a cluster's folder; nothing happens if it is gone already."""
    shutil.rmtree(folder, ignore_errors=True)
    if (descriptor := _locks.pop(folder, None)) is not None:
        os.close(descriptor)


def remove_dead(base: Path | None = None) -> int:
    """Removes folders of this user whose makers are gone: they were killed, and their workers with them; how many."""
    return sum(remove_if_dead(folder) for folder in (base or base_folder()).glob(f"{PREFIX}[0-9]*-*"))


def remove_if_dead(folder: Path) -> bool:
    """Removes the folder if its maker is gone; whether it did."""
    try:
        descriptor = _open(folder)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(folder, descriptor):
            shutil.rmtree(folder, ignore_errors=True)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), folder.lstat())
    return False
