"""Feeding: batches of a loader, on the devices before they are needed, and where in the data the loop is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, DistributedSampler

from ptpathways import frontend
from ptpathways.data._ahead import Ahead
from ptpathways.data._batches import to_devices, warn_if_uneven
from ptpathways.data._random import (
    RandomState,
    check_states,
    decode_generator,
    encode_generator,
    generators_of,
    set_states,
    states_of,
)
from ptpathways.data._source import Mark, Source, Way, has_own_state, has_workers_from_before
from ptpathways.data._workers import States

DEPTH = 2
"""Batches that are on their way while the loop uses one."""

_VERSION = 1


class DistributedSamplerWarning(UserWarning):
    """A loader gives one process a part of the data, although this process feeds all devices."""


class Feed:
    """A loader whose batches come on the devices. Everything else is asked of the loader it was made from.

    A thread loads and uploads ``DEPTH`` batches ahead. The iterator is made, and its first batch loaded, on the
    caller's thread, so that a shuffling sampler draws its seed when and where it would without us.

    When the loop comes back for a batch and has cut nothing since the last one (an evaluation has no optimizer), the
    trace is cut here, so that it does not grow over the whole epoch.

    ``state_dict`` says where the loop is, and ``load_state_dict`` makes the next iteration go on from there.

    Warns (``UnevenBatchWarning``) when the first batch of an iteration cannot be divided over the devices.
    """

    def __init__(self, loader: Iterable[Any], layout: frontend.BatchLayout) -> None:
        self._loader = loader
        self._layout = layout
        self._position = _Position()
        _warn_if_distributed(loader)

    def __iter__(self) -> Iterator[Any]:
        position = self._position
        source, begun = position.begin(self._loader)
        try:
            first = next(source)
        except StopIteration:
            position.end(begun)
            return
        warn_if_uneven(first[0], self._layout)
        patience_s = 10.0
        batches = Ahead(source, first, lambda item: (to_devices(item[0], self._layout), item[1]), DEPTH)
        try:
            for batch, mark in batches:
                cuts = frontend.cut_count()
                position.give(begun, mark)
                yield batch
                if frontend.cut_count() == cuts:
                    frontend.step()
            position.end(begun)
        except KeyboardInterrupt:
            patience_s = 0.0  # nobody waits for a slow loader then
            raise
        finally:
            batches.close(patience_s)
            position.leave(begun)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader's own: TypeError if it has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_loader", "_layout", "_position"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, and how many of its batches the loop has been given. Both count from 0."""
        return self._position.now()

    def set_epoch(self, epoch: int) -> None:
        """Tells the loader, its samplers and its dataset, those of them that want to know, which epoch comes."""
        if callable(getattr(self._loader, "set_epoch", None)):
            self._loader.set_epoch(epoch)  # type: ignore[attr-defined]
            return
        for name in ("sampler", "batch_sampler", "dataset"):
            tell = getattr(getattr(self._loader, name, None), "set_epoch", None)
            if callable(tell):
                tell(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: texts, numbers, lists and dicts, but for what a loader with its own state says of itself.

        Batches count as given when the loop has got them, not when they were loaded ahead. After the last batch of an
        epoch, while the loop still works on it, the position is the end of that epoch; once the loop has ended or was
        left, it is the beginning of the next, with which the next loop begins. While an error is handled (in an
        ``except`` or ``finally``), it is where the loop was left.
        """
        return self._position.state_dict(self._loader)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration give the batches that came after ``state_dict()``, in the same order.

        Random generators are set as they were: the process's (torch's for the CPU, Python's, NumPy's) now, and when
        the iteration begins those that draw the order of its epoch, which are the process's or the loader's own.
        What was given before is passed over: of a ``DataLoader`` whose dataset has indices only the indices are
        drawn; from others it is read and dropped; a loader that keeps its own state is given that.

        Raises:
            ValueError: the state is of another kind of loader, another number of samples or another batch size.
        """
        self.check_state_dict(state)
        self._position.load_state_dict(self._loader, state)

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError as ``load_state_dict`` would, and changes nothing."""
        _check(self._loader, state)


@dataclass(frozen=True, slots=True)
class _Start:
    """What decides the order of an epoch, as it was when the epoch began."""

    random: RandomState
    """The process's generators."""
    generators: list[torch.Tensor]
    """Those that the loader and its samplers hold."""
    workers: bool
    """Whether the loader had workers already."""

    @classmethod
    def now(cls, loader: Any, workers: bool = False) -> _Start:
        return cls(RandomState.now(), states_of(generators_of(loader)), workers or has_workers_from_before(loader))

    def set(self, loader: Any) -> None:
        set_states(generators_of(loader), self.generators)
        self.random.set()

    def encoded(self) -> dict[str, Any]:
        return {
            "random": self.random.encoded(),
            "generators": [encode_generator(state) for state in self.generators],
            "workers": self.workers,
        }

    @classmethod
    def decode(cls, state: Mapping[str, Any]) -> _Start:
        generators = [decode_generator(text) for text in state["generators"]]
        return cls(RandomState.decode(state["random"]), generators, bool(state["workers"]))


class _Position:
    """Where a feed is. Used by the loop's thread."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batch = 0
        self._begun: object | None = None
        """The iteration under way, or that was left."""
        self._is_left = False
        self._source: Source | None = None
        self._mark = Mark()
        self._start: _Start | None = None
        """Of the epoch under way; None between epochs."""
        self._resume: RandomState | Literal["from the start"] | None = "from the start"
        """If a state was loaded that is in the middle of an epoch: the generators to go on with, None for those that
        there are then."""
        self._workers: States | None = None
        """The same of the loader's worker processes."""
        self._had_workers = False
        """Whether the state that was loaded last is of a loader that had workers."""

    def begin(self, loader: Iterable[Any]) -> tuple[Source, object]:
        """A new iteration, or the rest of the one whose state was loaded."""
        if self._begun is not None:
            self._next_epoch()
        after, self._resume = self._resume, "from the start"
        had_workers, self._had_workers = self._had_workers, False
        if self._start is None:
            after = "from the start"
            self._start = _Start.now(loader, had_workers)
        way = Way(skip=self.batch)
        if after != "from the start":
            way.after_skip = (after or RandomState.now()).set
            way.workers, self._workers = self._workers, None
        if (after != "from the start" or had_workers) and not has_own_state(loader):
            self._start.set(loader)
            if self._start.workers:
                way.before_order = partial(self._start.set, loader)
        self._source = Source(loader, way)
        self._begun = begun = object()
        return self._source, begun

    def give(self, begun: object, mark: Mark) -> None:
        if begun is self._begun:
            self.batch += 1
            self._mark = mark

    def end(self, begun: object) -> None:
        if begun is self._begun:
            self._next_epoch()

    def leave(self, begun: object) -> None:
        """The iteration was given up, if it has not ended: by an error or a ``break``, which look the same here."""
        if begun is self._begun:
            self._is_left = True

    def now(self) -> tuple[int, int]:
        """Epoch and batch."""
        self._end_if_left()
        return self.epoch, self.batch

    def _end_if_left(self) -> None:
        if self._is_left and sys.exc_info()[1] is None:
            self._next_epoch()

    def _next_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self._begun, self._source, self._start, self._mark = None, None, None, Mark()
        self._is_left = False

    def state_dict(self, loader: Any) -> dict[str, Any]:
        self._end_if_left()
        loading = self._mark.random if self._source is not None and self._source.draws else None
        workers = self._mark.workers
        if self._resume != "from the start":  # loaded, and not yet gone on from
            loading, workers = self._resume, self._workers
        own = None
        if has_own_state(loader):
            own = self._mark.loader if self.batch and self._begun is not None else loader.state_dict()
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "samples": _samples(loader),
            "batch_size": getattr(loader, "batch_size", None),
            "now": _Start.now(loader, self._had_workers).encoded(),
            "start": None if self._start is None else self._start.encoded(),
            "loading": None if loading is None else loading.encoded(),
            "workers": None if workers is None else {"count": loader.num_workers, "random": dict(workers)},
            "loader": own,
        }

    def load_state_dict(self, loader: Any, state: Mapping[str, Any]) -> None:
        now = _Start.decode(state["now"])
        now.set(loader)
        self.epoch, self.batch = int(state["epoch"]), int(state["batch"])
        self._begun, self._source, self._mark = None, None, Mark()
        self._is_left = False
        self._start, self._resume, self._had_workers = None, "from the start", now.workers
        self._workers = None
        if state["loader"] is not None:
            loader.load_state_dict(state["loader"])
        if state["start"] is not None:
            self._start = _Start.decode(state["start"])
            self._resume = None if state["loading"] is None else RandomState.decode(state["loading"])
            workers = state["workers"]
            same = workers is not None and workers["count"] == getattr(loader, "num_workers", 0)
            self._workers = workers["random"] if same else None


def _check(loader: Any, state: Mapping[str, Any]) -> None:
    if state.get("version") != _VERSION:
        raise ValueError(
            f"a loader's state of version {_VERSION} is needed, got {state.get('version')!r}; give load_state_dict() "
            "what state_dict() of a prepared loader returned"
        )
    if (state["loader"] is not None) != has_own_state(loader):
        raise ValueError(
            "the state is of a loader that "
            + ("keeps" if state["loader"] is not None else "does not keep")
            + f" its own state (state_dict()), and {type(loader).__qualname__} is the other kind; "
            "load it into a loader like the one it was saved from"
        )
    check_states(generators_of(loader), state["now"]["generators"])
    if state["loader"] is not None:
        return
    for name, mine in (("samples", _samples(loader)), ("batch_size", getattr(loader, "batch_size", None))):
        if state[name] != mine:
            raise ValueError(
                f"the state is of a loader with {name}={state[name]}, this one has {name}={mine}, so the same position "
                "means other samples; resume with the same dataset and batch size"
            )


def _samples(loader: Any) -> int | None:
    """How many samples there are, if anybody knows."""
    try:
        return len(getattr(loader, "dataset", loader))
    except (TypeError, NotImplementedError):
        return None


def _warn_if_distributed(loader: Any) -> None:
    if not isinstance(loader, DataLoader):
        return
    for sampler in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            warnings.warn(
                f"the loader has a DistributedSampler of {sampler.num_replicas} replicas, so its batches hold only "
                f"1/{sampler.num_replicas} of the data. This one process feeds all devices, and prepare() divides each "
                "batch over them: leave the sampler out, say DataLoader(dataset, batch_size=WHOLE_BATCH, shuffle=True)",
                DistributedSamplerWarning,
                stacklevel=4,
            )
            return
