"""Reading values (``item()``, ``if tensor``, an operation on the client): what was traced goes with them.

PyTorch/XLA by itself computes what the read tensors need and keeps only those, so that whatever went into them is
computed again by the next read and by the rest of the step: a loss that is read before ``backward()`` would cost a
second forward pass, an optimizer that reads (LBFGS, a gradient scaler) one more backward pass for each read, and
every one of these a compile of its own. Here a read is a cut: all live tensors of the device get their values. So do
the seeds of what is drawn next, which would otherwise be computed from the first seed since the last step, by a longer
computation at each read: a policy that samples action after action would be compiled for each.

Copies to the CPU (``cpu()``, ``print``) never come here as an operation: torch's table has them under ``_to_copy``,
with each change of type, and a step under autocast would pay for being asked some hundred times. ``_wrapped`` asks for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptpathways import native
from ptpathways.frontend.base import _state
from ptpathways.frontend.diagnostics import _recompiles, _threads
from ptpathways.frontend.loops import _step
from ptpathways.frontend.slices import _rng
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


def fetch(tensors: Sequence[torch.Tensor | float]) -> list[torch.Tensor]:
    """The values on the CPU; waits for them.

    Args:
        tensors: plain ones of devices, as kernels get them. Others, and numbers, which torch gives a kernel in place
            of some tensors, come back as tensors of the CPU.

    Raises:
        PathwaysError: one has no value; the class and the message say why.
    """
    import torch

    _recompiles.about_to_read(_step.cut_count())
    given = [item if isinstance(item, torch.Tensor) else torch.tensor(item) for item in tensors]
    # PyTorch/XLA drops the imaginary parts of complex128 on the way to the CPU, so these go as pairs of real numbers.
    pairs = [tensor.device.type == "xla" and tensor.dtype == torch.complex128 for tensor in given]
    sent = [torch.view_as_real_copy(tensor) if pair else tensor for tensor, pair in zip(given, pairs, strict=True)]
    there = [tensor for tensor in sent if tensor.device.type == "xla"]
    try:
        values = iter(_get(there))
    except RuntimeError as error:
        raise native.translate_of_torch(error) from None
    _recompiles.report()
    fetched = [next(values) if tensor.device.type == "xla" else tensor for tensor in sent]
    return [torch.view_as_complex(value) if pair else value for value, pair in zip(fetched, pairs, strict=True)]


def submit(tensors: Sequence[torch.Tensor]) -> None:
    """Submits all that was traced on the devices of those ``tensors`` that have no value yet. Does not wait."""
    _state.refuse_in_fork()
    pending = _xla.binding()._check_tensor_need_materialization(list(tensors))
    waiting = sorted({tensor.device.index for tensor, waits in zip(tensors, pending, strict=True) if waits})
    _threads.claim(waiting)
    for index in waiting:
        _xla.binding()._xla_sync_live_tensors(_xla.device_name(index), [], False)
        _rng.begin_anew(index)
    _threads.release(waiting)


def submit_for_copy(tensor: torch.Tensor) -> None:
    """As ``submit``, for a tensor of a device that is about to be copied to the CPU."""
    _recompiles.about_to_read(_step.cut_count())
    submit([tensor])
    _recompiles.report()


def _get(there: list[torch.Tensor]) -> list[torch.Tensor]:
    submit(there)
    values: list[torch.Tensor] = _xla.binding()._xla_get_cpu_tensors(there)
    return values
