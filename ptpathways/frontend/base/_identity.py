"""Which object a parameter is, when its module moves to another type of device, or is assigned what was loaded.

torch then puts new parameters in the place of the old ones, one by one: shared ones come apart, and an optimizer that
was made before goes on with the old ones. Here the old objects get the new values.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Places(NamedTuple):
    """A parameter or buffer, and where a module has it."""

    tensor: torch.Tensor
    where: list[tuple[dict[str, Any], str]]


def places(module: torch.nn.Module) -> list[Places]:
    """Those of each parameter and buffer of a module."""
    found: dict[int, Places] = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    found.setdefault(id(tensor), Places(tensor, [])).where.append((table, name))
    return list(found.values())


def part_from(module: torch.nn.Module, others: Iterable[object]) -> None:
    """Parameters of a module that are also somebody else's become objects of its own, with the same values."""
    import torch

    theirs = {id(other) for other in others if isinstance(other, torch.nn.Parameter)}
    for tensor, where in places(module):
        if id(tensor) in theirs:
            own = torch.nn.Parameter(tensor.detach(), tensor.requires_grad)
            for table, name in where:
                table[name] = own


def keep(before: Sequence[Places]) -> None:
    """After a move: each parameter is the object that it was, and each tensor is in all the places where it was."""
    import torch

    replaced: dict[int, torch.Tensor] = {}
    for tensor, where in before:
        table, name = where[0]
        now = table.get(name)
        if now is None or now is tensor:
            continue
        if type(now) is torch.nn.Parameter and type(tensor) is torch.nn.Parameter:
            try:
                swap(tensor, now)
                now = tensor
            except RuntimeError:  # a graph holds it
                replaced[id(tensor)] = now
        for other, its_name in where:
            other[its_name] = now
    if replaced:
        _tell_optimizers(replaced)


def swap(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """``torch.utils.swap_tensors``, also for a tensor with weak references, as recurrent layers hold of their weights.

    torch refuses those because they would see another value. That is what is wanted here.

    Raises:
        RuntimeError: the tensor is in use, such as by an autograd graph.
    """
    import torch

    if not weakref.getweakrefs(tensor):
        torch.utils.swap_tensors(tensor, other)
        return
    count: int = tensor._use_count()  # type: ignore[attr-defined]
    if count > 1:
        raise RuntimeError(f"it is in use {count} times, such as by an autograd graph")
    tensor.__class__, other.__class__ = other.__class__, tensor.__class__
    tensor.__dict__, other.__dict__ = other.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, other)


def _tell_optimizers(replaced: dict[int, torch.Tensor]) -> None:
    """Puts the new parameters, by the ids of the old ones, into every optimizer of the process."""
    import torch

    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.optim.Optimizer):
            continue
        for group in thing.param_groups:
            group["params"][:] = [replaced.get(id(parameter), parameter) for parameter in group["params"]]
        for parameter in [known for known in thing.state if id(known) in replaced]:
            thing.state[replaced[id(parameter)]] = thing.state.pop(parameter)
