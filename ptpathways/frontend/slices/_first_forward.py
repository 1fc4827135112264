"""A model's values, there before its first forward pass, so that the first step's computation is that of later ones.

Parameters that were made on the devices (``with pw.device(): model = Net()``) are computed when something needs them,
and PyTorch/XLA makes a scalar of 0, 1 or -1 that was copied to a device (the counter of batch normalisation) a constant
of the first computation. ``prepare`` cuts the trace for that; a loop without it is served here, by a hook for all
modules. It is there only while a model may be new: from when a parameter was registered, or a device was asked for,
until a model runs.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _state
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    from torch import nn

_registered = False
_hook: Any = None
_seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def register() -> None:
    """Expects a model whenever parts of one are made. Idempotent."""
    global _registered
    expect()
    if not _registered:
        from torch.nn.modules.module import register_module_parameter_registration_hook

        _registered = True
        register_module_parameter_registration_hook(_made)


def expect() -> None:
    """The next model that runs may be new."""
    global _hook
    if _hook is None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        _hook = register_module_forward_pre_hook(_before_forward)


def _mark_written(parameter: nn.Parameter) -> None:
    """What is traced of it then is what will be after an optimizer has written it: the backward pass of a first step
    that is cut in two would be given the transposed weights, and no later one."""
    if parameter.requires_grad and parameter.device.type == "xla":
        buffers.count_as_written(parameter)


def _made(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    expect()


def _before_forward(module: nn.Module, unused: Any) -> None:
    import torch

    from ptpathways.frontend.diagnostics import _recompiles
    from ptpathways.frontend.slices import _buffers
    from ptpathways.frontend.xla import _trace, _xla

    if torch.compiler.is_compiling():
        return
    if module not in _seen:
        first = next(itertools.chain(module.parameters(), module.buffers()), None)
        if first is None or first.device.type != "xla" or not _state.is_running() or _trace.tracing():
            return
        if threading.current_thread() is not threading.main_thread():
            return  # what another thread traces cannot be submitted
        _seen.add(module)
        for parameter in module.parameters():
            _mark_written(parameter)
        tensors = [one for one in (*module.parameters(), *module.buffers()) if one.device.type == "xla"]
        if any(_xla.binding()._check_tensor_need_materialization(tensors)):
            with _recompiles.expected():
                _buffers.submit_pending()
    global _hook
    if _hook is not None:
        _hook.remove()
        _hook = None
