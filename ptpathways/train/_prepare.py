"""``prepare``: a loop's objects, made to work on all devices, without a change to the loop."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, TypeVar, overload

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ptpathways import frontend
from ptpathways.train._feed import Feed
from ptpathways.train._move import move_module, move_optimizer

T = TypeVar("T")

_hooked: weakref.WeakSet[Optimizer] = weakref.WeakSet()


@overload
def prepare(only: T, /) -> T: ...
@overload
def prepare(first: Any, second: Any, /, *more: Any) -> tuple[Any, ...]: ...
def prepare(*objects: Any) -> Any:
    """Makes modules, optimizers, loaders and schedulers work on all devices of the cluster, data parallel.

    - A **module**'s parameters and buffers move to the devices, a copy on each. They stay the same Python objects, so
      tied weights stay tied, and an optimizer that was built before keeps its parameters.
    - An **optimizer**'s state moves with its parameters; after each ``step()`` the trace is cut.
    - A **loader** (a ``DataLoader``, or anything that can be iterated again and again) becomes a ``Feed``: its
      batches arrive on the devices ahead of use, split along the first dimension. What cannot be split evenly is
      copied to every device: the result is the same, every device computes all of it.
    - A **learning-rate scheduler** is returned as it is.

    The devices compute what one device would compute with the whole batch: a mean is over all of it, batch
    normalisation sees all of it.

    ``torch.manual_seed`` before the first call seeds the devices' random numbers (dropout), too.

    Any number in any order, in several calls if need be; returned in the same order, a single one bare.

    Raises:
        NotInitialized: before ``init``.
        RuntimeAlreadyStarted: devices are already used one by one.
        NotOneIsland: the devices lie on hosts that no collective connects.
        TypeError: an object of none of these kinds.
        RuntimeError: a parameter cannot be replaced in place, because an autograd graph or a weak reference holds it.
    """
    if not objects:
        raise TypeError("prepare() needs at least one module, optimizer, loader or scheduler, got none")
    for thing in objects:
        _check_kind(thing)
    devices = frontend.use_all_devices()
    moved: dict[int, torch.Tensor] = {}
    for thing in objects:
        if isinstance(thing, nn.Module):
            move_module(thing, moved)
    for thing in objects:
        if isinstance(thing, Optimizer):
            move_optimizer(thing, moved)
            _cut_after_each_step(thing)
    prepared = tuple(_wrap(thing, devices) for thing in objects)
    return prepared[0] if len(prepared) == 1 else prepared


def _check_kind(thing: Any) -> None:
    if isinstance(thing, nn.Module | Optimizer | LRScheduler | ReduceLROnPlateau | Feed):
        return
    if isinstance(thing, torch.Tensor | str | bytes | dict) or not isinstance(thing, Iterable):
        raise TypeError(
            "prepare() takes modules, optimizers, loaders and learning-rate schedulers, "
            f"got {type(thing).__module__}.{type(thing).__qualname__}"
        )


def _wrap(thing: Any, devices: int) -> Any:
    if isinstance(thing, nn.Module | Optimizer | LRScheduler | ReduceLROnPlateau | Feed):
        return thing
    return Feed(thing, devices)


def _cut_after_each_step(optimizer: Optimizer) -> None:
    """By a hook: schedulers and others replace ``optimizer.step`` and expect to find what they put there."""
    if optimizer not in _hooked:
        _hooked.add(optimizer)
        optimizer.register_step_post_hook(lambda *unused: frontend.step())
