"""``prepare``: a loop's objects, made to work on a slice, without a change to the loop."""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, overload

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ptpathways import core, frontend
from ptpathways.data import Feed, prepared
from ptpathways.train._guard import check_movable, guard_module, guard_optimizer
from ptpathways.train._move import move_module, move_optimizer
from ptpathways.train._steps import captured, check_given, is_step
from ptpathways.train._strategy import Placement, Strategy, check_strategy

T = TypeVar("T")

_hooked: weakref.WeakSet[Optimizer] = weakref.WeakSet()


@overload
def prepare(
    only: T,
    /,
    *,
    slice: frontend.VirtualSlice | None = None,
    strategy: Strategy = "ddp",
    mesh: Any = None,
    batch_axis: Any = None,
    capture: Literal[False] = False,
) -> T: ...
@overload
def prepare(
    only: Any,
    /,
    *,
    slice: frontend.VirtualSlice | None = None,
    strategy: Strategy = "ddp",
    mesh: Any = None,
    batch_axis: Any = None,
    capture: bool,
) -> Any: ...
@overload
def prepare(
    first: Any,
    second: Any,
    /,
    *more: Any,
    slice: frontend.VirtualSlice | None = None,
    strategy: Strategy = "ddp",
    mesh: Any = None,
    batch_axis: Any = None,
    capture: bool = False,
) -> tuple[Any, ...]: ...
def prepare(
    *objects: Any,
    slice: frontend.VirtualSlice | None = None,
    strategy: Strategy = "ddp",
    mesh: Any = None,
    batch_axis: Any = None,
    capture: bool = False,
) -> Any:
    """Makes modules, optimizers, loaders and schedulers work on a slice, by default on all devices of all hosts.

    - A **module**'s parameters and buffers move to the slice and lie there as ``strategy`` says. They stay the same
      Python objects, so tied weights stay tied, and an optimizer that was built before keeps its parameters. Parameters
      made on the devices (``with slice.device: model = Net()``) are computed there now; those of another slice come
      from its hosts. What was said of them before (``pw.shard``, ``xs.mark_sharding``, FSDPv2) is kept.
    - An **optimizer**'s state moves with its parameters; after each ``step()`` the trace is cut.
    - A **loader** (a ``DataLoader``, or anything that can be iterated again and again) becomes a ``Feed``: its
      batches arrive on the devices ahead of use, divided along the first dimension: a device is sent only its part.
      What cannot be divided evenly is copied to every device: the result is the same, every device computes all of it.
    - A **learning-rate scheduler** is returned as it is.
    - A **function**, the loop's training step or evaluation, becomes a captured step (``program(kind="step")``) with
      ``capture=True``: traced a few times, then replayed. Without it, it is returned as it is.

    The devices compute what one device would compute with the whole batch: a mean is over all of it, batch
    normalisation sees all of it. Wherever values lie, results are the same up to rounding.

    ``torch.manual_seed`` before the call seeds the devices' random numbers (dropout), too.

    Any number in any order, in several calls if need be; returned in the same order, a single one bare.

    Args:
        slice: from ``cluster.slice``; default: all devices (``pw.device()``). An optimizer that is prepared alone stays
            with its parameters.
        strategy: ``"ddp"``: a copy of each parameter on every device; ``"fsdp"``: of each parameter the largest
            dimension that divides is cut over all devices, and what is small (less than 256 elements) copied; or a
            function ``(name, parameter) -> layout`` as in ``pw.shard``, where None means a copy.
        mesh: a ``ptpathways.sharding.Mesh`` or torch_xla's ``spmd.Mesh`` over the devices of the slice, for loaders
            and rules; default: torch_xla's global mesh if one is set, else the slice's own axes.
        batch_axis: the mesh axis that divides a batch's first dimension, or a tuple of axes; ``()``: every device gets
            the whole batch. A list has one such entry per dimension, ``["data", "sequence"]``. Default: the axes
            named ``data`` and ``fsdp``, or the slice's only one.
        capture: whether functions among the objects are captured.

    Raises:
        NotInitialized: before ``init``.
        SliceUnavailable, WrongCluster: the slice was released, or is of another cluster.
        InvalidSharding: ``mesh``, ``batch_axis`` or ``strategy`` cannot be used.
        TypeError: an object of none of these kinds; ``capture`` without a function.
        ValueError: a parameter on the meta device, or on a device that is not of the cluster; nothing was moved.
        RuntimeError: a parameter cannot be replaced in place, because an autograd graph holds it.
    """
    if not objects:
        raise TypeError("prepare() needs at least one module, optimizer, loader or scheduler, got none")
    check_strategy(strategy)
    core.check_switch(capture, "capture")
    for thing in objects:
        _check_kind(thing)
        if isinstance(thing, nn.Module):
            check_movable(thing)
    if capture:
        check_given(objects)
    if slice is not None and not isinstance(slice, frontend.VirtualSlice):
        raise TypeError(f"slice must be a slice from cluster.slice(), got {slice!r}")
    place = Placement(frontend.device() if slice is None else slice.device, strategy, mesh)
    layout = None
    if mesh is not None or batch_axis is not None or any(_is_loader(thing) for thing in objects):
        layout = frontend.batch_layout(mesh, batch_axis, slice)
    moved: dict[int, torch.Tensor] = {}
    pending = False
    for thing in objects:
        if isinstance(thing, nn.Module):
            pending |= move_module(thing, place, moved)
            guard_module(thing)
    for thing in objects:
        if isinstance(thing, Optimizer):
            pending |= move_optimizer(thing, place, moved, stay=slice is None)
            _cut_after_each_step(thing)
            guard_optimizer(thing)
    if any(isinstance(thing, nn.Module | Optimizer) for thing in objects):
        frontend.begin_warm_up()
    if pending:
        frontend.step()  # The first training step's computation is then the same as the later ones'.
    result = tuple(prepared(thing, layout) if layout is not None and _is_loader(thing) else thing for thing in objects)
    if capture:
        result = tuple(captured(thing) for thing in result)
    return result[0] if len(result) == 1 else result


def _check_kind(thing: Any) -> None:
    if not _is_loader(thing):
        return
    if isinstance(thing, tuple | list) and any(isinstance(one, nn.Module | Optimizer) for one in thing):
        raise TypeError(
            f"prepare() takes its objects one by one, got a {type(thing).__name__} of them; write prepare(*objects)"
        )
    if _are_parameters(thing):
        raise TypeError(
            f"prepare() takes the module itself and its optimizer, got parameters (a {type(thing).__name__}); write "
            "prepare(model, optimizer)"
        )
    if isinstance(thing, torch.Tensor | str | bytes | dict | type) or not isinstance(thing, Iterable):
        raise TypeError(
            "prepare() takes modules, optimizers, loaders, learning-rate schedulers and step functions, "
            f"got {type(thing).__module__}.{type(thing).__qualname__}"
        )


def _are_parameters(thing: Any) -> bool:
    """``model.parameters()``, ``model.named_parameters()``, or a list of what they give."""
    if isinstance(thing, types.GeneratorType):
        code = thing.gi_code
        return code in (nn.Module.parameters.__code__, nn.Module.named_parameters.__code__)
    first = thing[0] if isinstance(thing, tuple | list) and thing else None
    if isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], str):
        first = first[1]
    return isinstance(first, nn.Parameter)


def _is_loader(thing: Any) -> bool:
    known = isinstance(thing, nn.Module | Optimizer | LRScheduler | ReduceLROnPlateau | Feed)
    return not known and not is_step(thing)


def _cut_after_each_step(optimizer: Optimizer) -> None:
    """By a hook: schedulers and others replace ``optimizer.step`` and expect to find what they put there."""
    if optimizer not in _hooked:
        _hooked.add(optimizer)
        optimizer.register_step_post_hook(_cut)


def _cut(optimizer: Optimizer, *unused: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        frontend.step()
        return
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    frontend.step(*{parameter.device for parameter in parameters if parameter.device.type == "xla"})
