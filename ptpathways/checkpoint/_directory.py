"""A checkpoint's directory: data files, and a manifest that says which of them count.

The manifest is written last, under another name, and renamed: that is the moment at which a checkpoint exists. Data
files have names of their own for every save, so a save touches none that the manifest names; those that it does not
name are left over from saves that died, and the next save removes them. Who saves holds a lock on the directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptpathways.core import CheckpointError

MANIFEST = "manifest.json"
FORMAT = "ptpathways checkpoint"
VERSION = 1
_LOCK = ".lock"
_DATA = re.compile(r"data-[0-9a-f]+-[\w.-]+\.safetensors(\.partial)?")


@dataclass(slots=True)
class Manifest:
    """What a checkpoint holds."""

    objects: dict[str, Any]
    """By the names that ``save`` was given: ``kind``, a "state" or a "value", and the ``tree``, JSON of ``_tree``."""
    tensors: dict[str, dict[str, Any]]
    """By name: ``dtype``, ``shape``, and ``pieces`` of ``file`` (a number), ``offset``, ``start`` and ``size``."""
    files: list[dict[str, Any]]
    """``name`` and ``bytes`` of every data file."""
    rng: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    """For people: when, by which version, of how many devices."""

    def text(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "about": self.about,
                "files": self.files,
                "tensors": self.tensors,
                "objects": self.objects,
                "rng": self.rng,
            },
            separators=(",", ":"),
        )


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the checkpoint in a directory.

    Raises:
        CheckpointError: there is none, or it is of a newer format.
    """
    path = directory / MANIFEST
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        what = "there is no such directory" if not directory.exists() else f"it has no {MANIFEST}: no save was finished"
        raise CheckpointError(f"'{directory}' is no checkpoint: {what}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"'{path}' is damaged: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise CheckpointError(f"'{path}' is no manifest of a checkpoint")
    if found.get("version") != VERSION:
        raise CheckpointError(
            f"'{directory}' is of format version {found.get('version')}, and this ptpathways reads version {VERSION}; "
            "install the one that wrote it"
        )
    return Manifest(found["objects"], found["tensors"], found["files"], found["rng"], found.get("about", {}))


class Lock:
    """Held by who saves into a directory; the system lets it go when its process ends, however that is."""

    def __init__(self, directory: Path) -> None:
        """Raises BlockingIOError when another process holds it."""
        self._file = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_directory(directory: Path) -> Lock:
    """Makes a directory for a checkpoint, or takes over the one there, and removes what dead saves left in it.

    Raises:
        CheckpointError: it cannot be made, or somebody else saves into it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = Lock(directory)
    except BlockingIOError:
        raise CheckpointError(f"another process is saving a checkpoint to '{directory}'") from None
    except OSError as error:
        raise CheckpointError(f"cannot save to '{directory}': {error.strerror or error}") from error
    remove_leftovers(directory)
    return lock


def commit(directory: Path, manifest: Manifest) -> None:
    """Makes a checkpoint of the data files that a manifest names, all of which are on the disk."""
    write_file(directory / MANIFEST, manifest.text().encode())
    remove_leftovers(directory)


def remove_leftovers(directory: Path) -> None:
    """Removes data files that the manifest does not name. The caller holds the lock."""
    try:
        named = {file["name"] for file in read_manifest(directory).files}
    except CheckpointError:
        if (directory / MANIFEST).exists():
            return  # not ours to judge
        named = set()
    for entry in list(directory.iterdir()):
        if _DATA.fullmatch(entry.name) and entry.name not in named:
            with suppress(OSError):
                entry.unlink()


def write_file(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all, whatever happens."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise CheckpointError(f"cannot write '{path}': {error.strerror or error}") from error


def sync_directory(directory: Path) -> None:
    """Waits until the names in a directory are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Series:
    """The checkpoints of a path with ``{step}`` in it."""

    pattern: str

    def at(self, step: Any) -> Path:
        return Path(self.pattern.format(step=step))

    def found(self) -> list[tuple[int, Path]]:
        """Step and path of every directory of the series, finished or not, by step."""
        path = Path(self.pattern)
        before, _, rest = path.name.partition("{step")
        name = re.compile(re.escape(before) + r"(\d+)" + re.escape(rest.partition("}")[2]))
        if "{" in str(path.parent) or not path.parent.is_dir():
            return []
        entries = ((name.fullmatch(entry.name), entry) for entry in path.parent.iterdir())
        return sorted((int(match[1]), entry) for match, entry in entries if match and entry.is_dir())

    def finished(self) -> list[tuple[int, Path]]:
        return [(step, path) for step, path in self.found() if (path / MANIFEST).exists()]

    def clean(self, own: Path) -> None:
        """Removes directories without a manifest that nobody saves into, but ``own``."""
        for _, path in self.found():
            if path == own or (path / MANIFEST).exists():
                continue
            with suppress(OSError):
                Lock(path).release()
                shutil.rmtree(path)

    def rotate(self, keep: int) -> None:
        """Removes all finished ones but the last ``keep``."""
        finished = self.finished()
        for _, path in finished[: max(len(finished) - keep, 0)]:
            with suppress(OSError):
                (path / MANIFEST).unlink()  # first, so that what is left is no checkpoint
                shutil.rmtree(path)


def is_series(path: str) -> bool:
    return "{step" in path
