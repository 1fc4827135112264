"""An optimizer's state, made before its first step, so that this step's computation is that of all later ones.

Optimizers make their state inside their first step. PyTorch/XLA would compile that step with the zeros built in, and
the second one, whose state is an input, again. Here the state is there when the first step is traced: its values are
computed by a small program of their own.

Only what is equal bit for bit is done, and nothing is known of an optimizer but its code:

- Optimizers of torch make state in ``_init_group``, for every parameter that has a gradient and no state. The step
  calls it; here it is called right before, with the same gradients.
- SGD keeps a copy of the first gradient as its momentum. With a buffer of -0.0 and no dampening it computes
  ``momentum * -0.0 + gradient``, which is the gradient, whatever that is: IEEE 754 adds -0.0 to every number, zeros and
  nan among them, without a change. (XLA's arithmetic takes subnormal numbers for zeros. So it does with the copy, too,
  whenever that is used.)
- State that was made with the optimizer (Adagrad) and not computed yet is computed.

Any other optimizer makes its state as it always did, and its second step compiles again.
"""

from __future__ import annotations

import functools
import inspect
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _state
from ptpathways.frontend.diagnostics import _recompiles
from ptpathways.frontend.loops import _optimizer_lists, _optimizer_options
from ptpathways.frontend.slices import _mesh, _shard
from ptpathways.frontend.xla import _trace, _xla

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_registered = False
_seen: weakref.WeakSet[Any] = weakref.WeakSet()
_whole: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""Optimizers whose parameters all had a gradient at a step, with how many they were and how many had state then."""
_moves = 0
"""How often modules have been moved, or converted."""
_together: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Optimizers whose state is where their parameters are, with ``_moves`` when that was looked at."""


def register() -> None:
    """Has every optimizer looked at before its steps. Idempotent."""
    global _registered
    if not _registered:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        _registered = True
        register_optimizer_step_pre_hook(before_step)


def before_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """The hook of all optimizers, which makes the state of those whose first step on devices this is.

    Returns:
        The step's arguments where its closure computes the gradients: then the state is made after that.
    """
    import torch

    if torch.compiler.is_compiling():
        return None
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    if not _state.is_running() or _trace.tracing():
        return None
    if _optimizer_lists.is_on_devices(optimizer):
        _optimizer_lists.take_lists(optimizer)
    if _together.get(optimizer) != _moves:
        _put_together(optimizer)
        _together[optimizer] = _moves
    if _whole.get(optimizer) == (count, len(optimizer.state)):
        return None
    with_closure = after_closure(args, kwargs, lambda: _prepare(optimizer, count))
    if with_closure is None:
        _prepare(optimizer, count)
    return with_closure


def after_closure(args: tuple[Any, ...], kwargs: dict[str, Any], then: Callable[[], None]) -> Arguments | None:
    """The arguments of an optimizer's step with a closure that does ``then`` when it has computed the gradients; None
    where there is no closure."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if closure is None:
        return None

    @functools.wraps(closure)
    def followed() -> Any:
        loss = closure()
        then()
        return loss

    return (args, kwargs | {"closure": followed}) if "closure" in kwargs else ((args[0], followed, *args[2:]), kwargs)


def _prepare(optimizer: Optimizer, count: int) -> None:
    import torch

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    trained = [one for one in parameters if one.grad is not None and one.device.type == "xla"]
    fresh = [one for one in trained if not optimizer.state.get(one)]
    if not fresh and optimizer in _seen:
        return
    with torch.no_grad():
        if fresh:
            _make(optimizer, fresh)
        _compute(optimizer, fresh)
    if trained:
        _seen.add(optimizer)
    if len(trained) == count:
        _whole[optimizer] = (count, len(optimizer.state))


def modules_moved() -> None:
    """Parameters may be elsewhere now than the state of their optimizers."""
    global _moves
    _moves += 1


def _put_together(optimizer: Optimizer) -> None:
    """Moves state to parameters that have been moved after it was made, or loaded; as ``load_state_dict`` does."""
    torchs = _optimizer_lists.is_torchs(optimizer, "step")
    if torchs:
        _optimizer_options.count_on_the_client([optimizer], _is_on_the_cpu)
    counts_follow = _with_counts_on_devices(optimizer) if torchs else set()
    for parameter, held in optimizer.state.items():
        for key in _apart(parameter, held, torchs, id(parameter) in counts_follow):
            held[key] = held[key].to(parameter.device)


def _is_on_the_cpu(group: dict[str, Any]) -> bool:
    return all(parameter.device.type == "cpu" for parameter in group["params"])


def _with_counts_on_devices(optimizer: Optimizer) -> set[int]:
    """The parameters of torch's own optimizers whose numbers of steps, and the like, are tensors on their device:
    elsewhere they are on the CPU, wherever the parameter is."""
    import torch

    return {
        id(parameter)
        for group in optimizer.param_groups
        if isinstance(optimizer, torch.optim.ASGD) or group.get("fused") or group.get("capturable")
        for parameter in group["params"]
    }


def _apart(parameter: Any, held: Any, torchs: bool, counts_follow: bool) -> list[str]:
    """The state that is on the CPU while its parameter is on a device, or the other way round; of torch's own
    optimizers also what is on another slice: they compute with all of it on one device."""
    import torch

    if not isinstance(parameter, torch.Tensor) or not isinstance(held, dict):
        return []
    found = []
    for key, value in held.items():
        if not isinstance(value, torch.Tensor) or value.device == parameter.device:
            continue
        kinds = {parameter.device.type, value.device.type}
        if (kinds == {"cpu", "xla"} and (value.dim() > 0 or counts_follow)) or (kinds == {"xla"} and torchs):
            found.append(key)
    return found


def _make(optimizer: Optimizer, fresh: Sequence[torch.Tensor]) -> None:
    """Makes the state of these parameters as the optimizer's own step would, where that is known."""
    import torch

    if not (_optimizer_lists.is_torchs(optimizer, "step") and _optimizer_lists.is_torchs(optimizer, "_init_group")):
        return
    if isinstance(optimizer, torch.optim.SGD):
        _make_momentum(optimizer, fresh)
        return
    make: Any = optimizer._init_group  # type: ignore[attr-defined]
    lists = len(inspect.signature(make).parameters) - 1
    for group in optimizer.param_groups:
        make(group, *([] for _ in range(lists)))  # it gathers what has a gradient in the lists, and the step will again


def _make_momentum(optimizer: Optimizer, fresh: Sequence[torch.Tensor]) -> None:
    import torch

    wanted = set(map(id, fresh))
    for group in optimizer.param_groups:
        momentum = group["momentum"]
        if not isinstance(momentum, float | int) or not 0 < momentum < math.inf or group["dampening"] != 0:
            continue
        if group.get("differentiable"):
            continue  # the copy has no history, and what is added to a buffer has
        for parameter in group["params"]:
            gradient = parameter.grad
            if id(parameter) not in wanted or gradient.is_sparse or not parameter.is_floating_point():
                continue
            optimizer.state[parameter]["momentum_buffer"] = torch.full_like(gradient, -0.0)


def _compute(optimizer: Optimizer, fresh: Sequence[torch.Tensor]) -> None:
    """Submits what the state on devices needs, if that has not happened, and nothing else; waits for nothing."""
    new = set(map(id, fresh))
    chosen: dict[torch.device, list[torch.Tensor]] = {}
    for parameter, value in _tensors(optimizer):
        if id(parameter) in new:
            tiling = _shard.said_of(parameter) or _mesh.layout_of_tensor(parameter)
            if tiling is not None and value.shape == parameter.shape:
                _shard.lay(value, tiling)  # as the optimizer's arithmetic would have laid it
        elif optimizer in _seen or not _xla.binding()._check_tensor_need_materialization([value])[0]:
            continue  # what a step has traced is computed with all of that step, which needs the same memory
        chosen.setdefault(value.device, []).append(value)
    for values in chosen.values():
        with _recompiles.expected():
            _xla.binding()._xla_sync_multi(values, [], False)


def _tensors(optimizer: Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters with each tensor on devices of their state."""
    import torch

    for parameter, held in list(optimizer.state.items()):
        if isinstance(parameter, torch.Tensor) and isinstance(held, dict):
            for value in held.values():
                if isinstance(value, torch.Tensor) and value.device.type == "xla":
                    yield parameter, value
