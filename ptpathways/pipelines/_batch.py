"""A batch's tensors, as they enter a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ptpathways import core
from ptpathways.frontend import CompiledFunction, Future


def checked(leaves: Sequence[Any]) -> list[Any]:
    """A batch's entries, with arrays as tensors.

    Raises:
        PipelineError: one is neither a tensor with values nor a future nor a plain value.
    """
    found: list[Any] = []
    for leaf in leaves:
        leaf = torch.as_tensor(leaf) if type(leaf).__module__ == "numpy" else leaf
        if isinstance(leaf, Tensor) and (leaf.layout is not torch.strided or leaf.device.type == "meta"):
            kind = "on the meta device, without values" if leaf.device.type == "meta" else str(leaf.layout)
            raise core.PipelineError(f"a batch's tensors must be dense and have values, got one that is {kind}")
        if isinstance(leaf, Future) and not leaf.shape:
            raise core.PipelineError(
                "a future in a batch must have samples as its first dimension, got one of a scalar"
            )
        if not isinstance(leaf, Tensor | Future):
            try:
                hash(leaf)
            except TypeError:
                raise core.PipelineError(
                    f"a batch is of tensors, futures, arrays, numbers, strings and None, got a {type(leaf).__name__}"
                ) from None
        found.append(leaf)
    return found


def samples_of(leaves: Sequence[Any], microbatches: int) -> int:
    """Samples in a microbatch.

    Raises:
        PipelineError: the tensors have different numbers of samples, or the microbatches do not divide them.
    """
    sizes = {int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, Tensor | Future) and len(leaf.shape)}
    if len(sizes) != 1:
        raise core.PipelineError(
            "a batch's tensors must have the same first dimension, the number of samples; got "
            f"{', '.join(map(str, sorted(sizes))) or 'no tensor'}"
        )
    (samples,) = sizes
    if samples == 0:
        raise core.PipelineError(f"a batch must have samples, {microbatches} or a multiple of it, got one of none")
    if samples % microbatches:
        less = samples // microbatches * microbatches
        raise core.PipelineError(
            f"microbatches={microbatches} must divide the batch, got a batch of {samples} samples; use a batch of "
            f"{f'{less} or ' if less else ''}{less + microbatches} samples, or another number of microbatches"
        )
    return samples // microbatches


def kind(leaf: Any) -> Any:
    """What a step is compiled for."""
    return (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, Tensor | Future) else leaf


def shapes(leaves: Sequence[Any]) -> str:
    """Of a batch's tensors, for errors: ``float32[2, 8], int64[2]``."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return ", ".join(f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in tensors)


def example(leaf: Any, samples: int) -> Any:
    """A microbatch's tensor, to export the model with."""
    if isinstance(leaf, Future):
        return torch.zeros(samples, *leaf.shape[1:], dtype=leaf.dtype)
    return leaf[:samples].detach().cpu() if isinstance(leaf, Tensor) and leaf.dim() else leaf


def divided(leaf: Any, microbatches: int) -> Any:
    """A tensor or future as (microbatches, samples, ...)."""
    if isinstance(leaf, Tensor) and leaf.dim():
        return leaf.reshape(microbatches, leaf.shape[0] // microbatches, *leaf.shape[1:])
    if isinstance(leaf, Tensor):  # one number for all
        return leaf.reshape(1).expand(microbatches)
    if isinstance(leaf, Future):
        return _reshaped(leaf, microbatches)
    return leaf


def _reshaped(future: Future, microbatches: int) -> Future:
    shape = (microbatches, future.shape[0] // microbatches, *future.shape[1:])

    def divide(value: Tensor) -> Tensor:
        return value.reshape(shape)

    key = ("pipeline", future.layout, shape)
    function = future.slice.layouts.get(key)
    if function is None:
        function = future.slice.layouts[key] = CompiledFunction(divide, future.slice, name="divide")
    made: Future = function(future)
    return made
