"""Where workers keep what they compiled, for the next time."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

from ptpathways import core

OFF = "off"
ROOM_BYTES = 64 << 20
"""Free space below which nothing is kept."""


def cache_folder(given: str, instead: Path | None = None) -> str:
    """The folder for compiled programs; empty: they are not kept.

    Args:
        given: what the user asked for: a folder, ``off``, or empty for ``ptpathways/compiled`` in the user's cache
            folder (``XDG_CACHE_HOME``, else ``~/.cache``).
        instead: the folder for a cluster's own time, when none outlives it.

    A folder that cannot be used is told of with a ``CacheWarning``, and work goes on.
    """
    fallback = "" if instead is None else str(instead)
    if given == OFF:
        return fallback
    folder = Path(given).expanduser().absolute() if given else default_folder()
    reason = _reason_against(folder)
    if not reason:
        return str(folder)
    warnings.warn(
        f"compiled programs are not kept for the next start: {reason}; name another folder with cache_dir or "
        f"PTPATHWAYS_CACHE_DIR, or say {OFF!r}",
        core.CacheWarning,
        stacklevel=2,
    )
    return fallback


def default_folder() -> Path:
    """The user's, whether it exists or not."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    return root / "ptpathways" / "compiled"


def _reason_against(folder: Path) -> str:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.stat()
        if not stat.S_ISDIR(about.st_mode):
            return f"{folder} is not a folder"
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"programs in {folder} would run as yours, and others can write there (chmod 700)"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} is read-only"
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < ROOM_BYTES:
            return f"the disk of {folder} is full"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        return str(error)
    return ""
