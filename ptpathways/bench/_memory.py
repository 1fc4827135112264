"""What a process's resident memory is made of, from ``/proc/PID/smaps``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptpathways.bench._record import memory_kib

_HEADER = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)")


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process in MiB."""

    rss: float
    pss: float
    """Shared pages counted in equal parts to everyone who maps them."""
    parts: dict[str, float]
    """RSS by kind of mapping; adds up to ``rss``."""


def memory_of(pid: int, plugin: str) -> Memory:
    """Resident memory of process ``pid``, which has loaded the PJRT plugin at path ``plugin``.

    Raises:
        OSError: there is no such process, or it is another user's.
    """
    folder = Path(f"/proc/{pid}")
    rollup = (folder / "smaps_rollup").read_text()
    parts: dict[str, float] = {}
    for path, kib in mappings((folder / "smaps").read_text()):
        part = part_of(path, plugin)
        parts[part] = parts.get(part, 0.0) + kib / 1024
    return Memory(memory_kib(rollup, "Rss") / 1024, memory_kib(rollup, "Pss") / 1024, parts)


def mappings(smaps: str) -> Iterator[tuple[str, int]]:
    """Path (empty: anonymous) and resident KiB of each mapping in the text of an smaps file."""
    path = ""
    for line in smaps.splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            path = header[1]
        elif line.startswith("Rss:"):
            yield path, memory_kib(line, "Rss")


def part_of(path: str, plugin: str) -> str:
    """Which part of a worker a mapping of ``path`` belongs to."""
    name = path.rpartition("/")[2]
    if path == plugin:
        return "plugin library"
    if path in ("", "[heap]") or path.startswith("[anon"):
        return "heap"
    if path.startswith("["):
        return "stack and kernel"
    if name.startswith(("_native", "libzmq", "libsodium")):
        return "ptpathways and libzmq"
    if "python" in name or "/lib-dynload/" in path:
        return "Python"
    if ".so" in name:
        return "system libraries"
    return "other files"
