"""Moving what a module and an optimizer hold to the devices, without changing which objects they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ptpathways import frontend
from ptpathways.train._guard import check_device
from ptpathways.train._strategy import Placement


def move_module(module: nn.Module, place: Placement, moved: dict[int, torch.Tensor]) -> bool:
    """Moves every parameter and buffer of ``module`` to a slice, and lays it out there; shared ones once.

    Those that are there, perhaps not computed yet, stay the same tensors and are laid out anew if they lie otherwise.
    Those on another slice go from worker to worker.

    Args:
        moved: tensors already moved, by identity; added to.

    Returns:
        Whether something waits for being computed.

    Raises:
        RuntimeError: a tensor cannot be replaced in place; the message says which and why.
        ValueError: a tensor is on the meta device, so it has no values.
        InvalidSharding: a layout does not fit; nothing was moved.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    tilings = [place.tiling(name, tensor) for name, tensor in named]
    for part in module.modules():
        _forget_computed(part)
    pending = False
    for (name, tensor), tiling in zip(named, tilings, strict=True):
        pending |= tensor.device.type == "xla"
        _move_in_place(tensor, name, place.device, tiling, moved)
    return pending


def move_optimizer(optimizer: Optimizer, place: Placement, moved: dict[int, torch.Tensor], stay: bool = False) -> bool:
    """Moves an optimizer's parameters, and the state it may have from a checkpoint.

    A state tensor without dimensions (a step count) stays where the optimizer put it: it is read on the host. One of
    its parameter's shape lies on the slice as the parameter does.
    Options that only say how to compute are set to what is fastest here.

    Args:
        moved: as in ``move_module``.
        stay: parameters that are on any slice, and not in ``moved``, stay as they are.

    Returns:
        Whether something waits for being computed.
    """
    pending = False
    for group in optimizer.param_groups:
        if group.get("fused"):
            frontend.choose_option(optimizer, group, "fused", False)
        for index, parameter in enumerate(group["params"]):
            name = f"parameter {index} of {type(optimizer).__name__}"
            if id(parameter) in moved or (stay and parameter.device.type == "xla"):
                continue
            # Of no module that is given with it, so it has no name that a rule would know.
            unnamed = Placement(place.device, "ddp" if callable(place.strategy) else place.strategy)
            pending |= parameter.device.type == "xla"
            _move_in_place(parameter, name, place.device, unnamed.tiling(name, parameter), moved)
    frontend.take_lists(optimizer)
    for parameter, state in optimizer.state.items():
        tiling = frontend.said_of(parameter) or frontend.layout_of_tensor(parameter)
        for key, value in state.items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                continue
            wanted = tiling if value.shape == parameter.shape else None
            if value.device.type == "cpu":
                (state[key],) = frontend.upload([value.detach()], wanted, parameter.device)
                continue
            if value.device != parameter.device:
                value = state[key] = frontend.transfer(value.detach(), parameter.device, wanted)
            if wanted is not None and frontend.layout_of_tensor(value) != wanted:
                state[key] = anew = value.detach().clone()
                frontend.lay(anew, wanted)
                pending = True
    return pending


def _move_in_place(
    tensor: torch.Tensor, name: str, device: torch.device, tiling: frontend.Tiling, moved: dict[int, torch.Tensor]
) -> None:
    if id(tensor) in moved:
        return
    check_device(tensor, name)
    if tensor.device != device:
        with torch.no_grad():
            there = _on(device, tensor.detach(), tiling)
        if isinstance(tensor, nn.Parameter):
            there = nn.Parameter(there, requires_grad=tensor.requires_grad)
        else:
            there.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            there.grad = _on(device, tensor.grad.detach(), tiling)
        _carry_over(tensor, there)
        try:
            frontend.swap(tensor, there)
        except RuntimeError as error:
            raise RuntimeError(
                f"prepare() cannot move {name} in place: {error}; call prepare() before the model's first forward pass"
            ) from error
    frontend.lay(tensor, tiling)
    moved[id(tensor)] = tensor


def _on(device: torch.device, tensor: torch.Tensor, tiling: frontend.Tiling) -> torch.Tensor:
    """A tensor of the CPU, or of another slice, on this one."""
    if tensor.device.type == "xla":
        return frontend.transfer(tensor, device, tiling)
    (there,) = frontend.upload([tensor], tiling, device)
    return there


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
