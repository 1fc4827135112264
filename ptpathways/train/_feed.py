"""Feeding: batches of a loader, on the devices before they are needed."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ptpathways import frontend

DEPTH = 2
"""Batches that are on their way while the loop uses one."""

_POLL_S = 1.0


def splits_evenly(shape: tuple[int, ...], devices: int) -> bool:
    """Whether the first dimension of ``shape`` can be divided over ``devices`` with no remainder."""
    return len(shape) > 0 and shape[0] > 0 and shape[0] % devices == 0


def is_host_tensor(value: Any) -> bool:
    """Whether a leaf of a batch is something to upload: a dense tensor on the CPU."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def to_devices(batch: Any, devices: int) -> Any:
    """A batch (a tensor, or any nest of tuples, lists and dicts) with its CPU tensors on the devices; returns at once.

    Each tensor is split along its first dimension if that divides evenly, else copied to every device. What is no
    tensor stays as it is.
    """
    leaves, structure = pytree.tree_flatten(batch)
    places = [index for index, leaf in enumerate(leaves) if is_host_tensor(leaf)]
    tensors = [leaves[index] for index in places]
    if tensors:
        split = [splits_evenly(tuple(tensor.shape), devices) for tensor in tensors]
        for index, tensor in zip(places, frontend.upload(tensors, split), strict=True):
            leaves[index] = tensor
    return pytree.tree_unflatten(leaves, structure)


class Feed:
    """A loader whose batches come on the devices. Everything else is asked of the loader it was made from.

    A thread loads and uploads ``DEPTH`` batches ahead. The iterator is made, and its first batch loaded, on the
    caller's thread, so that a shuffling sampler draws its seed when and where it would without us.

    When the loop comes back for a batch and has cut nothing since the last one (an evaluation has no optimizer), the
    trace is cut here, so that it does not grow over the whole epoch.
    """

    def __init__(self, loader: Iterable[Any], devices: int) -> None:
        self._loader = loader
        self._devices = devices

    def __iter__(self) -> Iterator[Any]:
        source = iter(self._loader)
        try:
            first = next(source)
        except StopIteration:
            return
        batches = Ahead(source, first, lambda batch: to_devices(batch, self._devices), DEPTH)
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
        if name.startswith("__") or name in ("_loader", "_devices"):
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
