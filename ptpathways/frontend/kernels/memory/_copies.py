"""Copies on one device: PyTorch/XLA gives both tensors one buffer, and gives it up when one of them is written.

Whoever uses the other one then fails ("buffer is deleted", also on PyTorch/XLA's own CPU device). A value that is still
traced is computed for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _recorded
from ptpathways.frontend.loops import _reads
from ptpathways.frontend.xla import _trace, _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

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
    """What ``copy_`` gives its target.

    Raises:
        RuntimeError: the source cannot be broadcast to the target's shape.
    """
    if source.dim() > 0:
        source = _of_shape(source, target.shape)
    if target.device == source.device and target.dtype == source.dtype:
        source = _own(source)
    elif source.device.type == "cpu" and source.dim() == 0 and is_to_be_alone(target.dtype):
        source = alone(source, target.dtype, target.device)
    made: torch.Tensor = kernel(target, source, non_blocking)
    return made


def copy_out(
    kernel: Callable[..., Any], target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """``copy_`` into a tensor of the CPU, to which PyTorch/XLA gives the source's shape.

    The read is Python's: what PyTorch/XLA's raises cannot pass through a kernel in Python.

    Raises:
        Whatever ``fetch`` raises; RuntimeError: the source cannot be broadcast to the target's shape.
    """
    if target.device.type != "cpu":
        made: torch.Tensor = kernel(target, source, non_blocking)
        return made
    return target.copy_(_reads.fetch([source])[0])


def _of_shape(source: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """PyTorch/XLA copies between a device and the CPU as if both had the source's shape, whatever the target's.

    Raises:
        RuntimeError: the source cannot be broadcast to the shape; in torch's words.
    """
    import torch

    if source.shape == shape:
        return source
    torch.empty(shape, device="meta").copy_(torch.empty(source.shape, device="meta"))
    return source.expand(shape)


def clone(
    kernel: Callable[..., Any], source: torch.Tensor, *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    made: torch.Tensor = kernel(_own(source), memory_format=memory_format)
    return made


def alias_copy(kernel: Callable[..., Any], source: torch.Tensor) -> torch.Tensor:
    """``alias`` where there are no views."""
    made: torch.Tensor = kernel(_own(source))
    return made


@hands_on(Plain.NO_NUMBER)
def to_copy(
    kernel: Callable[..., Any],
    source: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **named: Any,
) -> torch.Tensor:
    """What ``to`` gives, and ``torch.tensor`` with a device. A read waits, and Ctrl-C must find no kernel in Python."""
    is_number = source.device.type == "cpu" and source.dim() == 0
    if is_number and device is not None and device.type == "xla" and is_to_be_alone(dtype or source.dtype):
        return alone(source, dtype or source.dtype, device)
    made: torch.Tensor = kernel(source, dtype=dtype, device=device, **named)
    return made


def is_to_be_alone(dtype: torch.dtype) -> bool:
    """Whether a number of that type that is uploaded gets a buffer: a recorded call looks at its uploads itself."""
    return not (is_wide_unsigned(dtype) or _recorded.is_recorded_here() or _trace.tracing())


def is_wide_unsigned(dtype: torch.dtype) -> bool:
    """Whether these are unsigned numbers of more than 8 bits: PyTorch/XLA gives a buffer of its own the signed type."""
    return not dtype.is_signed and dtype.itemsize > 1


def alone(number: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A CPU tensor without dimensions, in a buffer of its own on a device.

    PyTorch/XLA makes a number of its traces of it, one with all that are equal and of that type, and no buffer at all
    of 0 and 1: a captured step would take its argument for a number of its own.
    """
    place = _xla.device_name(_xla.index_of(device))
    (made,) = _xla.binding()._xla_tensors_from_aten([number.detach().to(dtype, copy=True)], [place], None)
    result: torch.Tensor = made
    return result


def _own(source: torch.Tensor) -> torch.Tensor:
    """A computed copy of a value that is there.

    A function that is traced by itself has no values to share.
    """
    if (
        _as_they_come
        or _trace.tracing()
        or source.device.type != "xla"
        or _xla.binding()._check_tensor_need_materialization([source])[0]
    ):
        return source
    return _xla.computed_copy(source)


WRAPPED: dict[str, Callable[..., Any]] = {"copy": copy, "clone": clone, "alias_copy": alias_copy, "_to_copy": to_copy}
WRAPPED |= {"copy_": copy_out}
