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
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ptpathways import native
from ptpathways.checkpoint import _dtypes, _tree
from ptpathways.checkpoint._plan import check_pieces
from ptpathways.checkpoint._safetensors import read_file
from ptpathways.core import CheckpointError
from ptpathways.sharding import Box

MANIFEST = "manifest.json"
FORMAT = "ptpathways checkpoint"
VERSION = 1
_LOCK = ".lock"
_LOOKS_S = 0.5
_DATA = re.compile(r"data-[0-9a-f]+-[\w.-]+\.safetensors(\.partial)?")


@dataclass(slots=True)
class Manifest:
    """What a checkpoint holds."""

    objects: dict[str, Any]
    """By the names that ``save`` was given: ``kind``, a "state" or a "value", and the ``tree``, JSON of ``_tree``."""
    tensors: dict[str, dict[str, Any]]
    """By name: ``dtype``, ``shape``, and ``pieces`` of ``file`` (a number), ``offset``, ``start`` and ``size``."""
    files: list[dict[str, Any]]
    """``name`` and ``bytes`` of every data file, and ``crc32c``, which the first saves did not have."""
    rng: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    """``saved``, the time in ISO 8601, orders a series. For people: by which version, of how many devices."""

    def text(self) -> str:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "about": self.about,
            "files": self.files,
            "tensors": self.tensors,
            "objects": self.objects,
            "rng": self.rng,
        }
        return _text({**content, "crc32c": _checksum(content)})


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _checksum(content: dict[str, Any]) -> int:
    return native.crc32c(_text(content).encode())


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the checkpoint in a directory.

    Raises:
        CheckpointError: there is none, or it is of a newer format.
    """
    path = directory / MANIFEST
    try:
        found = json.loads(read_file(path))
    except FileNotFoundError:
        what = "there is no such directory" if not directory.exists() else f"it has no {MANIFEST}: no save was finished"
        raise CheckpointError(f"'{directory}' is no checkpoint: {what}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"'{path}' is damaged: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise CheckpointError(f"'{path}' is no manifest of a checkpoint")
    if found.get("version") != VERSION:
        raise CheckpointError(
            f"'{directory}' is of format version {found.get('version')}, and this ptpathways reads version {VERSION}; "
            "install the one that wrote it"
        )
    expected = found.pop("crc32c", None)  # which the first saves did not have
    if expected is not None and (got := _checksum(found)) != expected:
        raise CheckpointError(
            f"'{path}' is damaged: expected contents of checksum {expected}, got {got}; something has changed the file "
            "since it was saved"
        )
    try:
        manifest = Manifest(found["objects"], found["tensors"], found["files"], found["rng"], found.get("about", {}))
        _check(manifest)
    except CheckpointError as error:
        raise CheckpointError(f"'{path}': {error}") from None
    except Exception as error:  # whatever a wrong type raises where it is used
        raise CheckpointError(f"'{path}' is damaged: {type(error).__name__}: {error}") from None
    return manifest


def _check(manifest: Manifest) -> None:
    """Raises ValueError, or what a wrong type raises: somebody else may have written the manifest."""
    for file in manifest.files:
        if not _DATA.fullmatch(file["name"]) or file["name"].endswith(".partial"):
            raise ValueError(f"a data file must lie beside the manifest and be named data-...safetensors, got {file!r}")
        _check_number(file["bytes"], 2**63, "the size of a data file")
        _check_number(file.get("crc32c", 0), 2**32, "the checksum of a data file")
    for name, entry in manifest.tensors.items():
        _dtypes.dtype_of(entry["dtype"])
        for piece in entry["pieces"]:
            _check_number(piece["file"], len(manifest.files), f"the file of a piece of {name}")
            _check_number(
                piece["offset"], manifest.files[piece["file"]]["bytes"] + 1, f"the offset of a piece of {name}"
            )
        try:
            check_pieces(tuple(entry["shape"]), [Box(tuple(p["start"]), tuple(p["size"])) for p in entry["pieces"]])
        except ValueError as error:
            raise ValueError(f"tensor {name}: {error}") from None
    for name, entry in manifest.objects.items():
        if entry["kind"] not in ("state", "value"):
            raise ValueError(f"{name} must be a 'state' or a 'value', got {entry['kind']!r}")
        unknown = sorted(set(_tree.tensors_in(entry["tree"]).values()) - manifest.tensors.keys())
        if unknown:
            raise ValueError(f"{name} has the tensor {unknown[0]!r}, which the manifest does not have")


def _check_number(value: Any, limit: int, what: str) -> None:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{what} must be a whole number from 0 to {limit - 1}, got {value!r}")


class Lock:
    """Held by who saves into a directory; the system lets it go when its process ends, however that is."""

    def __init__(self, directory: Path, made: bool = False) -> None:
        """
        Args:
            made: the directory was made for this save.

        Raises BlockingIOError when another process holds it.
        """
        self._directory, self._made = directory, made
        self._file = self._open()
        while not self._is_there():  # somebody has removed the file meanwhile
            unlock(self._file)
            self._file = self._open()

    def _open(self) -> int:
        file = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(file)
            raise
        return file

    def _is_there(self) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self._directory / _LOCK))
        return False

    def release(self) -> None:
        """Lets it go; a directory that has nothing else goes with it if it was made for the save."""
        if self._file < 0:
            return
        with suppress(OSError):
            if os.listdir(self._directory) == [_LOCK]:
                (self._directory / _LOCK).unlink()
                if self._made:
                    self._directory.rmdir()
        unlock(self._file)
        self._file = -1


def unlock(file: int) -> None:
    """Lets go of a lock and closes its file: closing alone leaves it to processes forked meanwhile."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def open_directory(directory: Path) -> Lock:
    """Makes a directory for a checkpoint, or takes over the one there, and removes what dead saves left in it.

    Raises:
        CheckpointError: it cannot be made, or somebody else saves into it.
    """
    try:
        lock = _locked(directory)
    except BlockingIOError:
        raise CheckpointError(f"another process is saving a checkpoint to '{directory}'") from None
    except OSError as error:
        raise CheckpointError(f"cannot save to '{directory}': {error.strerror or error}") from error
    remove_leftovers(directory)
    return lock


def _locked(directory: Path) -> Lock:
    """Makes the directory, if it is not there, and takes its lock.

    Another program that saves into the same series looks there for what is left over, for a moment, and may remove the
    directory before the lock is taken.
    """
    until = time.monotonic() + _LOOKS_S
    while True:
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        try:
            return Lock(directory, made)
        except (BlockingIOError, FileNotFoundError):
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOKS_S / 20)


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

    def finished(self) -> list[Path]:
        """The directories that hold a checkpoint, by the time at which it was saved: the last one last.

        Not by step: after going back to an earlier one, the steps after it are those of a run that was given up.
        """
        times = ((_time_of(path), step, path) for step, path in self.found())
        return [path for _, _, path in sorted((time, step, path) for time, step, path in times if time is not None)]

    def clean(self, own: Path) -> None:
        """Removes what dead saves left: directories with nothing but their files, which nobody saves into now.

        Never ``own``, nor a directory that holds anything else: the names may be those of another program, too.
        """
        for _, path in self.found():
            if path != own and _has_only_leftovers(path):
                _remove(path, _has_only_leftovers)

    def rotate(self, keep: int, own: Path) -> None:
        """Removes all checkpoints but ``own`` and the ``keep - 1`` that were saved last besides.

        What is in their directories and no part of a checkpoint stays.
        """
        others = [path for path in self.finished() if path != own and _is_readable(path)]
        for path in others[: max(len(others) - (keep - 1), 0)]:
            _remove(path, _is_readable)


def _time_of(directory: Path) -> float | None:
    """When a checkpoint was saved, in seconds; None if there is none. One that cannot be read has its file's time."""
    path = directory / MANIFEST
    try:
        changed = path.stat().st_mtime
        found = json.loads(read_file(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, CheckpointError):
        return changed if path.exists() else None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    try:
        return datetime.fromisoformat(found["about"]["saved"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return changed


def _is_readable(directory: Path) -> bool:
    try:
        read_manifest(directory)
    except CheckpointError:
        return False
    return True


def _is_leftover(entry: Path) -> bool:
    return entry.name in (_LOCK, MANIFEST + ".partial") or _DATA.fullmatch(entry.name) is not None


def _has_only_leftovers(directory: Path) -> bool:
    """Whether a save began in a directory, and there is no checkpoint in it nor anything else."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:  # another program has removed it
        return False
    return bool(entries) and all(map(_is_leftover, entries))


def _remove(directory: Path, still: Callable[[Path], bool]) -> None:
    """Removes a checkpoint, or what is left of one, and its directory if that is all that is in it.

    Args:
        still: asked again under the lock whether it is one to remove: somebody may have saved there meanwhile.
    """
    with suppress(OSError):
        lock = Lock(directory, made=True)  # also if another program has emptied it meanwhile
        try:
            if not still(directory):
                return
            (directory / MANIFEST).unlink(missing_ok=True)  # first, so that what is left is no checkpoint
            for entry in sorted(directory.iterdir(), reverse=True):  # the lock last
                if _is_leftover(entry):
                    entry.unlink()
            directory.rmdir()
        finally:
            lock.release()


def series_of(path: str) -> Series | None:
    """The series that a path with ``{step}`` in it means; None: it has none.

    Raises:
        CheckpointError: there is something else in braces, or no format of a number.
    """
    if "{step" not in path:
        return None
    series = Series(os.path.abspath(path))
    try:
        series.at(0)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"'{path}' cannot be filled in with a step ({error}); write {{step}} or {{step:06d}}, and no other braces"
        ) from None
    return series
