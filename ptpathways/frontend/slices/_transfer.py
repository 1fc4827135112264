"""Moving a tensor from one slice to another, from worker to worker, never through the client.

PyTorch/XLA's own ``tensor.to(other_device)`` fetches the value to the host, waits for it, and uploads it. Here the
sender's trace is submitted, the plugin is asked for the handle of the sender's buffer, the cluster moves it between any
two layouts (all of this returns at once), and the handle of the result is given to PyTorch/XLA as if it were the result
of an upload.

``_wrapped`` makes ``Tensor.to`` and ``Tensor.copy_`` do the same.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from ptpathways import core, native
from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _reshard
from ptpathways.frontend.xla import _xla
from ptpathways.sharding import Tiling

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.slices._slice import VirtualSlice

COPY = "copy"
BATCH = "batch"


def transfer(
    tensor: torch.Tensor, device: torch.device | str | int | VirtualSlice, layout: Tiling | str | None = None
) -> torch.Tensor:
    """Copies ``tensor`` to another slice of the cluster, from worker to worker, and returns at once.

    Submits what was traced on the slice of ``tensor``. Its gradient is transferred back the same way. A CPU tensor is
    uploaded; a tensor that is already on that slice is returned itself. ``tensor.to(slice.device)`` does the same,
    without ``layout``.

    Args:
        tensor: a tensor of a slice, or of the CPU.
        device: a slice, its torch device (``slice.device``, ``device()``), that device's name, or its number.
        layout: how the copy lies there. ``"copy"``: a replica on each device. ``"batch"``: the first dimension divided,
            if the number of devices divides it. A pair: the number of parts of each dimension, and for each device the
            number of its part. None: as on the source slice if both have equally many devices; else as ``"batch"`` if
            the first dimension is divided now, else as ``"copy"``. Without effect for a CPU tensor.

    Returns:
        A tensor of the same shape and dtype on that slice.

    Raises:
        NotInitialized: before ``init``.
        TypeError: ``tensor`` is not a tensor, such as a value within a program; ``device`` or ``layout`` has another
            type.
        ValueError: ``device`` is not an XLA device, or ``layout`` does not fit the tensor or the slice.
        SliceUnavailable: the device stands for no slice now.
    """
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"transfer takes a tensor, got {type(tensor).__name__!r}; within a program a value goes by itself "
            "to the slice of the function that takes it"
        )
    _check_layout(layout)
    this = _state.runtime()
    target = _target(device, this.torch_device_count)
    if tensor.device.type != "xla" or this.connection is None:
        plain: torch.Tensor = _plain_to()(tensor, target)
        return plain
    if _xla.index_of(tensor.device) == _xla.index_of(target):
        return tensor
    result: torch.Tensor = _function().apply(tensor, target, layout)
    return result


def _target(device: Any, count: int) -> torch.device:
    """The torch device that is meant, of so many. Raises TypeError or ValueError."""
    import torch

    from ptpathways.frontend.slices._slice import VirtualSlice

    required = "transfer goes to a slice, or to its device, as slice.device and pw.device() are"
    if isinstance(device, VirtualSlice):
        return device.device
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:
            raise ValueError(f"{required}, got {device!r}") from None
    if not isinstance(device, torch.device):
        try:
            number = core.whole_number(device, "a device")
        except TypeError:
            raise TypeError(f"{required}, got {device!r}") from None
        if not 0 <= number < count:
            raise ValueError(f"{required}, or its number, from 0 to {count - 1}, got {device!r}")
        return torch.device("xla", number)
    if device.type != "xla":
        raise ValueError(f"{required}, got {device}; use tensor.to() for others")
    return device


def _check_layout(layout: Any) -> None:
    good = layout in (None, COPY, BATCH) if isinstance(layout, str | None) else isinstance(layout, tuple)
    if not good:
        raise TypeError(f"layout must be {COPY!r}, {BATCH!r}, or parts and tiles, got {layout!r}")


_function_class: Any = None


def _function() -> Any:
    """The autograd function; made late, because this room is imported before torch."""
    global _function_class
    if _function_class is None:
        import torch

        class Transfer(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, tensor: torch.Tensor, device: torch.device, layout: Any) -> torch.Tensor:
                context.source = tensor.device
                return _move(tensor, device, layout)

            @staticmethod
            def backward(context: Any, *gradients: torch.Tensor) -> Any:
                return _move(gradients[0], context.source, None), None, None

        _function_class = Transfer
    return _function_class


def _move(tensor: torch.Tensor, device: torch.device, layout: Tiling | str | None) -> torch.Tensor:
    table = _state.runtime().slices
    target = table.slice_at(_xla.index_of(device))
    table.slice_at(tensor.device.index or 0)  # else a clear error
    if isinstance(layout, tuple):
        _check_tiling(layout, tuple(tensor.shape), len(target.devices))
    settle(tensor)
    token = _xla.binding()._unsafe_buffer_pointer(tensor)
    value = value_of(tensor)
    if len(value.devices) == 1 and len(target.devices) == 1:
        return adopt(native.transfer(token, target.index), tensor, target.index)
    there = _layout_there(value, target, layout)
    (buffer,) = _reshard.move([value], [_reshard.type_there(value, target.index, target.devices, there)])
    return adopt(native.adopt_buffer(buffer, target.index, list(value.dims), there, token), tensor, target.index)


def settle(tensor: torch.Tensor) -> None:
    """Submits what was traced on the device of ``tensor``, so that it is a value there.

    All live tensors of the device, not only this one: else what the backward pass needs later would be computed again
    from the start. It waits for the submission only, after which the buffer has its handle.
    """
    import torch

    torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
    _xla.binding()._xla_sync_live_tensors(_xla.device_name(tensor.device.index or 0), [], True)
    _xla.binding()._xla_sync_multi([tensor], [], True)  # Nothing is left to do, as a rule.


def value_of(tensor: torch.Tensor) -> native.DeviceValue:
    """What a tensor on the devices holds, which must have a value.

    Raises:
        PathwaysError: its value was given up or lost.
    """
    binding = _xla.binding()
    cells = native.asked_cells(lambda: binding._get_tensors_handle([tensor]))
    value = cells[0].value if cells else None
    if value is None:
        raise core.PathwaysError(f"a tensor of shape {tuple(tensor.shape)} was given up by a computation")
    return value


def adopt(token: int, like: torch.Tensor, index: int) -> torch.Tensor:
    """A new tensor on torch's device ``index`` for the value that ``token`` owns, of the shape and type of ``like``."""
    import torch

    native.adopt_next_uploads([token])
    try:
        with keep_untouched()():
            shape = torch.empty(like.shape, dtype=like.dtype)
            (moved,) = _xla.binding()._xla_tensors_from_aten([shape], [_xla.device_name(index)])
    finally:
        native.adopt_next_uploads([])
    result: torch.Tensor = moved
    return result


def _layout_there(value: native.DeviceValue, target: VirtualSlice, layout: Tiling | str | None) -> Tiling | None:
    count, rank = len(target.devices), len(value.dims)
    if count == 1:
        return None
    if isinstance(layout, tuple):
        return layout
    here = value.tiling
    if layout is None and here is not None and len(value.devices) == count and _divides(here, value.dims):
        return here
    cut_now = here is not None and rank > 0 and here[0][0] > 1
    batch: Tiling = ((count, *(1,) * (rank - 1)), tuple(range(count)))
    if layout != COPY and rank > 0 and (layout == BATCH or cut_now) and _divides(batch, value.dims):
        return batch
    return (1,) * rank, (0,) * count


def _check_tiling(tiling: Any, dims: tuple[int, ...], count: int) -> None:
    """Raises ValueError unless a tensor of these dimensions can lie so on so many devices."""
    try:
        parts, tiles = (tuple(core.whole_number(one, "a number") for one in numbers) for numbers in tiling)
        good = len(parts) == len(dims) and len(tiles) == count and min(parts, default=1) > 0
        good = good and all(0 <= tile < math.prod(parts) for tile in tiles)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"layout must be (parts of each dimension, the part of each device) for a tensor of shape {dims} on "
            f"{count} devices, such as {((1,) * len(dims), (0,) * count)}, got {tiling!r}"
        )


def _divides(tiling: Tiling, dims: tuple[int, ...]) -> bool:
    return all(size % parts == 0 for size, parts in zip(dims, tiling[0], strict=True))


@functools.cache
def _plain_to() -> Any:
    import torch

    return torch._C.TensorBase.to


_mode_class: Any = None


def keep_untouched() -> Any:
    """A dispatch mode that lets an upload keep the tensor it was given.

    torch_xla copies what it uploads. Here the tensor is only a shape whose memory is never read, so that copying it
    would cost time for nothing: 180 ms for 64 MiB, against 0.6 ms.
    """
    global _mode_class
    if _mode_class is None:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        class KeepUntouched(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if function is torch.ops.aten._to_copy.default:
                    return args[0]
                return function(*args, **(kwargs or {}))

        _mode_class = KeepUntouched
    return _mode_class
