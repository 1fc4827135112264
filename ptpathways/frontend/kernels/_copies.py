"""Copies on one device: PyTorch/XLA gives both tensors one buffer, and gives it up when one of them is written.

Whoever uses the other one then fails ("buffer is deleted", also on PyTorch/XLA's own CPU device). A value that is still
traced is computed for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _trace, _xla

if TYPE_CHECKING:
    import torch


_as_they_come = False


@contextmanager
def as_they_come() -> Iterator[None]:
    """Copies share their value within it, as PyTorch/XLA makes them; to test what looks for such."""
    global _as_they_come
    _as_they_come = True
    try:
        yield
    finally:
        _as_they_come = False


def copy(
    kernel: Callable[..., Any], target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """What ``copy_`` gives its target."""
    if target.device == source.device and target.dtype == source.dtype:
        source = _own(source)
    made: torch.Tensor = kernel(target, source, non_blocking)
    return made


def clone(
    kernel: Callable[..., Any], source: torch.Tensor, *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    made: torch.Tensor = kernel(_own(source), memory_format=memory_format)
    return made


def alias_copy(kernel: Callable[..., Any], source: torch.Tensor) -> torch.Tensor:
    """``alias`` where there are no views."""
    made: torch.Tensor = kernel(_own(source))
    return made


def _own(source: torch.Tensor) -> torch.Tensor:
    """A computed copy of a value that is there. ``clone()`` and products with one are the same buffer.

    A function that is traced by itself has no values to share.
    """
    if (
        _as_they_come
        or _trace.tracing()
        or source.device.type != "xla"
        or _xla.binding()._check_tensor_need_materialization([source])[0]
    ):
        return source
    return _xla.said_to_lie(source, ((1,) * source.dim(), (0,)))


WRAPPED: dict[str, Callable[..., Any]] = {"copy": copy, "clone": clone, "alias_copy": alias_copy}
