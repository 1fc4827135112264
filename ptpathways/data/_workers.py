"""The random generators of a ``DataLoader``'s worker processes, so that a resumed epoch augments as it would have.

A worker's generators depend on all that it has loaded. So each batch brings along what they were after it, and the
workers of a resumed epoch begin with those. Not for persistent workers, whose iterator outlives the epoch and gives its
batches to whoever iterates next.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from ptpathways.data._random import RandomState

States = Mapping[str, Any]
"""By number of the worker, as text: ``RandomState.encoded()`` after the last batch that it gave."""


class Sealed:
    """A batch from a worker, with what its generators were afterwards."""

    __slots__ = ("batch", "random", "worker")

    def __init__(self, batch: Any, worker: int, random: dict[str, Any]) -> None:
        self.batch = batch
        self.worker = worker
        self.random = random


def brings_random_states(loader: Any) -> bool:
    """Whether ``sealing`` works for a loader."""
    return (
        isinstance(loader, DataLoader)
        and loader.num_workers > 0
        and not loader.persistent_workers
        and getattr(loader, "in_order", True)
    )


@contextmanager
def sealing(loader: DataLoader[Any], batch: int, states: States | None) -> Iterator[None]:
    """An iterator that is made inside gives ``Sealed`` batches.

    Args:
        batch: the number of its first batch.
        states: what workers of the epoch's beginning had got to; None: the epoch begins.
    """
    collate, init = loader.collate_fn, loader.worker_init_fn
    loader.collate_fn = _Collate(collate)
    if states is not None:
        loader.worker_init_fn = _Begin(init, batch, loader.num_workers, states)
    try:
        yield
    finally:
        loader.collate_fn, loader.worker_init_fn = collate, init


class _Collate:
    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        info = get_worker_info()
        assert info is not None
        role = getattr(info, "pathways_role", info.id)
        return Sealed(batch, role, RandomState.now().encoded())


class _Begin:
    """What a worker does first: it takes the place of the one whose turn would have come."""

    def __init__(self, init: Callable[[int], None] | None, batch: int, workers: int, states: States) -> None:
        self._init = init
        self._batch = batch
        self._workers = workers
        self._states = states

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        role = (self._batch + worker) % self._workers
        vars(info)["pathways_role"] = role
        if role != worker:
            _seed(info.seed - worker, role)
        if self._init is not None:
            self._init(role)
        state = self._states.get(str(role))
        if state is not None:
            RandomState.decode(state).set()


def _seed(base: int, worker: int) -> None:
    """As torch seeds a worker."""
    random.seed(base + worker)
    torch.manual_seed(base + worker)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        from torch.utils.data._utils.worker import _generate_state

        numpy.random.seed(_generate_state(base, worker))
