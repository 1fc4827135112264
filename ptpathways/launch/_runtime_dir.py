"""A cluster's own folder: its sockets and its workers' logs, gone when it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "ptpathways-"

_SOCKET_PATH_MAX = 107
_LONGEST_NAME = len("/controller") + 24


def base_folder() -> Path:
    """``$XDG_RUNTIME_DIR`` if usable, else the folder for temporary files; ``/tmp`` if their paths are too long.

    A path of a Unix socket has at most 107 bytes.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for folder in (runtime, tempfile.gettempdir()):
        length = len(os.fsencode(folder)) + len(f"/{PREFIX}-0000000000-xxxxxxxx") + _LONGEST_NAME
        if folder and os.access(folder, os.W_OK | os.X_OK) and length <= _SOCKET_PATH_MAX:
            return Path(folder)
    return Path("/tmp")


def create() -> Path:
    """A new folder that only this user can read; folders of processes that are gone are removed on the way."""
    base = base_folder()
    remove_dead(base)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))


def remove(folder: Path) -> None:
    """Removes a cluster's folder; nothing happens if it is gone already."""
    shutil.rmtree(folder, ignore_errors=True)


def leftovers(base: Path | None = None) -> list[Path]:
    """Folders of this user whose process is gone: it was killed, and its workers with it."""
    found = []
    for folder in (base or base_folder()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).split("-")[0]
        with contextlib.suppress(OSError):
            if owner.isdigit() and folder.stat().st_uid == os.getuid() and not _alive(int(owner)):
                found.append(folder)
    return found


def remove_dead(base: Path | None = None) -> int:
    """Removes ``leftovers``; how many."""
    folders = leftovers(base)
    for folder in folders:
        remove(folder)
    return len(folders)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
