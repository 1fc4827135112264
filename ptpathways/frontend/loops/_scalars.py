"""Values that somebody wants to know later: kept as they are, averaged on the devices, fetched by another thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptpathways import native
from ptpathways.frontend.base import _state
from ptpathways.frontend.diagnostics import _recompiles
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """The value that ``tensor``, which is on a device, has now or will have; without its gradient history.

    Nothing is traced for it, so the computation stays what it is: a tensor's value is immutable, and this is the
    reference to it that the tensor would give up with the next write. Only a tensor that was written before, as a
    running sum, is copied: the next write may take the memory of its value.
    """
    import torch

    if tensor._version > 0:
        with torch.no_grad():
            tensor = tensor.detach().clone()
    torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
    if torch._is_functional_tensor(tensor):
        return torch._from_functional_tensor(tensor)
    return tensor.detach()


def submit_means(groups: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Submits one small computation of its own: the mean of each group, f64 where all are, else f32; does not wait.

    Args:
        groups: snapshots, those of a group of one device, one element each, none of them pending: cut between.
    """
    import torch

    with torch.no_grad():
        means = [torch.stack([_as_float(value) for value in group]).mean() for group in groups]
    with _recompiles.expected():
        for positions in _by_device(means):
            _xla.binding()._xla_sync_multi([means[position] for position in positions], [], False)
    return means


def settle(tensors: Sequence[torch.Tensor]) -> None:
    """Submits what these values need, if that has not happened, and nothing else. Waits for no device."""
    for positions in _by_device(tensors):
        with _recompiles.expected():
            _xla.binding()._xla_sync_multi([tensors[position] for position in positions], [], True)


def fetch_beside(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The values on the CPU. For a thread of our own: its waiting does not count as the program's (``wait_stats``).

    Args:
        tensors: none of them pending, or this thread would submit what they need.

    Raises:
        RuntimeError: one has no value; the message says why.
    """
    if _state.runtime().connection is not None:
        native.account_fetches_of_this_thread(False)
    found: dict[int, torch.Tensor] = {}
    for positions in _by_device(tensors):
        fetched = _xla.binding()._xla_get_cpu_tensors([tensors[position] for position in positions])
        found |= zip(positions, fetched, strict=True)
    return [found[position] for position in range(len(tensors))]


def _by_device(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions; PyTorch/XLA takes tensors of one device at a time."""
    positions: dict[torch.device, list[int]] = {}
    for position, tensor in enumerate(tensors):
        positions.setdefault(tensor.device, []).append(position)
    return list(positions.values())


def _as_float(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.reshape(()).to(torch.float64 if tensor.dtype is torch.float64 else torch.float32)
