"""``save``: every host writes what lies on its devices, and the loop goes on."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ptpathways import core, frontend, native
from ptpathways.checkpoint import _directory, _dtypes, _generators, _handle, _plan, _tree
from ptpathways.checkpoint._safetensors import Entry, lay_out
from ptpathways.core import CheckpointError
from ptpathways.sharding import Box


def save(path: str | os.PathLike[str], /, *, keep: int | None = None, rng: bool = True, **objects: Any) -> _handle.Save:
    """Writes a checkpoint: every host its own shards, to a file system that all hosts and this process share.

    Returns at once, except that it first waits for an earlier save to the same path, and for the older of two saves
    under way. It writes the current values, whatever the loop does next; they stay in memory until they are
    written. The checkpoint appears at ``path`` once all of it is on the disk. Until then, and if this process or a
    worker dies, what was there before stays.

        pw.save("run/step{step}", keep=3, model=model, optimizer=optimizer, loader=loader, step=step)
        pw.save("model.safetensors", model=model)

    Args:
        path: a directory; ``{step}`` in its name stands for the object ``step`` (``{step:06d}`` works, too). Or a file
            ``*.safetensors``, for the tensors of a single object, which other programs can read.
        keep: number of checkpoints of a path with ``{step}`` to keep, the last saved; default: all.
        rng: whether to save the states of the random generators of Python, NumPy, torch and the devices (directories).
        objects: objects with ``state_dict()``, or plain values (numbers, strings, containers, tensors), by names of
            your choice. Values that JSON cannot represent are pickled; ``load`` needs ``allow_pickle=True`` for those.

    Raises:
        CheckpointError: an object or path that cannot be saved, no permission, or another process saves there. Later
            failures, such as a full disk, are raised by ``Save.wait``.
        DeadlineExceeded: the older of two saves is still being written after an hour.
        TypeError, ValueError: ``path``, ``keep`` or ``rng`` cannot be used.
        NotInitialized: before ``init``.
    """
    started = time.monotonic()
    text = core.path_text(path)
    core.check_switch(rng, "rng")
    keep = None if keep is None else core.whole_number(keep, "keep")
    frontend.session()
    if not objects:
        raise CheckpointError("save() needs at least one object to save: pw.save(path, model=model)")
    if text.endswith((".pt", ".pth", ".bin", ".ckpt")):
        raise CheckpointError(
            f"save() writes directories and .safetensors files, got '{text}'; for such a file use "
            "torch.save(model.state_dict(), path)"
        )
    series = _directory.series_of(text)
    if series is not None:
        try:
            objects["step"] = core.whole_number(objects.get("step"), "step")
        except TypeError:
            raise CheckpointError(f"'{text}' has {{step}} in its name, so save() needs step=NUMBER") from None
    if keep is not None and (series is None or keep < 1):
        raise CheckpointError(f"keep={keep} is for a path with {{step}} in its name, and at least 1")
    collected = Collected()
    trees = {name: collected.take(name, thing) for name, thing in objects.items()}
    if text.endswith(".safetensors"):
        return _save_file(Path(text).absolute(), objects, trees, collected, started)
    directory = series.at(objects["step"]) if series is not None else Path(text).absolute()
    _handle.make_room(directory)
    if series is not None:
        series.clean(directory)
    lock = _directory.open_directory(directory)
    try:
        entries = {name: {"kind": _kind_of(objects[name]), "tree": tree} for name, tree in trees.items()}
        manifest = _directory.Manifest(entries, {}, [], _generators.states() if rng else None, _about())
        running = _start(directory, collected, manifest)
    except BaseException:
        lock.release()
        raise

    def finish() -> None:
        try:
            _finish(directory, running, collected.on_host, manifest)
            if series is not None and keep is not None:
                series.rotate(keep, directory)
        finally:
            lock.release()

    return _handle.start(directory, finish, started)


@dataclass(slots=True)
class Collected:
    """The tensors of what is to be saved, by name."""

    on_devices: dict[str, torch.Tensor] = field(default_factory=dict)
    on_host: dict[str, torch.Tensor] = field(default_factory=dict)
    """Copies, which the loop does not change."""
    _names: dict[int, str] = field(default_factory=dict)
    _kept: list[torch.Tensor] = field(default_factory=list)  # so that ids stay their own

    def take(self, name: str, thing: Any) -> Any:
        """An object's state as JSON."""
        return _tree.encode(state_of(thing), name, self._keep)

    def _keep(self, tensor: torch.Tensor, name: str) -> str:
        if id(tensor) in self._names:  # tied
            return self._names[id(tensor)]
        name = self._unused(name)
        self._names[id(tensor)] = name
        self._kept.append(tensor)
        _dtypes.name_of(tensor.dtype, name)
        if tensor.device.type == "xla":
            self.on_devices[name] = tensor
        elif tensor.device.type == "cpu" and tensor.layout is torch.strided:
            self.on_host[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
        else:
            raise CheckpointError(f"{name} is a {tensor.layout} tensor on {tensor.device}, which save() cannot write")
        return name

    def _unused(self, name: str) -> str:
        """The name, or one like it: ``{"a.b": x, "a": {"b": y}}`` would give two tensors the same."""
        taken, number = name, 2
        while name in self.on_devices or name in self.on_host:
            name, number = f"{taken}~{number}", number + 1
        return name


def state_of(thing: Any) -> Any:
    """An object's state, or the object itself."""
    if isinstance(thing, type):
        raise CheckpointError(f"a class has no state to save or load, got {thing!r}; give an object of it")
    if isinstance(thing, torch.nn.Module):
        return dict(thing.state_dict(keep_vars=True))  # with the tensors' identities
    if isinstance(thing, torch.Tensor) or not callable(getattr(thing, "state_dict", None)):
        return thing
    return thing.state_dict()


def _kind_of(thing: Any) -> str:
    return "state" if state_of(thing) is not thing else "value"


@dataclass(slots=True)
class Running:
    """Files that hosts are writing: what each is for, and the pieces in it."""

    operations: list[tuple[str, native.FileOperation]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    """Of the manifest: the file that each of the operations makes."""
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(slots=True)
class Laid:
    """Where the tensors on devices are: what ``_plan`` asks for, and the values by its numbers."""

    tensors: dict[str, tuple[str, list[_plan.Part]]] = field(default_factory=dict)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    values: list[tuple[native.DeviceValue, int]] = field(default_factory=list)
    """For each part, the tensor's value and which of its shards the part is."""


def lay(tensors: dict[str, torch.Tensor]) -> Laid:
    """Looks where tensors are, after submitting what was traced."""
    laid = Laid()
    if not tensors:
        return laid
    frontend.submit_pending()
    for name, tensor in tensors.items():
        dtype = _dtypes.name_of(tensor.dtype, name)
        parts = []
        for part in frontend.parts_of(tensor):
            if part.value.dtype != _dtypes.on_device(dtype):
                raise CheckpointError(f"{name} is {tensor.dtype} here and {part.value.dtype} on its devices")
            parts.append(_plan.Part(part.host, part.box, len(laid.values)))
            laid.values.append((part.value, part.shard))
        laid.tensors[name] = (dtype, parts)
        laid.shapes[name] = (dtype, tuple(tensor.shape))
    return laid


def _start(directory: Path, collected: Collected, manifest: _directory.Manifest) -> Running:
    running = Running()
    laid = lay(collected.on_devices)
    hosts = [host["name"] for host in frontend.session().hosts()]
    for host, writings in _plan.assign(laid.tensors).items():
        for number, plan in enumerate(_plan.own_files(writings, laid.shapes)):
            name = f"data-{running.nonce}-{_file_name(hosts[host])}-{number}.safetensors"
            operation = native.save_values(
                host=host,
                path=str(directory / name),
                file_bytes=plan.bytes,
                create=True,
                header=plan.header,
                values=[(*laid.values[shard], boxes) for shard, boxes in plan.shards.items()],
            )
            running.operations.append((f"host '{hosts[host]}' to write {name}", operation))
            for tensor, offset, box in plan.pieces:
                _enter(manifest, laid.shapes[tensor], tensor, offset, box)
            manifest.files.append({"name": name, "bytes": plan.bytes})
            running.entries.append(manifest.files[-1])
    return running


def _enter(
    manifest: _directory.Manifest, kind: tuple[str, tuple[int, ...]], tensor: str, offset: int, box: Any
) -> None:
    entry = manifest.tensors.setdefault(tensor, {"dtype": kind[0], "shape": list(kind[1]), "pieces": []})
    piece = {"file": len(manifest.files), "offset": offset, "start": list(box.start), "size": list(box.size)}
    entry["pieces"].append(piece)


def _finish(directory: Path, running: Running, on_host: dict[str, torch.Tensor], manifest: _directory.Manifest) -> None:
    """On the saving thread: this process's own file, the hosts' answers, and then the manifest."""
    failed: BaseException | None = None
    if on_host:
        try:
            header, entries, size = lay_out((name, *_kind(name, tensor)) for name, tensor in on_host.items())
            name = f"data-{running.nonce}-client.safetensors"
            content = header + b"".join(_bytes_of(t) for t in on_host.values())
            _directory.write_file(directory / name, content)
            for tensor, entry in entries.items():
                box = Box((0,) * len(entry.shape), entry.shape)
                _enter(manifest, (entry.dtype, entry.shape), tensor, entry.offset, box)
            manifest.files.append({"name": name, "bytes": size, "crc32c": native.crc32c(content)})
        except CheckpointError as error:
            failed = error
    try:
        _await_all(running, failed)
        for file, (_, operation) in zip(running.entries, running.operations, strict=True):
            file["crc32c"] = operation.crc32c
        _directory.commit(directory, manifest)
    except CheckpointError:
        _directory.remove_leftovers(directory)
        raise


def _await_all(running: Running, failed: BaseException | None) -> None:
    """Waits for every host, also after a failure: none may write any more when the next save begins."""
    deadline = time.monotonic() + _handle.FINISH_TIMEOUT_S
    for what, operation in running.operations:
        try:
            operation.wait(max(deadline - time.monotonic(), 0), what)
        except RuntimeError as error:
            failed = failed or error
    if isinstance(failed, CheckpointError):
        raise failed
    if failed is not None:
        raise CheckpointError(str(failed)) from None


def _save_file(
    path: Path, objects: dict[str, Any], trees: dict[str, Any], collected: Collected, started: float
) -> _handle.Save:
    if len(objects) != 1:
        raise CheckpointError(
            f"a .safetensors file holds the tensors of one object, got {', '.join(objects)}; save to a directory"
        )
    tree = _tree.untyped(next(iter(trees.values())))
    if not isinstance(tree, dict) or "$tensor" in tree:
        (name,) = objects
        raise CheckpointError(
            f"a .safetensors file holds tensors by name, got {name}, a {type(objects[name]).__name__}; save to a "
            "directory instead, or a dictionary of tensors"
        )
    for keys in (key for key in _tree.tensors_in(tree) if len(key) != 1):
        raise CheckpointError(
            f"a .safetensors file holds tensors by name, got one at {keys}; save to a directory instead"
        )
    names: dict[str, str] = {}
    for (key,), tensor in _tree.tensors_in(tree).items():
        names.setdefault(tensor, str(key))
    left = [
        key
        for key, value in tree.items()
        if not (isinstance(value, dict) and ("$tensor" in value or "$parameter" in value))
    ]
    if left:
        raise CheckpointError(
            f"a .safetensors file holds tensors only, and {left[0]!r} is none; save to a directory instead"
        )
    _handle.make_room(path)
    laid = lay(collected.on_devices)
    kinds = dict(laid.shapes) | {tensor: _kind(tensor, value) for tensor, value in collected.on_host.items()}
    header, entries, size = lay_out((names[tensor], *kind) for tensor, kind in kinds.items())
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.partial")
    running = Running()
    _clean_partials(path)
    try:
        lock = _make_file(partial, header, size, {entries[names[t]].offset: v for t, v in collected.on_host.items()})
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CheckpointError(f"cannot write '{path}': {error.strerror or error}") from error
    hosts = [host["name"] for host in frontend.session().hosts()]
    for host, writings in _plan.assign(laid.tensors).items():
        for first in range(0, len(writings), _plan.FILE_PIECES):
            shards: dict[int, list[_plan.FileBox]] = {}
            for writing in writings[first : first + _plan.FILE_PIECES]:
                entry: Entry = entries[names[writing.tensor]]
                box = (0, entry.offset, entry.shape, writing.box.start, writing.start, writing.box.size)
                shards.setdefault(writing.shard, []).append(box)
            operation = native.save_values(
                host=host, path=str(partial), file_bytes=size, create=False, header=b"",
                values=[(*laid.values[shard], boxes) for shard, boxes in shards.items()],
            )  # fmt: skip
            running.operations.append((f"host '{hosts[host]}' to write its part of {path.name}", operation))

    def finish() -> None:
        try:
            _await_all(running, None)
            partial.rename(path)
            _directory.sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)
            lock()

    return _handle.start(path, finish, started)


def _make_file(path: Path, header: bytes, size: int, contents: dict[int, torch.Tensor]) -> Callable[[], None]:
    """A file with everything that this process writes of it, locked; returns what lets it go."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if size:
            os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, header, 0)
        for offset, tensor in contents.items():
            os.pwrite(descriptor, _bytes_of(tensor), offset)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return lambda: _directory.unlock(descriptor)


def _clean_partials(path: Path) -> None:
    """Removes what dead saves of the same file left."""
    import fcntl

    for partial in path.parent.glob(f"{path.name}.*.partial"):
        try:
            with open(partial, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                partial.unlink()
        except OSError:
            continue


def _kind(name: str, tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    return _dtypes.name_of(tensor.dtype, name), tuple(tensor.shape)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _file_name(host: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in host)


def _about() -> dict[str, Any]:
    cluster = frontend.cluster()
    return {
        "ptpathways": core.__version__,
        "torch": torch.__version__,
        "saved": datetime.now(UTC).isoformat(),
        "hosts": len(cluster.hosts),
        "devices": cluster.device_count,
    }
