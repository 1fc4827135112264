"""Batches: trees whose leaves are tensors on the CPU, and their way to the devices."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ptpathways import frontend


class UnevenBatchWarning(UserWarning):
    """Batches cannot be divided over the devices, which then all compute the same."""


def is_host_tensor(value: Any) -> bool:
    """Whether a leaf of a batch is something to upload: a dense tensor on the CPU."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def to_devices(batch: Any, layout: frontend.BatchLayout) -> Any:
    """A batch (a tensor, or any nest of tuples, lists and dicts) with its CPU tensors on the devices; returns at once.

    Each tensor is divided as ``layout`` says; a dimension that cannot be divided evenly is not. What is no tensor
    stays as it is.
    """
    leaves, structure = pytree.tree_flatten(batch)
    places = [index for index, leaf in enumerate(leaves) if is_host_tensor(leaf)]
    tensors = [leaves[index] for index in places]
    if tensors:
        for index, tensor in zip(places, frontend.upload(tensors, layout), strict=True):
            leaves[index] = tensor
    return pytree.tree_unflatten(leaves, structure)


def warn_if_uneven(batch: Any, layout: frontend.BatchLayout) -> None:
    """Warns if the tensors of a batch have a first dimension, and none of them can be divided."""
    rows = [leaf.shape[0] for leaf in pytree.tree_leaves(batch) if is_host_tensor(leaf) and leaf.dim() > 0]
    if rows and layout.parts > 1 and all(count % layout.parts for count in rows):
        warnings.warn(
            f"a batch of {rows[0]} cannot be divided over {layout.parts} devices, so each of them computes all of it; "
            f"use a batch size that is a multiple of {layout.parts}",
            UnevenBatchWarning,
            stacklevel=3,
        )
