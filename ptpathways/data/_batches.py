"""Batches: trees whose leaves are tensors on the CPU, and their way to the devices."""

from __future__ import annotations

import copy
import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ptpathways import frontend


class UnevenBatchWarning(UserWarning):
    """Batches cannot be divided over the devices, which then all compute the same."""


def is_host_tensor(value: Any) -> bool:
    """Whether a leaf of a batch is something to upload: a dense tensor on the CPU."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def flatten(batch: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of a batch, and what makes the same batch of others, given as many in the same order.

    As torch's pytrees, which take a mapping of a class that they do not know (a tokenizer's ``BatchEncoding``, a
    subclass of dict) for a leaf; here its values are looked at. What is made has the same class, if an object of it can
    be copied and takes new values, and otherwise is a dict.
    """
    leaves: list[Any] = []

    def take(value: Any) -> Callable[[Sequence[Any]], Any]:
        parts, structure = pytree.tree_flatten(value)
        makers: list[Callable[[Sequence[Any]], Any]] = []
        for part in parts:
            if isinstance(part, Mapping):
                makers.append(functools.partial(_made, part, {key: take(item) for key, item in part.items()}))
            else:
                makers.append(operator.itemgetter(len(leaves)))
                leaves.append(part)
        return lambda others: pytree.tree_unflatten([make(others) for make in makers], structure)

    return leaves, take(batch)


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


def to_devices(batch: Any, layout: frontend.BatchLayout) -> Any:
    """A batch (a tensor, or any nest of tuples, lists and mappings) with its CPU tensors on the devices.

    Returns at once. Mappings keep their class as ``flatten`` says.

    Each tensor is divided as ``layout`` says; a dimension that cannot be divided evenly is not. What is no tensor
    stays as it is.
    """
    leaves, make = flatten(batch)
    places = [index for index, leaf in enumerate(leaves) if is_host_tensor(leaf)]
    tensors = [leaves[index] for index in places]
    if tensors:
        for index, tensor in zip(places, frontend.upload(tensors, layout), strict=True):
            leaves[index] = tensor
    return make(leaves)


def warn_if_uneven(batch: Any, layout: frontend.BatchLayout) -> None:
    """Warns if the tensors of a batch have a first dimension, and none of them can be divided."""
    rows = [leaf.shape[0] for leaf in flatten(batch)[0] if is_host_tensor(leaf) and leaf.dim() > 0]
    if rows and layout.parts > 1 and all(count % layout.parts for count in rows):
        warnings.warn(
            f"a batch of {rows[0]} cannot be divided over {layout.parts} devices, so each of them computes all of it; "
            f"use a batch size that is a multiple of {layout.parts}",
            UnevenBatchWarning,
            stacklevel=3,
        )
