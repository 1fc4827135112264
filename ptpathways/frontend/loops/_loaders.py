"""PyTorch/XLA's ``MpDeviceLoader``, through which accelerate and transformers' Trainer give batches to XLA devices.

PyTorch/XLA reads the loader in a thread of its own, some batches ahead. So accelerate's loader, which tells the reading
thread when its last batch comes, told it to nobody, and gradients were accumulated over the end of the epoch; and an
error of the dataset ended the epoch as if there were no more data. Here the loop's own thread reads: an upload does not
wait, and who wants batches to be made ahead gives torch's ``DataLoader`` workers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from ptpathways.frontend.base import _batch_tree
from ptpathways.frontend.slices import _rng

_AT_LEAST_ONE = (
    "batches_per_execution",
    "loader_prefetch_size",
    "device_prefetch_size",
    "host_to_device_transfer_threads",
)


def register() -> None:
    """Makes the loader read in the loop's thread, and gives it the ``dataset`` of the one it wraps. Idempotent."""
    from torch_xla.distributed import parallel_loader

    parallel: Any = parallel_loader.ParallelLoader
    loader: Any = parallel_loader.MpDeviceLoader
    if hasattr(loader.__iter__, "__wrapped__"):
        return
    begin, read = parallel.__init__, parallel._loader_worker

    @functools.wraps(loader.__iter__)
    def iterate(self: Any) -> Iterator[Any]:
        settings = _settings(begin, self, (self._loader, [self._device]), self._parallel_loader_kwargs)
        return _uploaded(self._loader, self._device, settings["batches_per_execution"], settings["input_sharding"])

    @functools.wraps(begin)
    def checked(self: Any, *arguments: Any, **more: Any) -> None:
        _settings(begin, self, arguments, more)
        begin(self, *arguments, **more)

    @functools.wraps(read)
    def telling(self: Any) -> None:
        self._cpu_loader = _Telling(self._cpu_loader, self._exception_queue)
        read(self)

    loader.__iter__ = iterate
    parallel.__init__ = checked
    parallel._loader_worker = telling
    if not hasattr(loader, "dataset"):  # accelerate's save_state asks for it
        loader.dataset = property(lambda self: self._loader.dataset)


def _settings(function: Any, owner: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any]:
    """What a ``ParallelLoader`` is to be made with. Those of its threads and queues mean nothing where there are none.

    Raises:
        TypeError: it does not know an argument.
        ValueError: a queue has no place, or there is no thread: the loop would wait for ever.
    """
    bound = inspect.signature(function).bind(owner, *arguments, **more)
    bound.apply_defaults()
    for name in _AT_LEAST_ONE:
        if bound.arguments[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {bound.arguments[name]}")
    return dict(bound.arguments)


class _Telling:
    """A loader that puts what it raises where the loop looks when there is no other batch."""

    def __init__(self, loader: Any, raised: Any) -> None:
        self._loader = loader
        self._raised = raised

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._loader
        except Exception as error:
            self._raised.put(error)

    def __len__(self) -> int:
        return len(self._loader)


def _uploaded(loader: Any, device: Any, every: int, sharding: Any) -> Iterator[Any]:
    """Each batch on the device, as soon as what was traced on it before is submitted.

    Args:
        every: so many batches, what was traced is submitted.
        sharding: PyTorch/XLA's, of a batch or of its entries by name.
    """
    import torch
    import torch_xla

    for number, batch in enumerate(loader):
        _note_size(loader, batch)
        if number % every == 0:
            with _rng.OnDevice(device):
                torch_xla.sync()
        with torch.no_grad():
            uploaded = _on(device, batch) if sharding is None else _sharded(device, batch, sharding)
        yield uploaded
    with _rng.OnDevice(device):
        torch_xla.sync()


def _note_size(loader: Any, batch: Any) -> None:
    """Tells accelerate's loader of a stream how many samples its last batch has.

    Where it reads for one process, it cuts what is gathered for metrics off there. For XLA it does not look, and an
    evaluation counts the last batch as a full one.
    """
    if getattr(loader, "end_of_dataloader", False) and getattr(loader, "remainder", None) == -1:
        sizes = [leaf.shape[0] for leaf in _batch_tree.flatten_batch(batch)[0] if getattr(leaf, "shape", ())]
        if sizes:
            loader.remainder = sizes[0]


def _on(device: Any, batch: Any) -> Any:
    from torch.nn.utils.rnn import PackedSequence

    leaves, make = _batch_tree.flatten_batch(batch)
    return make(
        [
            leaf.to(device) if _batch_tree.is_host_tensor(leaf) or isinstance(leaf, PackedSequence) else leaf
            for leaf in leaves
        ]
    )


def _sharded(device: Any, batch: Any, sharding: Any) -> Any:
    from torch_xla.distributed import parallel_loader

    maker: Any = object.__new__(parallel_loader.ParallelLoader)
    maker._input_sharding = sharding
    (uploaded,) = maker.send_cpu_data_to_device([batch], device)
    return uploaded
