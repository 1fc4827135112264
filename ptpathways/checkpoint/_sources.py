"""Where a checkpoint's tensors are: in files that the hosts read, whatever kind of checkpoint it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ptpathways import native
from ptpathways.checkpoint import _directory, _dtypes, _plan, _safetensors, _tree
from ptpathways.core import CheckpointError
from ptpathways.sharding import Box

_PART_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor in a checkpoint."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[_plan.Piece, ...] = ()
    value: torch.Tensor | None = None
    """Of one that only this process could read."""


@dataclass(slots=True)
class Checkpoint:
    """What can be loaded."""

    path: Path
    objects: dict[str, Any] | None
    """States by name, as JSON; None for a file of bare tensors, which are the state of one object."""
    tensors: dict[str, Source]
    files: list[tuple[Path, int]] = field(default_factory=list)
    """Path and size; pieces name them by number."""
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32C of files, by number, as far as they are known."""
    rng: dict[str, Any] | None = None
    _checked: set[int] = field(default_factory=set)
    plain: frozenset[str] = frozenset()
    """The names of values, which are given to whoever loads, as opposed to states."""

    def read(self, source: Source) -> torch.Tensor:
        """A tensor as one of this process.

        Raises:
            CheckpointError: a file cannot be read.
        """
        if source.value is not None:
            return source.value
        result = torch.empty(source.shape, dtype=_dtypes.dtype_of(source.dtype))
        for piece in source.pieces:
            part = torch.empty(piece.box.size, dtype=result.dtype)
            if part.numel():
                self._read_into(piece, part.view(-1).view(torch.uint8).numpy())
            result[piece.box.slices()] = part
        return result

    def _read_into(self, piece: _plan.Piece, room: Any) -> None:
        path = self.files[piece.file][0]
        try:
            with _safetensors.open_file(path) as file:
                if piece.file not in self._checked:
                    _check_contents(path, file, self.checksums.get(piece.file))
                    self._checked.add(piece.file)
                file.seek(piece.offset)
                if file.readinto(room) != len(room):
                    raise CheckpointError(f"'{path}' ends before byte {piece.offset + len(room)}; it was cut off")
        except OSError as error:
            raise CheckpointError(f"cannot read '{path}': {error.strerror}") from error


def _check_contents(path: Path, file: Any, expected: int | None) -> None:
    if expected is None:
        return
    found = 0
    while part := file.read(_PART_BYTES):
        found = native.crc32c(part, found)
    if found != expected:
        raise CheckpointError(
            f"'{path}' is damaged: expected contents of checksum {expected}, got {found}; something has changed the "
            "file since it was saved"
        )


def open_checkpoint(path: Path) -> Checkpoint:
    """What is at a path: a directory of ``save``, a safetensors file or an index of several, or one of ``torch.save``.

    Raises:
        CheckpointError: nothing of these, or it cannot be read.
    """
    try:
        if path.is_dir():
            return _open_directory(path)
        if not path.exists():
            raise CheckpointError(f"there is no '{path}'")
        _safetensors.open_file(path).close()
        if path.name.endswith(".index.json"):
            return _open_index(path)
        if path.suffix == ".safetensors":
            return _open_files(path, {None: path})
        return _open_torch(path)
    except OSError as error:
        raise CheckpointError(f"cannot read '{error.filename or path}': {error.strerror or error}") from error


def _open_directory(path: Path) -> Checkpoint:
    if not (path / _directory.MANIFEST).exists():  # a model as Hugging Face saves it
        for name in ("model.safetensors.index.json", "model.safetensors"):
            if (path / name).exists():
                return open_checkpoint(path / name)
    manifest = _directory.read_manifest(path)
    files = []
    for entry in manifest.files:
        file = path / entry["name"]
        if file.is_symlink():
            raise CheckpointError(f"'{file}' is a symbolic link, and save() makes none")
        if not file.exists():
            raise CheckpointError(
                f"'{path}' lacks its file {entry['name']}; checkpoints need a file system that all share"
            )
        if file.stat().st_size != entry["bytes"]:
            raise CheckpointError(
                f"expected '{file}' to have {entry['bytes']} bytes, got {file.stat().st_size}; it was cut off"
            )
        files.append((file, int(entry["bytes"])))
    tensors = {}
    for name, entry in manifest.tensors.items():
        pieces = (
            _plan.Piece(p["file"], p["offset"], Box(tuple(p["start"]), tuple(p["size"]))) for p in entry["pieces"]
        )
        tensors[name] = Source(entry["dtype"], tuple(entry["shape"]), tuple(pieces))
    plain = frozenset(name for name, entry in manifest.objects.items() if entry["kind"] == "value")
    trees = {name: entry["tree"] for name, entry in manifest.objects.items()}
    checksums = {number: entry["crc32c"] for number, entry in enumerate(manifest.files) if "crc32c" in entry}
    return Checkpoint(path, trees, tensors, files, checksums, manifest.rng, plain=plain)


def _open_index(path: Path) -> Checkpoint:
    weights = _safetensors.index_files(path)
    for name in weights.values():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"'{path}' names the file {name!r}, which does not lie in its folder")
    return _open_files(path, {name: path.parent / name for name in dict.fromkeys(weights.values())})


def _open_files(path: Path, parts: Mapping[str | None, Path]) -> Checkpoint:
    checkpoint = Checkpoint(path, None, {})
    for number, file in enumerate(parts.values()):
        for name, entry in _safetensors.read_header(file).items():
            box = Box((0,) * len(entry.shape), entry.shape)
            checkpoint.tensors[name] = Source(entry.dtype, entry.shape, (_plan.Piece(number, entry.offset, box),))
        checkpoint.files.append((file, os.path.getsize(file)))
    return checkpoint


def _open_torch(path: Path) -> Checkpoint:
    """A file of ``torch.save``: hosts read tensors where they lie in it; what that cannot be said of is read here."""
    checkpoint = Checkpoint(path, None, {}, [(path, os.path.getsize(path))])
    values: dict[int, torch.Tensor] | None = None
    found = _load_torch(path, fake=True)
    flat: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor, name: str) -> str:
        nonlocal values
        flat.append(tensor)
        key = f"{len(flat) - 1}"
        offset = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
        if offset is not None and tensor.is_contiguous() and tensor.dtype in _dtypes.KNOWN:
            shape = tuple(tensor.shape)
            place = int(offset) + int(tensor.storage_offset()) * tensor.element_size()
            pieces = (_plan.Piece(0, place, Box((0,) * len(shape), shape)),)
            checkpoint.tensors[key] = Source(_dtypes.name_of(tensor.dtype, name), shape, pieces)
        else:
            if values is None:
                values = dict(enumerate(_tensors_of(_load_torch(path, fake=False))))
            value = values[len(flat) - 1].contiguous()
            checkpoint.tensors[key] = Source(_dtypes.name_of(value.dtype, name), tuple(value.shape), value=value)
        return key

    checkpoint.objects = {"": _tree.untyped(_tree.encode(found, path.name, keep))}
    if isinstance(found, dict):
        checkpoint.plain = frozenset(
            key for key, value in found.items() if isinstance(value, bool | int | float | str) and isinstance(key, str)
        )
    return checkpoint


def _load_torch(path: Path, *, fake: bool) -> Any:
    from contextlib import nullcontext

    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode() if fake else nullcontext():
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"'{path}' is neither a directory of pw.save, nor a safetensors file, nor a file of torch.save with "
            f"tensors and plain values only: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None


def _tensors_of(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor, name: str) -> str:
        found.append(tensor)
        return name

    _tree.encode(value, "", keep)
    return found
