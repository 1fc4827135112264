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
    """Moves modules, optimizers, loaders and schedulers to a slice, by default all devices of all hosts.

    - A **module**'s parameters and buffers move to the slice and are laid out by ``strategy``. They stay the same
      Python objects, so tied weights stay tied, and an optimizer that was built before keeps its parameters. Parameters
      traced on the devices (``with slice.device: model = Net()``) are computed now; those of another slice are
      transferred from worker to worker. Shardings that were set before (``shard``, ``xs.mark_sharding``, FSDPv2) are
      kept.
    - An **optimizer**'s state moves with its parameters; each ``step()`` ends with a step boundary.
    - A **loader** (a ``DataLoader``, or any other iterable that can be iterated repeatedly) becomes a ``Feed``: its
      batches are uploaded ahead of use, divided along the first dimension, so that a device gets only its part. A
      tensor that cannot be divided evenly is copied to every device: the result is the same, but every device computes
      all of it.
    - A **learning-rate scheduler** is returned as it is.
    - A **function**, the loop's training step or evaluation, becomes a ``CapturedStep`` with ``capture=True``: traced a
      few times, then replayed. Otherwise it is returned as it is.

    Results are, up to rounding, those of one device with the whole batch: a mean covers all of it, and so does batch
    normalisation. ``torch.manual_seed`` before the call also seeds the devices' random numbers (dropout).

    Args:
        objects: any number of these in any order; ``prepare`` may be called several times.
        slice: from ``Cluster.slice``; default: all devices (``device()``). An optimizer that is prepared alone stays
            with its parameters.
        strategy: ``"ddp"``: a replica of each parameter on every device. ``"fsdp"``: each parameter sharded over all
            devices along its largest dimension that they divide; a replica if none is, or if it has fewer than 256
            elements. Or a function ``(name, parameter) -> layout`` as in ``shard``, where None means a replica.
        mesh: a ``ptpathways.sharding.Mesh`` or torch_xla's ``spmd.Mesh`` over the devices of the slice, for loaders
            and layouts; default: torch_xla's global mesh if one is set, else the slice's own axes.
        batch_axis: the mesh axis that divides a batch's first dimension, or a tuple of axes; ``()``: every device gets
            the whole batch. A list has one such entry per dimension, ``["data", "sequence"]``. Default: the axes
            named ``data`` and ``fsdp``, or the slice's only one.
        capture: whether functions among the objects are captured.

    Returns:
        The objects in the same order as a tuple; a single one by itself.

    Raises:
        NotInitialized: before ``init``.
        NotOneIsland: without ``slice``, if the hosts lie in several islands and are not all CPU hosts.
        SliceUnavailable, WrongCluster: the slice was released, or belongs to another cluster.
        InvalidSharding: ``mesh``, ``batch_axis`` or ``strategy`` cannot be used.
        TypeError: an object is of none of these kinds, there is none, or ``capture`` is set without a function.
        ValueError: a parameter is on the meta device, or on a device outside of the cluster; nothing was moved.
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
