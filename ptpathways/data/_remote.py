"""``remote``: an input pipeline that runs on the CPUs of the workers' hosts."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ptpathways import core, frontend
from ptpathways.data._process import mix

_VERSION = 1
_OPEN_TIMEOUT_S = 300.0
"""For a process to import torch and build the dataset."""
_ORDER = 0x6F72646572
"""Sets the order of an epoch apart from the random numbers of its samples."""


@dataclass(slots=True)
class _Batch:
    """A batch on its way."""

    number: int
    value: Any
    pipeline: frontend.Pipeline
    """That was asked for it."""
    questions: list[tuple[int, Any]] = field(default_factory=list)
    """By host: answered when the host's part has been handed to its devices."""


class RemoteLoader:
    """What ``remote`` returns: a loader whose batches are made beside the devices. See there."""

    def __init__(
        self,
        dataset_fn: Callable[[], Any],
        batch_size: int,
        shuffle: bool | None,
        seed: int,
        drop_last: bool,
        collate_fn: Callable[[list[Any]], Any] | None,
        num_workers: int,
        prefetch: int,
        timeout_s: float,
        device: Any,
        name: str,
    ) -> None:
        for what, value, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 1),
            ("prefetch", prefetch, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{what} must be an integer of at least {least}, got {value!r}")
        if not callable(dataset_fn):
            raise TypeError(
                "dataset_fn must be a function without arguments that makes the dataset, got "
                f"{type(dataset_fn).__name__}; say lambda: dataset"
            )
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(f"collate_fn must be a function that makes a batch of samples, got {collate_fn!r}")
        if shuffle is not None:
            core.check_switch(shuffle, "shuffle")
        core.check_switch(drop_last, "drop_last")
        seed = core.whole_number(seed, "seed")
        timeout_s = core.check_seconds(timeout_s)
        if device is not None and (isinstance(device, bool) or not isinstance(device, torch.device | int)):
            raise TypeError(f"device must be a slice's, as slice.device and pw.device() are, or None, got {device!r}")
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed
        self._dataset_fn = dataset_fn
        self._collate_fn = collate_fn
        self._shuffle = shuffle
        self._workers = num_workers
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._device = device
        self._layout: frontend.BatchLayout | None = None
        self._name = name
        self._pipeline: frontend.Pipeline | None = None
        self._length: int | None = None
        self._types: list[tuple[torch.dtype, tuple[int, ...]]] = []
        self._tree: Any = None
        self._epoch = 0
        self._given = 0
        self._iteration: object | None = None
        self._is_left = False
        self._resume = 0

    def place(self, layout: frontend.BatchLayout) -> None:
        """Has batches divided as ``layout`` says, unless a device was given. Called by ``prepare``."""
        if self._pipeline is not None and self._layout is not layout:
            self.close()
        self._layout = layout

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, and how many of its batches the loop has been given. Both count from 0."""
        self._end_if_left()
        return self._epoch, self._given

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch ``epoch``; without this they count up from 0.

        Said again of the epoch that a loaded state is in the middle of, it changes nothing.
        """
        if self._is_left:
            self._end_epoch(self._iteration)
        if epoch != self._epoch:
            self._epoch, self._given, self._resume = epoch, 0, 0

    def __len__(self) -> int:
        """Batches in an epoch. Starts the pipeline. TypeError: the dataset is a stream."""
        self._open()
        if self._length is None:
            raise TypeError(f"input pipeline {self._name} reads an iterable dataset, which has no length")
        full, rest = divmod(self._length, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        self._open()
        if self._iteration is not None:
            self._end_epoch(self._iteration)
        self._iteration = iteration = object()
        start, self._resume = self._resume, 0
        epoch = self._epoch
        requests = self._mapped(epoch, start) if self._length is not None else self._streamed(epoch, start)
        unanswered: deque[_Batch] = deque()
        coming: deque[_Batch] = deque()
        try:
            while True:
                while len(coming) <= self._prefetch and (batch := next(requests, None)) is not None:
                    coming.append(batch)
                    unanswered.append(batch)
                # At most so many batches are used before they were made; their errors then come where they are used.
                while unanswered and (
                    not coming
                    or unanswered[0].number + self._prefetch < coming[0].number
                    or (
                        unanswered[0].number <= coming[0].number
                        and all(question.done for _, question in unanswered[0].questions)
                    )
                ):
                    self._settle(epoch, unanswered.popleft())
                if not coming:
                    self._end_epoch(iteration)
                    return
                batch = coming.popleft()
                if iteration is self._iteration:
                    self._given = batch.number + 1
                value, batch.value = batch.value, None
                cuts = frontend.cut_count()
                yield value
                del value
                if frontend.cut_count() == cuts:
                    frontend.step()
        finally:
            if iteration is self._iteration:
                self._is_left = True

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: numbers and None only. Batches count when the loop has got them. Of a loop that was left,
        as of a ``DataLoader``'s."""
        self._end_if_left()
        return {
            "version": _VERSION,
            "epoch": self._epoch,
            "batch": self._given,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "shuffle": self._shuffle,
            "drop_last": self.drop_last,
            "samples": self._length,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration give the batches that came after ``state_dict()``, and those only.

        No sample that was given before is made again, unless the dataset is a stream, which is read and dropped.

        Raises:
            ValueError: the state is of another order: of another seed, batch size, number of samples.
        """
        self.check_state_dict(state)
        self._iteration, self._is_left = None, False
        self._epoch, self._given = int(state["epoch"]), int(state["batch"])
        self._resume = self._given

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError as ``load_state_dict`` would, and changes nothing."""
        if state.get("version") != _VERSION or "seed" not in state:
            raise ValueError(
                f"expected what state_dict() of a remote loader returned (version {_VERSION}), got version "
                f"{state.get('version')!r}"
            )
        mine = self.state_dict()
        for name in ("seed", "batch_size", "shuffle", "drop_last", "samples"):
            if None not in (state[name], mine[name]) and state[name] != mine[name]:
                raise ValueError(
                    f"the state is of a loader with {name}={state[name]}, this one has {name}={mine[name]}, so the "
                    "same position means other samples; resume with what the run began with"
                )

    def close(self) -> None:
        """Ends the pipeline's processes. The next iteration starts them again."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()

    def _end_epoch(self, iteration: object) -> None:
        if iteration is self._iteration:
            self._iteration, self._is_left = None, False
            self._epoch, self._given = self._epoch + 1, 0

    def _end_if_left(self) -> None:
        """A loop that was left is over, but while the error is handled that left it."""
        if self._is_left and sys.exc_info()[1] is None:
            self._end_epoch(self._iteration)

    def _settle(self, epoch: int, batch: _Batch) -> None:
        for host, question in batch.questions:
            try:
                batch.pipeline.wait(question, host)
            except core.PathwaysError as error:
                self.close()
                raise _of_batch(epoch, batch.number, error) from None

    def _open(self) -> frontend.Pipeline:
        if self._pipeline is not None and self._pipeline.usable:
            return self._pipeline
        import cloudpickle

        placement = frontend.Placement.of(self._layout, self._device)
        given = {
            "sys_path": [path or os.getcwd() for path in sys.path],
            "pickled": cloudpickle.dumps((self._dataset_fn, self._collate_fn)),
            "seed": self.seed,
            "batch_size": self.batch_size,
        }
        pipeline = frontend.Pipeline(
            placement,
            pickle.dumps(given),
            name=self._name,
            workers=self._workers,
            open_timeout_s=max(_OPEN_TIMEOUT_S, self._timeout_s),
            timeout_s=self._timeout_s,
        )
        infos = [pickle.loads(info) for info in pipeline.opened()]
        for host, info in zip(pipeline.hosts, infos, strict=True):
            if (info["length"], info["leaves"]) != (infos[0]["length"], infos[0]["leaves"]):
                raise core.InputPipelineFailed(
                    f"dataset_fn of {self._name} must make the same dataset on every host, got {infos[0]['length']} "
                    f"samples of {infos[0]['leaves']} on host {pipeline.hosts[0]} and {info['length']} of "
                    f"{info['leaves']} on host {host}"
                )
        self._length = infos[0]["length"]
        if self._length is None and (self._shuffle or self._workers > 1):
            raise ValueError(
                f"input pipeline {self._name} reads an iterable dataset, whose order is its own: shuffle must be "
                f"False, got {self._shuffle}, and num_workers 1, got {self._workers}"
            )
        if self._shuffle is None:
            self._shuffle = self._length is not None
        self._types = [(getattr(torch, dtype), tuple(shape)) for dtype, shape in infos[0]["leaves"]]
        self._tree = pytree.tree_structure(infos[0]["tree"])
        self._pipeline = pipeline
        return pipeline

    def order(self, epoch: int) -> list[int]:
        """The samples of an epoch, in their order: a function of seed and epoch alone. Starts the pipeline."""
        self._open()
        if self._length is None:
            raise TypeError("an iterable dataset has no order of its own")
        if not self._shuffle:
            return list(range(self._length))
        generator = torch.Generator().manual_seed(mix(self.seed, epoch, _ORDER) >> 1)
        drawn: list[int] = torch.randperm(self._length, generator=generator).tolist()
        return drawn

    def _mapped(self, epoch: int, start: int) -> Iterator[_Batch]:
        order = self.order(epoch)
        for number in range(start, len(self)):
            indices = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield self._request(epoch, number, len(indices), indices)

    def _streamed(self, epoch: int, start: int) -> Iterator[_Batch]:
        """How many samples a batch of a stream has is asked first, two batches ahead of its use."""
        asked: deque[tuple[int, frontend.Pipeline, list[tuple[int, Any]]]] = deque()
        next_number = start
        while True:
            while len(asked) <= self._prefetch:
                what = _asked(epoch, next_number, op="count")
                pipeline = self._open()
                questions = [(host, pipeline.ask(host, 0, (), what)) for host in pipeline.hosts]
                asked.append((next_number, pipeline, questions))
                next_number += 1
            number, pipeline, questions = asked.popleft()
            counts = []
            for host, question in questions:
                try:
                    counts.append(json.loads(pipeline.wait(question, host))["rows"])
                except core.PathwaysError as error:
                    self.close()
                    raise _of_batch(epoch, number, error) from None
            if min(counts) != max(counts):
                raise core.InputPipelineFailed(
                    f"batch {number} of epoch {epoch}: an iterable dataset must give the same on every host, but batch "
                    f"sizes are {counts}"
                )
            if counts[0] == 0 or (self.drop_last and counts[0] < self.batch_size):
                return
            yield self._request(epoch, number, counts[0], None)

    def _request(self, epoch: int, number: int, rows: int, indices: Sequence[int] | None) -> _Batch:
        """Buffers for a batch, and word to each host which part of it to make. The slice may have moved meanwhile."""
        pipeline = self._open()
        tensors, parts = pipeline.declare([(dtype, (rows, *shape)) for dtype, shape in self._types])
        batch = _Batch(number, pytree.tree_unflatten(tensors, self._tree), pipeline)
        for host in pipeline.hosts:
            mine = [part for part in parts if part.host == host]
            if not mine:
                continue
            needed = sorted({row for part in mine for row in range(part.start[0], part.start[0] + part.size[0])})
            takes = [[part.tensor, part.start, part.size] for part in mine]
            of = {} if indices is None else {"indices": [indices[row] for row in needed]}
            what = _asked(epoch, number, op="rows", rows=needed, takes=takes, **of)
            question = pipeline.ask(host, number % self._workers, [part.key for part in mine], what)
            batch.questions.append((host, question))
        return batch


def _label(epoch: int, batch: int) -> str:
    return f"batch {batch} of epoch {epoch}"


def _asked(epoch: int, batch: int, **request: Any) -> str:
    """What a process is asked for a batch. The first line is for errors, of its values, too."""
    return f"{_label(epoch, batch)}\n{json.dumps({'epoch': epoch, 'batch': batch, **request})}"


def _of_batch(epoch: int, batch: int, error: core.PathwaysError) -> core.PathwaysError:
    """``error``, which names the batch."""
    label = _label(epoch, batch)
    return error if label in str(error) else type(error)(f"{label}: {error}")


def remote(
    dataset_fn: Callable[[], Any],
    *,
    batch_size: int = 1,
    shuffle: bool | None = None,
    seed: int = 0,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int = 1,
    prefetch: int = 2,
    timeout_s: float = 300.0,
    device: torch.device | int | None = None,
) -> RemoteLoader:
    """A loader whose batches are made on the CPUs of the workers' hosts; this process sees shapes, never bytes.

    Each host starts Python processes of its own, which call ``dataset_fn()`` and make only the rows that the host's
    devices need of each batch. The batches are tensors on the devices, divided as ``prepare`` divides uploads; they
    exist before their bytes do, so the loop runs ahead. Iterate over it, or give it to ``prepare`` first.

    The order of the samples is a function of ``seed`` and the epoch alone, whatever the number of hosts, devices and
    processes; random numbers drawn while making a sample (torch's, Python's, NumPy's) are one of ``seed``, the epoch
    and the sample's index. ``state_dict`` and ``load_state_dict`` go on in the middle of an epoch.

    Args:
        dataset_fn: makes the dataset: something with ``__len__`` and ``__getitem__``, or an iterable, which every host
            reads whole. It is sent with cloudpickle; files that it opens must be there on every host.
        batch_size: samples of a whole batch, over all devices.
        shuffle: draw another order for each epoch. Default: yes, but for an iterable, which has its own order.
        collate_fn: makes a batch, a tree of tensors whose first dimension is the samples, of a list of samples. A host
            calls it with its rows only, so a row must not depend on others. Default: torch's.
        num_workers: processes per host.
        prefetch: batches that are asked for ahead of the loop, and that the loop may use before they are made.
        timeout_s: how long a host may take for its part of a batch.
        device: of a slice, such as ``slice.device`` or ``pw.device(0)``, when it is not given to ``prepare``. Default:
            ``pw.device()``.

    Raises:
        ValueError, TypeError: an argument that cannot be.

    Iterating raises:
        InputPipelineFailed: the dataset's code raised (the message has host and traceback), or its process ended.
        DeadlineExceeded: it took longer than ``timeout_s``; the message names the host.
        HostLost: a host is gone.

    Such an error is raised where the loop asks for the batch or up to ``prefetch`` batches later; values computed from
    the batch raise it, too.
    """
    return RemoteLoader(
        dataset_fn,
        batch_size,
        shuffle,
        seed,
        drop_last,
        collate_fn,
        num_workers,
        prefetch,
        timeout_s,
        device,
        _where(dataset_fn),
    )


def _where(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        line = f" ({inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]})"
    except (TypeError, OSError):
        line = ""
    return f"'{name}'{line}"


def prepared(loader: Iterable[Any], layout: frontend.BatchLayout) -> Any:
    """What ``prepare`` gives back for a loader."""
    from ptpathways.data._feed import Feed

    if isinstance(loader, RemoteLoader):
        loader.place(layout)
        return loader
    return Feed(loader, layout)
