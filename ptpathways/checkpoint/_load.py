"""``load``: every host reads what its devices need, whatever hosts and devices wrote it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ptpathways import core, frontend, native
from ptpathways.checkpoint import _directory, _dtypes, _generators, _handle, _matching, _plan
from ptpathways.checkpoint._sources import Checkpoint, Source, open_checkpoint
from ptpathways.core import CheckpointError, CheckpointMismatch
from ptpathways.sharding import Box


class Loaded(Mapping[str, Any]):
    """A mapping of a loaded checkpoint's plain values by name, such as ``loaded["step"]``. Made by ``load``."""

    def __init__(self, path: Path, values: dict[str, Any], bytes_read: int, seconds: float) -> None:
        self.path = path
        """Path of the checkpoint, with ``{step}`` replaced."""
        self.bytes_read = bytes_read
        """Number of bytes that the hosts read."""
        self.seconds = seconds
        """Seconds that ``load`` took."""
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<loaded '{self.path}', {self._values!r}>"


def load(
    path: str | os.PathLike[str],
    /,
    *,
    strict: bool = True,
    rng: bool = True,
    allow_pickle: bool = False,
    timeout_s: float = 3600.0,
    **objects: Any,
) -> Loaded:
    """Loads a checkpoint into objects, whatever hosts, devices and shardings they were saved from and have now.

    Tensors keep their identity: parameters, optimizer state and captured steps continue with the new contents. State
    that an optimizer does not have yet is made, laid out as its parameters are. Everything is checked and read before
    anything is changed; if an object then refuses its state, all is put back. Waits for this process's saves first.

        loaded = pw.load("run/step{step}", model=model, optimizer=optimizer, loader=loader)
        first = loaded["step"] + 1

    Args:
        path: a path that ``save`` wrote, where ``{step}`` stands for the most recently completed checkpoint; a
            ``.safetensors`` file, a Hugging Face ``.index.json`` of several, or a directory with such files; or a file
            of ``torch.save``.
        strict: whether names that are missing or left over in a module are errors; False skips them.
        rng: whether to restore the random generators of Python, NumPy, torch and the devices, if they were saved.
        allow_pickle: whether to unpickle values that JSON cannot represent, which may run code of whoever wrote them.
        timeout_s: seconds for the hosts to read; default: an hour.
        objects: modules, optimizers, other objects with ``load_state_dict()``, and tensors, by the names they were
            saved under. A file of one object's tensors takes a single object of any name. An object's
            ``check_state_dict()``, if it has one, is called before anything is changed, and raises ValueError if the
            state does not fit.

    Raises:
        CheckpointMismatch: the checkpoint does not fit the objects; the message lists every difference.
        CheckpointError: no such checkpoint, a truncated file or one that a host does not see, a newer format; or an
            object's ``load_state_dict()`` raised an error.
        DeadlineExceeded: a host did not read within ``timeout_s`` seconds.
        TypeError, ValueError: ``path``, ``timeout_s`` or a bool argument cannot be used.
        NotInitialized: before ``init``.
    """
    started = time.monotonic()
    text = core.path_text(path)
    timeout_s = core.check_seconds(timeout_s)
    for what, switch in (("strict", strict), ("rng", rng), ("allow_pickle", allow_pickle)):
        core.check_switch(switch, what)
    frontend.session()
    _handle.finish_all()  # it may be the one that is being written
    checkpoint = open_checkpoint(_resolve(text))
    targets = [name for name, thing in objects.items() if thing is not None]
    assume = targets[0] if len(targets) == 1 else None
    matching = _matching.match(
        checkpoint,
        {name: objects[name] for name in targets},
        strict=strict,
        allow_pickle=allow_pickle,
        assume=assume,
    )
    if matching.problems:
        raise CheckpointMismatch(
            f"'{checkpoint.path}' does not fit:\n  " + "\n  ".join(matching.problems) + "\nNothing was changed"
        )
    reading = _Reading(checkpoint, time.monotonic() + timeout_s)
    reading.check_hosts_see_files(matching)
    for new in matching.new:
        new.made = _make(new)
    reading.add([*matching.existing, *((new.made, new.source) for new in matching.new if new.made is not None)])
    reading.read()
    _change(reading, matching, checkpoint, rng)
    frontend.begin_warm_up()
    return Loaded(checkpoint.path, matching.values, reading.bytes, time.monotonic() - started)


def _change(reading: _Reading, matching: _matching.Matching, checkpoint: Checkpoint, rng: bool) -> None:
    """Gives every object its contents, or leaves all as they were."""
    generators = _generators.states()
    told: list[_matching.Finish] = []
    doing = ""
    try:
        reading.commit(undoable=bool(matching.finish))
        for finish in matching.finish:
            told.append(finish)
            doing = finish.what
            finish.do()
        if rng and checkpoint.rng is not None:
            doing = "setting the random generators"
            _generators.restore(checkpoint.rng)
    except BaseException as error:
        reading.undo()
        lost = [finish.what for finish in reversed(told) if not _succeeds(finish.undo)]
        _generators.restore(generators)
        if not doing or not isinstance(error, Exception):
            raise
        rest = f"; put back was all but: {', '.join(lost)}" if lost else ", and nothing was changed"
        raise CheckpointError(
            f"'{checkpoint.path}' was not loaded{rest}. {doing} raised {type(error).__name__}: {error}"
        ) from error


def _succeeds(undo: Callable[[], Any]) -> bool:
    try:
        undo()
    except Exception:
        return False
    return True


def _resolve(text: str) -> Path:
    series = _directory.series_of(text)
    if series is None:
        return Path(text).absolute()
    finished = series.finished()
    if not finished:
        raise CheckpointError(f"there is no finished checkpoint '{text}'")
    return finished[-1]


def _make(new: _matching.New) -> torch.Tensor:
    """A tensor of zeros for state that is not there yet."""
    dtype = _dtypes.dtype_of(new.source.dtype)
    if new.like is None or new.like.device.type != "xla":
        return torch.zeros(new.source.shape, dtype=dtype)
    with torch.no_grad():
        made = torch.zeros(new.source.shape, dtype=dtype, device=new.like.device)
    tiling = None
    if made.shape == new.like.shape:
        tiling = frontend.said_of(new.like) or frontend.layout_of_tensor(new.like)
    frontend.lay(made, tiling or frontend.copies(made.dim(), frontend.size_of(made.device)))
    return made


@dataclass(slots=True)
class _Target:
    """A tensor on devices, and the value that will replace its own."""

    tensor: torch.Tensor
    source: Source
    """What is read."""
    copy_to: torch.Tensor | None = None
    """Where it goes from there, when that is of another type."""
    parts: list[frontend.DevicePart] = field(default_factory=list)
    """By shard. They share one cell, which holds the whole tensor."""
    value: native.DeviceValue | None = None


class _Reading:
    """Reads tensors into new values, and puts these in the place of the old ones when all of them are there."""

    def __init__(self, checkpoint: Checkpoint, deadline: float) -> None:
        self.bytes = 0
        self._checkpoint = checkpoint
        self._deadline = deadline
        self._files = [
            (str(file), size, checkpoint.checksums.get(number)) for number, (file, size) in enumerate(checkpoint.files)
        ]
        self._on_devices: list[_Target] = []
        self._here: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._old: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Tensors that were copied to, and what they were."""

    def check_hosts_see_files(self, matching: _matching.Matching) -> None:
        """Asks every host of a device that will read something. Raises CheckpointError."""
        wanted = [t.device.type == "xla" for t, _ in matching.existing]
        wanted += [new.like is not None and new.like.device.type == "xla" for new in matching.new]
        if not any(wanted) or not self._files:
            return
        session = frontend.session()
        self._wait(
            [
                native.load_values(session, host=number, files=self._files, values=[])
                for number, host in enumerate(session.hosts())
                if host["alive"]
            ]
        )

    def add(self, tensors: list[tuple[torch.Tensor, Source]]) -> None:
        """Tensors, and what is to be in them."""
        seen: set[int] = set()
        for tensor, source in tensors:
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            target = tensor.detach()
            if tensor.device.type != "xla" or source.value is not None:
                self._here.append((target, self._checkpoint.read(source)))
            elif _matching.dtype_matches(tensor, source):
                self._on_devices.append(_Target(target, source))
            else:
                made = _make(_matching.New(source, tensor))
                self._on_devices.append(_Target(made, source, copy_to=target))

    def read(self) -> None:
        """Changes nothing. Raises CheckpointError."""
        if self._on_devices:
            self._read()

    def commit(self, undoable: bool) -> None:
        """Puts what was read in its place. Raises CheckpointError; what was changed until then is for ``undo``."""
        copies = [*self._here, *((t.copy_to, t.tensor) for t in self._on_devices if t.copy_to is not None)]
        with torch.no_grad():
            if undoable:
                self._old = [(tensor, tensor.clone()) for tensor, _ in copies]
            for tensor, value in self._here:
                tensor.copy_(value)
            for target in self._on_devices:
                assert target.value is not None
                if not target.parts[0].cell.replace(target.value):
                    raise CheckpointError("a tensor was given up while a checkpoint was being loaded")
                if target.copy_to is not None:
                    target.copy_to.copy_(target.tensor)
        if copies:
            frontend.submit_pending()

    def undo(self) -> None:
        """Puts back what ``commit`` replaced."""
        with torch.no_grad():
            for target in self._on_devices:
                for part in target.parts[:1]:
                    part.cell.replace(part.value)
            for tensor, value in self._old:
                tensor.copy_(value)
        if self._old:
            frontend.submit_pending()

    def _read(self) -> None:
        self._locate()
        per_host: dict[int, list[tuple[native.DeviceValue, int, list[_plan.FileBox]]]] = {}
        for target in self._on_devices:
            source = target.source
            with native.translated():
                (value,) = native.announce_values([target.parts[0].value])
            target.value = value
            for part in target.parts:
                boxes = _plan.gather(part.box, source.pieces)
                if sum(Box(box[4], box[5]).elements for box in boxes) != part.box.elements:
                    raise CheckpointError(f"'{self._checkpoint.path}' lacks parts of a tensor of shape {source.shape}")
                if 0 not in value.shard_dims:
                    per_host.setdefault(part.host, []).append((value, part.shard, boxes))
        session = frontend.session()
        operations = []
        for host, values in per_host.items():
            for first in range(0, len(values), _plan.FILE_PIECES):
                group = values[first : first + _plan.FILE_PIECES]
                operations.append(native.load_values(session, host=host, files=self._files, values=group))
        self._wait(operations)
        self.bytes = sum(operation.bytes for operation in operations)

    def _locate(self) -> None:
        """Finds where the tensors are, each in buffers that nothing else shares."""
        frontend.submit_pending()
        shared: dict[int, list[_Target]] = {}
        for target in self._on_devices:
            target.parts = frontend.parts_of(target.tensor)
            for part in target.parts[:1]:
                shared.setdefault(part.cell.token, []).append(target)
        own = [
            target
            for targets in shared.values()
            for target in targets
            if len(targets) > 1 or target.parts[0].value.is_uploaded_scalar
        ]
        if not own:
            return
        for target in own:
            frontend.make_own(target.tensor)
        frontend.submit_pending()
        for target in own:
            target.parts = frontend.parts_of(target.tensor)

    def _wait(self, operations: list[native.FileOperation]) -> None:
        failed: RuntimeError | None = None
        for operation in operations:
            try:
                operation.wait(max(self._deadline - time.monotonic(), 0), "an answer of a host that reads a checkpoint")
            except RuntimeError as error:
                failed = failed or error
        if failed is None:
            return
        if getattr(failed, "code", "") == "DEADLINE_EXCEEDED":
            raise native.translate(failed)
        raise CheckpointError(f"'{self._checkpoint.path}' was not loaded, and nothing was changed: {failed}") from None
