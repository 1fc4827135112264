"""Moving what a module and an optimizer hold to the devices, without changing which objects they are."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ptpathways import frontend
from ptpathways.train._guard import check_device


def move_module(module: nn.Module, moved: dict[int, torch.Tensor]) -> bool:
    """Moves every parameter and buffer of ``module`` that is not yet on the devices; shared ones once.

    Those that are there, perhaps not computed yet, stay as their sharding says; where nothing is said, every device
    gets a copy.

    Args:
        moved: tensors already moved, by identity; added to.

    Returns:
        Whether some were there.

    Raises:
        RuntimeError: a tensor cannot be replaced in place; the message says which and why.
        ValueError: a tensor is on the meta device, so it has no values.
    """
    on_devices = False
    for part in module.modules():
        _forget_computed(part)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device.type == "xla" and id(tensor) not in moved:
            frontend.replicate_unless_marked(tensor)
            on_devices = True
        _move_in_place(tensor, name, moved)
    return on_devices


def move_optimizer(optimizer: Optimizer, moved: dict[int, torch.Tensor]) -> None:
    """Moves an optimizer's parameters, and the state it may have from a checkpoint.

    A state tensor without dimensions (a step count) stays where the optimizer put it: it is read on the host. One of
    its parameter's shape lies on the devices as the parameter does.
    Options that only say how to compute are set to what is fastest here.
    """
    for group in optimizer.param_groups:
        # torch's own choice where it knows the device to gain from it: all parameters of a group in one call. Tracing
        # is a third faster, and the numbers are the same.
        if "foreach" in group and group["foreach"] is None and not group.get("differentiable"):
            group["foreach"] = not group.get("capturable")
        if group.get("fused"):
            warnings.warn("fused optimizers exist for CPU and CUDA only; using the same one unfused", stacklevel=3)
            group["fused"] = False
        for index, parameter in enumerate(group["params"]):
            _move_in_place(parameter, f"parameter {index} of {type(optimizer).__name__}", moved)
    for parameter, state in optimizer.state.items():
        sharding = frontend.sharding_of(parameter)
        for key, value in state.items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                continue
            alike = sharding is not None and value.shape == parameter.shape
            if value.device.type == "cpu" and alike:
                state[key] = frontend.upload_as(value.detach(), sharding)
            elif value.device.type == "cpu":
                (state[key],) = frontend.upload([value.detach()])
            elif alike:
                frontend.mark(value, sharding)


def _move_in_place(tensor: torch.Tensor, name: str, moved: dict[int, torch.Tensor]) -> None:
    if id(tensor) in moved or tensor.device.type == "xla":
        return
    check_device(tensor, name)
    with torch.no_grad():
        (uploaded,) = frontend.upload([tensor.detach()])
    if isinstance(tensor, nn.Parameter):
        uploaded = nn.Parameter(uploaded, requires_grad=tensor.requires_grad)
    else:
        uploaded.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        (uploaded.grad,) = frontend.upload([tensor.grad.detach()])
    _carry_over(tensor, uploaded)
    try:
        _swap(tensor, uploaded)
    except RuntimeError as error:
        raise RuntimeError(
            f"prepare() cannot move {name} in place: {error}; call prepare() before the model's first forward pass"
        ) from error
    moved[id(tensor)] = tensor


def _swap(tensor: torch.Tensor, uploaded: torch.Tensor) -> None:
    """``torch.utils.swap_tensors``, also for a tensor with weak references, as recurrent layers hold of their weights.

    torch refuses those because they would see another value. That is what is wanted here.
    """
    if not weakref.getweakrefs(tensor):
        torch.utils.swap_tensors(tensor, uploaded)
        return
    if tensor._use_count() > 1:  # type: ignore[attr-defined]
        raise RuntimeError(f"it is in use {tensor._use_count()} times, such as by an autograd graph")  # type: ignore[attr-defined]
    tensor.__class__, uploaded.__class__ = uploaded.__class__, tensor.__class__
    tensor.__dict__, uploaded.__dict__ = uploaded.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, uploaded)


def _forget_computed(module: nn.Module) -> None:
    """Cuts the graph behind tensors that a module keeps as plain attributes, computed of its parameters.

    ``torch.nn.utils.weight_norm`` keeps one, and computes it anew before each forward pass.
    """
    for name, value in list(vars(module).items()):
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            setattr(module, name, value.detach())


def _carry_over(old: torch.Tensor, new: torch.Tensor) -> None:
    """Gives ``new`` what users hang on a tensor: its class, attributes and hooks. The swap exchanges all of them."""
    if type(new) is not type(old):
        new.__class__ = type(old)
    new.__dict__.update(old.__dict__)
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        value: Any = getattr(old, hooks, None)
        if value:
            setattr(new, hooks, value)
