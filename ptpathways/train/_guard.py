"""Mistakes that PyTorch/XLA would answer with a riddle, or not at all; said where they happen, in the user's words.

Nothing of this costs a loop that makes none of them, but for a hook on the outermost module.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ptpathways import core, frontend

_modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
_looked_at: weakref.WeakSet[Optimizer] = weakref.WeakSet()


class NothingTrainedWarning(UserWarning):
    """The first step of an optimizer found a group of parameters without gradients, which it therefore leaves alone.

    Most often the parameters are those of another model: the optimizer was built before the model was copied, rebuilt
    or moved by ``.to()``. Build it from the parameters of the model that is trained.
    """


class IneffectiveAutocastWarning(UserWarning):
    """A model on devices was called under an autocast for another kind of device, which leaves it as it is."""


def check_movable(module: nn.Module) -> None:
    """Checks, before anything is moved, that every tensor of a module can be.

    Raises:
        ValueError: one is on the meta device, so it has no values, or on a device of another kind, such as a GPU.
    """
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        check_device(tensor, name)


def check_device(tensor: torch.Tensor, name: str) -> None:
    """As ``check_movable``, of one tensor."""
    if tensor.device.type == "meta":
        raise ValueError(
            f"prepare() got {name} on the meta device, which has no values; call model.to_empty(device=pw.device()) "
            "and initialise it (reset_parameters(), or load_state_dict()) before"
        )
    if tensor.device.type not in ("cpu", "xla"):
        raise ValueError(
            f"prepare() got {name} on {tensor.device}, which is no device of the cluster; leave the model on the CPU "
            f"(without .to({tensor.device.type!r}), also for batches), or make it with pw.device(): prepare() moves it"
        )


def guard_module(module: nn.Module) -> None:
    """Explains what goes wrong in its forward pass; once however often it is prepared."""
    if module not in _modules:
        _modules.add(module)
        module.register_forward_pre_hook(check_autocast)
        module.register_forward_hook(explain_failure, always_call=True)


def guard_optimizer(optimizer: Optimizer) -> None:
    """Looks at its first step: whether there is something to train."""
    if optimizer not in _optimizers:
        _optimizers.add(optimizer)
        optimizer.register_step_pre_hook(_look_before_step)
        optimizer.register_step_post_hook(_look_after_step)


def _look_before_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The hooks stay: one cannot remove itself while hooks are called."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # the first argument is the optimizer
    if closure is None:
        _look_at_first_step(optimizer)


def _look_after_step(optimizer: Optimizer, *unused: Any) -> None:
    """A closure makes the gradients during the step."""
    _look_at_first_step(optimizer)


def _look_at_first_step(optimizer: Optimizer) -> None:
    if optimizer not in _looked_at:
        _looked_at.add(optimizer)
        check_gradients(optimizer)


def check_gradients(optimizer: Optimizer) -> None:
    """Whether parameters have the gradients of a step.

    Warns (``NothingTrainedWarning``) of a group in which none has, though some want one.

    Raises:
        UntrainedParameters: none has in the whole optimizer, and no prepared module has these parameters.
    """
    empty = []
    for index, group in enumerate(optimizer.param_groups):
        wanting = [parameter for parameter in group["params"] if parameter.requires_grad]
        if wanting and all(parameter.grad is None for parameter in wanting):
            empty.append((index, wanting))
    if not empty:
        return
    known = {id(parameter) for module in _modules for parameter in module.parameters()}
    kind = type(optimizer).__name__
    texts = []
    for index, parameters in empty:
        foreign = sum(id(parameter) not in known for parameter in parameters)
        whose = "" if not foreign else f"; no prepared module has {'them' if foreign == len(parameters) else 'all'}"
        texts.append(
            f"group {index} with {len(parameters)} parameters, the first of shape {tuple(parameters[0].shape)}{whose}"
        )
    what = f"{kind}.step() was called and these parameters have no gradients: {' / '.join(texts)}"
    strangers = not known.intersection(id(parameter) for _, parameters in empty for parameter in parameters)
    if len(empty) == len(optimizer.param_groups) and strangers and known:
        raise core.UntrainedParameters(
            f"{what}. It would train nothing: build the optimizer from the parameters of the model that is called, "
            "after the model was copied, rebuilt or moved with .to()"
        )
    frontend.warn(
        f"{what}. They stay as they are; freeze them (requires_grad_(False)) if that is intended", NothingTrainedWarning
    )


_warned: set[str] = set()


def check_autocast(module: nn.Module, inputs: Any) -> None:
    """A forward hook. Warns (``IneffectiveAutocastWarning``), once for each kind of device."""
    for kind in ("cuda", "cpu"):
        if torch.is_autocast_enabled(kind) and not torch.is_autocast_enabled("xla") and kind not in _warned:
            _warned.add(kind)
            dtype = torch.get_autocast_dtype(kind)
            frontend.warn(
                f"torch.autocast({kind!r}) does nothing for a model on devices, which computes in "
                f"{next((p.dtype for p in module.parameters()), torch.get_default_dtype())}; write "
                f'torch.autocast("xla", dtype={dtype}), or torch.autocast(pw.device().type, ...)',
                IneffectiveAutocastWarning,
            )


def explain_failure(module: nn.Module, inputs: Any, output: Any) -> None:
    """A forward hook that is called when the forward pass failed, too. It must be named, so that it can be pickled."""
    if output is None:
        error = sys.exc_info()[1]
        if isinstance(error, RuntimeError):
            frontend.explain(error, module)
