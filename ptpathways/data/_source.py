"""What a feed reads: a loader's iterator, at the beginning or in the middle of an epoch, and where it has got to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

from torch.utils.data import DataLoader, IterableDataset

from ptpathways.data._random import RandomState
from ptpathways.data._workers import Sealed, States, brings_random_states, sealing


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a loader was when it had given a batch."""

    random: RandomState | None = None
    """The process's generators then; None when the batch was not made in this process."""
    loader: Any = None
    """The loader's own state, if it keeps one."""
    workers: States | None = None
    """The generators of the loader's worker processes."""


def has_own_state(loader: Any) -> bool:
    """Whether a loader can say by itself where it is (torchdata's ``StatefulDataLoader``, Hugging Face's datasets)."""
    return callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))


def loads_here(loader: Any) -> bool:
    """Whether batches are made by this process, so that they may draw from its random generators."""
    return not isinstance(loader, DataLoader) or loader.num_workers == 0


def has_workers_from_before(loader: Any) -> bool:
    """Whether the next epoch goes on with workers that there are, for which no seed is drawn."""
    return getattr(loader, "persistent_workers", False) and getattr(loader, "_iterator", None) is not None


@dataclass(slots=True)
class Way:
    """How an iteration comes to its first batch."""

    skip: int = 0
    """How many batches of the epoch it passes over."""
    before_order: Callable[[], None] | None = None
    """Called before a sampler draws the order."""
    after_skip: Callable[[], None] | None = None
    """Called when the batches have been passed over, before anything else."""
    workers: States | None = None
    """The generators that worker processes go on with."""


class Source:
    """An iterator over a loader's (batch, ``Mark``) pairs. Used by one thread at a time.

    Of a ``DataLoader`` over a dataset with indices, batches to be passed over are drawn from the sampler and not
    loaded; of anything else they are read and dropped.
    """

    def __init__(self, loader: Iterable[Any], way: Way) -> None:
        self._loader = loader
        self._own = has_own_state(loader)
        self._here = not self._own and loads_here(loader)
        self._before: RandomState | None = None
        self.draws = False
        """Whether making a batch changes the process's random generators, as the first one has shown."""
        self._workers: dict[str, Any] = dict(way.workers or {})
        has_indices = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
        seal = has_indices and not self._own and brings_random_states(loader)
        with sealing(cast("DataLoader[Any]", loader), way.skip, way.workers) if seal else nullcontext():
            self._batches = self._begin(loader, way, has_indices)

    def __iter__(self) -> Iterator[tuple[Any, Mark]]:
        return self

    def __next__(self) -> tuple[Any, Mark]:
        batch = next(self._batches)
        workers = None
        if isinstance(batch, Sealed):
            self._workers[str(batch.worker)] = batch.random
            workers, batch = dict(self._workers), batch.batch
        mark = Mark(
            RandomState.now() if self._here else None,
            self._loader.state_dict() if self._own else None,  # type: ignore[attr-defined]
            workers,
        )
        if self._before is not None:
            self.draws = mark.random != self._before
            self._before = None
        return batch, mark

    def _begin(self, loader: Any, way: Way, has_indices: bool) -> Iterator[Any]:
        if self._own or (has_indices and not self._here and way == Way()):
            return iter(loader)
        return self._over_sampler(loader, way) if has_indices else self._read_and_drop(loader, way)

    def _note(self) -> None:
        """The next thing that may draw is the making of the first batch."""
        if self._here:
            self._before = RandomState.now()

    def _read_and_drop(self, loader: Iterable[Any], way: Way) -> Iterator[Any]:
        items = iter(loader)
        for _ in range(way.skip):
            if next(items, _END) is _END:
                break
        if way.after_skip is not None:
            way.after_skip()
        self._note()
        return items

    def _over_sampler(self, loader: DataLoader[Any], way: Way) -> Iterator[Any]:
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        attributes = vars(loader)  # DataLoader refuses to have them assigned
        sampler = attributes[name]
        if getattr(loader, "persistent_workers", False):
            attributes["_iterator"] = None  # its workers would go on with the sampler they know
        attributes[name] = _Watched(sampler, way, self._note)
        try:
            return iter(loader)
        finally:
            attributes[name] = sampler


_END = object()


class _Watched:
    """A sampler that takes a way to its first index, once; otherwise the sampler it was made from."""

    def __init__(self, sampler: Any, way: Way, first: Callable[[], None]) -> None:
        self._sampler = sampler
        self._once: tuple[Way, Callable[[], None]] | None = (way, first)

    def __iter__(self) -> Iterator[Any]:
        # By a generator: the loader draws its seed between iter() of its sampler and the first index.
        once, self._once = self._once, None
        if once is None:
            yield from self._sampler
            return
        way, note = once
        if way.before_order is not None:
            way.before_order()
        indices = iter(self._sampler)
        for _ in range(way.skip):
            if next(indices, _END) is _END:
                break
        if way.after_skip is not None:
            way.after_skip()
        first = next(indices, _END)
        if first is _END:
            return
        note()
        yield first
        yield from indices

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)
