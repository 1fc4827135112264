"""PyTorch/XLA's ``MpDeviceLoader``, through which accelerate and transformers' Trainer give batches to XLA devices.

PyTorch/XLA reads the loader in a thread of its own, some batches ahead. So accelerate's loader, which tells the reading
thread when its last batch comes, told it to nobody, and gradients were accumulated over the end of the epoch; and an
error of the dataset ended the epoch as if there were no more data. Here the loop's own thread reads: an upload does not
wait, and who wants batches to be made ahead gives torch's ``DataLoader`` workers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ptpathways.frontend import _rng


def register() -> None:
    """Makes the loader read in the loop's thread, and gives it the ``dataset`` of the one it wraps. Idempotent."""
    from torch_xla.distributed import parallel_loader

    loader: Any = parallel_loader.MpDeviceLoader
    plain = loader.__iter__
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def iterate(self: Any) -> Iterator[Any]:
        if self._parallel_loader_kwargs:  # of PyTorch/XLA's threads
            return iter(plain(self))
        return _uploaded(self._loader, self._device)

    loader.__iter__ = iterate
    if not hasattr(loader, "dataset"):  # accelerate's save_state asks for it
        loader.dataset = property(lambda self: self._loader.dataset)


def _uploaded(loader: Any, device: Any) -> Iterator[Any]:
    """Each batch on the device, as soon as what was traced on it before is submitted."""
    import torch
    import torch_xla
    from torch_xla.core import xla_model

    upload: Any = xla_model.send_cpu_data_to_device
    for batch in loader:
        with _rng.OnDevice(device):
            torch_xla.sync()
        with torch.no_grad():
            (uploaded,) = upload([batch], device)
        yield uploaded
    with _rng.OnDevice(device):
        torch_xla.sync()
