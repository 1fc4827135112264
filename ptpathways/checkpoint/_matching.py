"""What of a checkpoint goes where: its state set against the objects that are to take it. Nothing is changed here.

For every tensor of an object this finds, or plans, the one that takes it: those that are there keep their identity, and
get new contents; an optimizer that has taken no step gets tensors that lie as their parameters do.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ptpathways.checkpoint import _dtypes, _tree
from ptpathways.checkpoint._save import state_of
from ptpathways.checkpoint._sources import Checkpoint, Source
from ptpathways.core import CheckpointError, PathwaysError

LISTED_MAX = 8


@dataclass(slots=True)
class New:
    """A tensor that is to be made."""

    source: Source
    like: torch.Tensor | None
    """Lies as this one; None: on the CPU."""
    made: torch.Tensor | None = None


@dataclass(slots=True)
class Finish:
    """What an object is told once every tensor has its contents."""

    what: str
    """For an error."""
    do: Callable[[], Any]
    undo: Callable[[], Any]
    """Tells it its state of before, when the tensors have theirs again."""


@dataclass(slots=True)
class Matching:
    """What loading will do."""

    existing: list[tuple[torch.Tensor, Source]] = field(default_factory=list)
    new: list[New] = field(default_factory=list)
    finish: list[Finish] = field(default_factory=list)
    """To be done in order."""
    problems: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """What is returned: plain values."""


def match(
    checkpoint: Checkpoint, objects: dict[str, Any], *, strict: bool, allow_pickle: bool, assume: str | None
) -> Matching:
    """Sets a checkpoint against objects.

    Args:
        assume: the one object that a file of bare tensors is of.
    """
    matching = Matching()
    trees = _trees(checkpoint, objects, assume, matching)
    for name, thing in objects.items():
        if name not in trees:
            continue
        tree = trees[name]
        if isinstance(thing, nn.Module):
            _module(name, thing, tree, checkpoint, matching, strict)
        elif isinstance(thing, torch.Tensor):
            _tensor(name, thing, tree, checkpoint, matching)
        elif callable(getattr(thing, "load_state_dict", None)):
            _stateful(name, thing, tree, checkpoint, matching, allow_pickle)
        else:
            matching.values[name] = _plain(tree, checkpoint, matching, allow_pickle)
    for name, tree in trees.items():
        if name not in objects and name in checkpoint.plain:
            matching.values[name] = _plain(tree, checkpoint, matching, allow_pickle)
    return matching


def _trees(checkpoint: Checkpoint, objects: dict[str, Any], assume: str | None, matching: Matching) -> dict[str, Any]:
    """The state of each object by its name."""
    if checkpoint.objects is None:
        bare = {key: {"$tensor": key} for key in checkpoint.tensors}
        if assume is None:
            raise CheckpointError(
                f"'{checkpoint.path}' holds the tensors of one object, got {', '.join(objects) or 'none'}"
            )
        return {assume: bare}
    trees = checkpoint.objects
    if set(trees) == {""}:  # of torch.save: the state of one object, or a dictionary of several
        whole = trees[""]
        tensors = isinstance(whole, dict) and any(isinstance(v, dict) and "$tensor" in v for v in whole.values())
        if assume is not None and (tensors or not isinstance(whole, dict) or {"state", "param_groups"} <= set(whole)):
            return {assume: whole}
        whole = whole if isinstance(whole, dict) else {}
        trees = {name: whole[key] for name in objects for key in _keys(name, assume) if key in whole}
        trees |= {key: whole[key] for key in checkpoint.plain}
    for name in objects:
        if name not in trees:
            have = ", ".join(sorted(checkpoint.objects[""] if set(checkpoint.objects) == {""} else trees)) or "nothing"
            matching.problems.append(f"it has no {name!r}; it has {have}")
    return trees


def _keys(name: str, assume: str | None) -> list[str]:
    return [name, f"{name}_state_dict", *(["state_dict"] if assume is not None or name == "model" else [])]


def _module(name: str, module: nn.Module, tree: Any, checkpoint: Checkpoint, matching: Matching, strict: bool) -> None:
    tree = _tree.untyped(tree)
    state = dict(module.state_dict(keep_vars=True))
    saved = {path[0]: checkpoint.tensors[key] for path, key in _tree.tensors_in(tree).items() if len(path) == 1}
    extra = {key: item for key, item in tree.items() if key not in saved} if isinstance(tree, dict) else {}
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    covered = {id(tensors[key]) for key in saved if key in tensors}
    missing = [key for key, value in tensors.items() if key not in saved and id(value) not in covered]
    covered_names = {key for key in saved if key in tensors}
    unexpected = [key for key in (*saved, *extra) if key not in state]
    if strict and missing:
        matching.problems.append(f"{name}: missing {_listed(missing)}")
    if strict and unexpected:
        matching.problems.append(f"{name}: unexpected {_listed(unexpected)}")
    shapes = []
    done: set[int] = set()
    for key in saved:
        if key not in covered_names:
            continue
        target, source = tensors[key], saved[key]
        if tuple(target.shape) != source.shape:
            shapes.append(f"{key} {list(source.shape)} in it, {list(target.shape)} here")
        elif id(target) not in done:
            done.add(id(target))
            matching.existing.append((target, source))
    if shapes:
        matching.problems.append(f"{name}: other shapes: {_listed(shapes)}")
    for key in (key for key in extra if key in state):
        owner = module.get_submodule(key.rpartition(".")[0])
        value = _plain(extra[key], checkpoint, matching, False)
        tell = owner.set_extra_state
        what = f"{name}: set_extra_state() of {key.rpartition('.')[0] or 'it'}"
        matching.finish.append(
            Finish(what, functools.partial(tell, value), functools.partial(tell, _mapped(state[key], _itself)))
        )


def _tensor(name: str, target: torch.Tensor, tree: Any, checkpoint: Checkpoint, matching: Matching) -> None:
    found = _tree.tensors_in(tree)
    if list(found) != [()]:
        matching.problems.append(f"{name} is no tensor in it")
        return
    source = checkpoint.tensors[found[()]]
    if source.shape != tuple(target.shape):
        matching.problems.append(f"{name}: {list(source.shape)} in it, {list(target.shape)} here")
        return
    matching.existing.append((target, source))


def _stateful(name: str, thing: Any, tree: Any, checkpoint: Checkpoint, matching: Matching, allow_pickle: bool) -> None:
    try:
        current = state_of(thing)
    except PathwaysError:  # what it has cannot be fetched any more, and loading is the way out of that
        current = {}
    parameters: dict[int, torch.Tensor] = {}
    if isinstance(thing, torch.optim.Optimizer):
        problem = _optimizer_problem(thing, tree, checkpoint, parameters)
        if problem:
            matching.problems.append(f"{name}: {problem}")
            return
    made: dict[str, New] = {}

    def tensor(key: str, path: _tree.Path) -> Any:
        source = checkpoint.tensors[key]
        there = _tree.at(current, path)
        if isinstance(there, torch.Tensor) and tuple(there.shape) == source.shape and there.layout is torch.strided:
            matching.existing.append((there, source))
            return there
        if key not in made:
            parameter = parameters.get(path[1]) if len(path) == 3 and path[0] == "state" else None
            # A step count without dimensions is the host's, unless the optimizer counts on its device.
            counts = parameter is not None and not source.shape and not _capturable(thing, parameter)
            like = None if parameter is None or counts else parameter
            made[key] = New(source, like)
            matching.new.append(made[key])
        return made[key]

    state = _tree.decode(tree, tensor, allow_pickle=allow_pickle)
    if callable(getattr(thing, "check_state_dict", None)):
        try:
            thing.check_state_dict(_mapped(state, _stand_in))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            matching.problems.append(f"{name}: {error if isinstance(error, ValueError) else repr(error)}")
    before = _mapped(current, _itself)
    do, undo = (lambda: thing.load_state_dict(_mapped(state, _made))), (lambda: thing.load_state_dict(before))
    matching.finish.append(Finish(f"{name}: load_state_dict()", do, undo))


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """``value`` with containers of its own, and ``leaf`` of what they hold."""
    if isinstance(value, dict):
        made = copy.copy(value)
        for key, item in value.items():
            made[key] = _mapped(item, leaf)
        return made
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, leaf) for item in value)
    return leaf(value)


def _stand_in(value: Any) -> Any:
    """Something of shape and type of a tensor that is to be made."""
    if not isinstance(value, New):
        return value
    return torch.zeros((), dtype=_dtypes.dtype_of(value.source.dtype)).expand(value.source.shape)


def _itself(value: Any) -> Any:
    return value


def _made(value: Any) -> Any:
    return value.made if isinstance(value, New) else value


def _capturable(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> bool:
    groups = (group for group in optimizer.param_groups if any(one is parameter for one in group["params"]))
    return any(group.get("capturable") for group in groups)


def _optimizer_problem(
    optimizer: torch.optim.Optimizer, tree: Any, checkpoint: Checkpoint, parameters: dict[int, torch.Tensor]
) -> str:
    """Why a state is not of this optimizer, or nothing; fills in its parameters by number."""
    blank = _tree.decode(_tree.without_pickles(tree), lambda key, path: checkpoint.tensors[key], allow_pickle=False)
    try:
        groups = [len(group["params"]) for group in blank["param_groups"]]
        numbers = [number for group in blank["param_groups"] for number in group["params"]]
        states = dict(blank["state"])
    except (KeyError, TypeError):
        return "what it has is no optimizer's state"
    here = [len(group["params"]) for group in optimizer.param_groups]
    if groups != here:
        return f"it has groups of {groups} parameters, and there are {here} here"
    parameters.update(zip(numbers, (p for group in optimizer.param_groups for p in group["params"]), strict=True))
    shapes = []
    for number, slots in states.items():
        for key, source in slots.items() if isinstance(slots, dict) else ():
            mine = tuple(parameters[number].shape)
            # State has its parameter's shape, or another on purpose: then so is its number of dimensions, as a rule.
            if isinstance(source, Source) and len(source.shape) == len(mine) > 0 and source.shape != mine and key in (
                "exp_avg", "exp_avg_sq", "momentum_buffer", "sum", "square_avg", "max_exp_avg_sq", "acc_delta", "prev",
            ):  # fmt: skip
                shapes.append(f"{key} of parameter {number} {list(source.shape)} in it, {list(mine)} here")
    return f"other shapes: {_listed(shapes)}" if shapes else ""


def _plain(tree: Any, checkpoint: Checkpoint, matching: Matching, allow_pickle: bool) -> Any:
    """A value for the caller; its tensors are the client's, and read now: they are no state of the loop."""
    return _tree.decode(tree, lambda key, path: checkpoint.read(checkpoint.tensors[key]), allow_pickle=allow_pickle)


def _listed(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:LISTED_MAX]))
    more = len(names) - LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def dtype_matches(target: torch.Tensor, source: Source) -> bool:
    return target.dtype == _dtypes.dtype_of(source.dtype)
