"""Calls beside ``pipe.step`` that have no effect, because no gradients come to the CPU: they are warned of."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from ptpathways import core, frontend

_trained: Any = WeakIdKeyDictionary()
"""The parameters of pipelines, each with the optimizer of its pipeline."""
_warned: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""Each optimizer is warned of once."""


def watch(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Warns when ``optimizer`` is stepped, or these parameters' gradients are clipped, though there are none."""
    optimizer.register_step_pre_hook(on_step)
    found = weakref.ref(optimizer)
    for parameter in parameters:
        _trained[parameter] = found
    # Programs import these by name before this runs, so what is replaced is what torch's wrapper of each one calls.
    for function in (nn.utils.clip_grad.clip_grad_norm_, nn.utils.clip_grad.clip_grad_value_):
        wrapper: Any = function
        inside = wrapper.__closure__[wrapper.__code__.co_freevars.index("func")]
        if not hasattr(inside.cell_contents, "of_pipelines"):
            inside.cell_contents = _clipping(inside.cell_contents)
    home: Any = nn.utils
    if home.clip_grad_norm_ is not home.clip_grad.clip_grad_norm_ and not hasattr(home.clip_grad_norm_, "of_pipelines"):
        home.clip_grad_norm_ = _clipping(home.clip_grad_norm_)  # PyTorch/XLA has put its own there


def on_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A hook that is no user's."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if all(one.grad is None for one in parameters):
        _warn(optimizer, "optimizer.step()", "pipe.step() includes the optimizer's step")


def _clipping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = parameters if isinstance(parameters, Tensor) else list(parameters)
        tensors = [given] if isinstance(given, Tensor) else given
        owner = next((_trained[one] for one in tensors if one in _trained), None)
        if owner is not None and owner() is not None and all(one.grad is None for one in tensors):
            _warn(
                owner(), f"{original.__name__}()", "pw.pipeline(clip_grad_norm=...) clips the gradients of all stages"
            )
        return original(given, *args, **kwargs)

    clip.of_pipelines = True  # type: ignore[attr-defined]
    return clip


def _warn(optimizer: torch.optim.Optimizer, call: str, why: str) -> None:
    if optimizer not in _warned:
        _warned.add(optimizer)
        frontend.warn(
            f"{call} of what a pipeline trains has no effect, because its gradients stay on the slices: {why}; leave "
            "it out",
            core.PipelineWarning,
        )
