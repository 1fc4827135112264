"""Batches as trees: their leaves, and the same batch of other leaves."""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def is_host_tensor(value: Any) -> bool:
    """Whether a leaf of a batch is something to upload: a dense tensor on the CPU."""
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def flatten_batch(batch: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of a batch, and what makes the same batch of others, given as many in the same order.

    As torch's pytrees, which take a mapping of a class that they do not know (a tokenizer's ``BatchEncoding``, a
    subclass of dict) for a leaf; here its values are looked at, and so are the fields of data classes. What is made has
    the same class, if an object of it can be copied and takes new values, and otherwise is a dict. A ``PackedSequence``
    is a leaf.
    """
    leaves: list[Any] = []
    return leaves, _take(batch, leaves)


def _take(value: Any, leaves: list[Any]) -> Callable[[Sequence[Any]], Any]:
    """Adds the leaves of ``value``. No function in a function: one that calls itself would be a cycle, which would keep
    a batch on the devices until the garbage is collected."""
    from torch.utils import _pytree as pytree

    parts, structure = pytree.tree_flatten(value, is_leaf=_is_packed)
    makers: list[Callable[[Sequence[Any]], Any]] = []
    for part in parts:
        if isinstance(part, Mapping):
            makers.append(functools.partial(_made, part, {key: _take(item, leaves) for key, item in part.items()}))
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            names = [one.name for one in dataclasses.fields(part) if hasattr(part, one.name)]
            first = len(leaves)
            fields = {name: _take(getattr(part, name), leaves) for name in names}
            makers.append(functools.partial(_record, part, fields, first, leaves[first:]))
        else:
            makers.append(operator.itemgetter(len(leaves)))
            leaves.append(part)
    return lambda others: pytree.tree_unflatten([make(others) for make in makers], structure)


def _is_packed(part: Any) -> bool:
    from torch.nn.utils.rnn import PackedSequence

    return isinstance(part, PackedSequence)


def _made(like: Any, makers: dict[Any, Callable[[Sequence[Any]], Any]], others: Sequence[Any]) -> Any:
    items = {key: make(others) for key, make in makers.items()}
    if all(items[key] is value for key, value in like.items()):
        return like
    try:
        made = copy.copy(like)
        if getattr(like, "__dict__", None) is like:  # whose items are its attributes, too
            made.__dict__ = made
        for key, value in items.items():
            made[key] = value
        if made is not like and all(made[key] is value for key, value in items.items()):
            return made
    except Exception:  # it cannot be copied, or takes no values: whatever its class says then
        pass
    return items


def _record(
    like: Any, makers: dict[str, Callable[[Sequence[Any]], Any]], first: int, leaves: list[Any], others: Sequence[Any]
) -> Any:
    """``leaves``: those of ``like``, of which the first has the place ``first``."""
    if all(other is leaf for other, leaf in zip(others[first:], leaves, strict=False)):
        return like
    made = copy.copy(like)
    for name, make in makers.items():
        object.__setattr__(made, name, make(others))  # it may be frozen
    return made
