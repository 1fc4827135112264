"""Batches: trees whose leaves are tensors on the CPU, and their way to the devices."""

from __future__ import annotations

import warnings
from typing import Any

from torch.nn.utils.rnn import PackedSequence

from ptpathways import frontend


class UnevenBatchWarning(UserWarning):
    """Batches cannot be divided over the devices, which then all compute the same."""


def to_devices(batch: Any, layout: frontend.BatchLayout) -> Any:
    """A batch (a tensor, or any nest of tuples, lists and mappings) with its CPU tensors on the devices.

    Returns at once. Mappings keep their class as ``frontend.flatten_batch`` says.

    Each tensor is divided as ``layout`` says; a dimension that cannot be divided evenly is not. What is no tensor
    stays as it is.
    """
    leaves, make = frontend.flatten_batch(batch)
    places = [index for index, leaf in enumerate(leaves) if frontend.is_host_tensor(leaf)]
    tensors = [leaves[index] for index in places]
    if tensors:
        for index, tensor in zip(places, frontend.upload(tensors, layout), strict=True):
            leaves[index] = tensor
    return make([leaf.to(layout.device) if isinstance(leaf, PackedSequence) else leaf for leaf in leaves])


def warn_if_uneven(batch: Any, layout: frontend.BatchLayout) -> None:
    """Warns if the tensors of a batch have a first dimension, and none of them can be divided."""
    leaves = filter(frontend.is_host_tensor, frontend.flatten_batch(batch)[0])
    rows = [leaf.shape[0] for leaf in leaves if leaf.dim() > 0]
    if rows and layout.parts > 1 and all(count % layout.parts for count in rows):
        warnings.warn(
            f"a batch of {rows[0]} cannot be divided over {layout.parts} devices, so each of them computes all of it; "
            f"use a batch size that is a multiple of {layout.parts}",
            UnevenBatchWarning,
            stacklevel=3,
        )
