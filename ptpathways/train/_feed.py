"""Feeding: batches of a loader, on the devices before they are needed."""

from __future__ import annotations

import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ptpathways import frontend

DEPTH = 2
"""Batches that are on their way while the loop uses one."""

_POLL_S = 1.0


class UnevenBatchWarning(UserWarning):
    """Batches cannot be divided over the devices, which then all compute the same."""


def is_host_tensor(value: Any) -> bool:
    """Whether a leaf of a batch is something to upload: a dense tensor on the CPU."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def to_devices(batch: Any, layout: frontend.BatchLayout) -> Any:
    """A batch (a tensor, or any nest of tuples, lists and dicts) with its CPU tensors on the devices; returns at once.

    Each tensor is divided as ``layout`` says; a dimension that cannot be divided evenly is not. What is no tensor
    stays as it is.
    """
    leaves, structure = pytree.tree_flatten(batch)
    places = [index for index, leaf in enumerate(leaves) if is_host_tensor(leaf)]
    tensors = [leaves[index] for index in places]
    if tensors:
        for index, tensor in zip(places, frontend.upload(tensors, layout), strict=True):
            leaves[index] = tensor
    return pytree.tree_unflatten(leaves, structure)


def warn_if_uneven(batch: Any, layout: frontend.BatchLayout) -> None:
    """Warns if the tensors of a batch have a first dimension, and none of them can be divided."""
    rows = [leaf.shape[0] for leaf in pytree.tree_leaves(batch) if is_host_tensor(leaf) and leaf.dim() > 0]
    if rows and layout.parts > 1 and all(count % layout.parts for count in rows):
        warnings.warn(
            f"a batch of {rows[0]} cannot be divided over {layout.parts} devices, so each of them computes all of it; "
            f"use a batch size that is a multiple of {layout.parts}",
            UnevenBatchWarning,
            stacklevel=3,
        )


class Feed:
    """A loader whose batches come on the devices. Everything else is asked of the loader it was made from.

    A thread loads and uploads ``DEPTH`` batches ahead. The iterator is made, and its first batch loaded, on the
    caller's thread, so that a shuffling sampler draws its seed when and where it would without us.

    When the loop comes back for a batch and has cut nothing since the last one (an evaluation has no optimizer), the
    trace is cut here, so that it does not grow over the whole epoch.

    Warns (``UnevenBatchWarning``) when the first batch of an iteration cannot be divided over the devices.
    """

    def __init__(self, loader: Iterable[Any], layout: frontend.BatchLayout) -> None:
        self._loader = loader
        self._layout = layout

    def __iter__(self) -> Iterator[Any]:
        source = iter(self._loader)
        try:
            first = next(source)
        except StopIteration:
            return
        warn_if_uneven(first, self._layout)
        batches = Ahead(source, first, lambda batch: to_devices(batch, self._layout), DEPTH)
        try:
            for batch in batches:
                cuts = frontend.cut_count()
                yield batch
                if frontend.cut_count() == cuts:
                    frontend.step()
        finally:
            batches.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # as the loader's own: TypeError if it has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_loader", "_layout"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)


class Ahead:
    """An iterator that is ``depth`` items ahead of its user, on a thread of its own.

    The thread ends when the source does, when it fails (the error is raised where the item would have come), when
    ``close`` is called, or when the program ends. It holds no reference to this object.
    """

    def __init__(self, source: Iterator[Any], first: Any, work: Callable[[Any], Any], depth: int) -> None:
        self._items: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_load, args=(source, first, work, self._items, self._room, self._stop), name="pw-feed", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                kind, value = self._items.get(timeout=_POLL_S)
            except queue.Empty:
                if self._thread.is_alive() or not self._items.empty():
                    continue
                raise StopIteration from None
            self._room.release()
            if kind == "item":
                return value
            self._stop.set()
            if kind == "error":
                raise value
            raise StopIteration

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends the thread; one that is inside the loader ends when the loader gives its next batch."""
        self._stop.set()
        self._room.release()
        self._thread.join(timeout_s)


def _load(
    source: Iterator[Any],
    item: Any,
    work: Callable[[Any], Any],
    items: queue.SimpleQueue[tuple[str, Any]],
    room: threading.Semaphore,
    stop: threading.Event,
) -> None:
    try:
        while True:
            room.acquire()
            if stop.is_set():
                return
            items.put(("item", work(item)))
            item = next(source)
    except StopIteration:
        items.put(("end", None))
    except BaseException as error:
        items.put(("error", error))
