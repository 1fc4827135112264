"""Buckets: batches of varying length, padded to a few lengths, so that a few computations serve them all."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from ptpathways import core

Sizes = Sequence[int] | Literal["pow2"]
PadValue = float | Mapping[Any, float]


def bucket(batch: Any, dim: int = 1, sizes: Sizes = "pow2", pad_value: PadValue = 0, mask: bool | str = False) -> Any:
    """Pads the tensors of ``batch`` on the right along ``dim`` to the next of a few sizes, to limit recompilations.

    The first tensor that has the dimension gives the length; those of the same length along ``dim`` are padded, others
    are kept. With ``dim=0``, the added rows count in a mean: use the mask.

    Args:
        batch: a tensor, or any nest of tuples, lists and dictionaries. Another mapping comes back as a dictionary.
        dim: the dimension to pad, from 0, or from the end if negative.
        sizes: the allowed sizes, positive integers; ``"pow2"``: the powers of two.
        pad_value: value of the padding. Or values by key or position of ``batch``, such as
            ``{"input_ids": 0, "labels": -100}``: entries without one get 0.
        mask: whether to add a bool tensor that is True where the batch had values, of shape [rows, padded length], or
            [padded length] for ``dim=0``. A dictionary gets it under this name, or with True under ``"mask"`` unless it
            has that key. A tuple or list gets one more element; a tensor becomes a pair of both.

    Returns:
        The batch with padded tensors, of the same dtypes.

    Raises:
        ValueError: the batch is longer than the largest size, no tensor has the dimension, ``sizes`` cannot be used,
            ``pad_value`` names a part that the batch does not have or is not a value of a tensor's dtype, or the batch
            already has a key of the mask's name.
        TypeError: a mask cannot be added to a batch of this kind, or an argument has the wrong type.
    """
    dim = core.whole_number(dim, "dim")
    sizes = check_sizes(sizes)
    _check_pad_value(pad_value)
    _check_mask(mask)
    if isinstance(mask, str) and isinstance(batch, Mapping) and mask in batch:
        raise ValueError(
            f"mask={mask!r} names a key that the batch has, which is {', '.join(map(repr, batch))}; give the mask "
            "another name, or leave mask out where the batch has its own"
        )
    if isinstance(batch, Mapping) and type(batch) not in pytree.SUPPORTED_NODES:
        batch = dict(batch)  # such as a tokenizer's
    first = next((leaf for leaf in pytree.tree_leaves(batch) if _has(leaf, dim)), None)
    if first is None:
        raise ValueError(f"bucket() pads along dimension {dim}, and no tensor of the batch has it")
    length = first.shape[dim]
    padded = bucket_size(length, sizes)

    def pad(leaf: Any, value: float) -> Any:
        if not _has(leaf, dim) or leaf.shape[dim] != length or padded == length:
            return leaf
        shape = list(leaf.shape)
        shape[dim] = padded - length
        return torch.cat([leaf, _filled(leaf, shape, value)], dim)

    made = _by_part(batch, pad, pad_value)
    return _with_mask(made, _mask(first, dim, length, padded), mask) if mask else made


def bucketed(
    collate_fn: Callable[[Any], Any] | None = None,
    *,
    dim: int = 1,
    sizes: Sizes = "pow2",
    pad_value: PadValue = 0,
    mask: bool | str = False,
) -> Callable[[Any], Any]:
    """Returns a ``collate_fn`` for a ``DataLoader`` that pads the batch of ``collate_fn`` as ``bucket`` does.

        loader = DataLoader(dataset, batch_size=32, collate_fn=pw.bucketed(sizes=[64, 128, 256]))

    It can be pickled if ``collate_fn`` can, so loaders may have worker processes.

    Args:
        collate_fn: makes a batch of a list of samples; default: torch's ``default_collate``.
        dim: as in ``bucket``, as are ``sizes``, ``pad_value`` and ``mask``.

    Raises:
        TypeError, ValueError: an argument cannot be used, as in ``bucket``.
    """
    sizes = check_sizes(sizes)
    core.whole_number(dim, "dim")
    _check_pad_value(pad_value)
    _check_mask(mask)
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(f"pw.bucketed takes a function that makes a batch of samples, got {collate_fn!r}")
    collate = torch.utils.data.default_collate if collate_fn is None else collate_fn
    return functools.partial(_collate, collate, dim=dim, sizes=sizes, pad_value=pad_value, mask=mask)


def bucket_size(length: int, sizes: Sizes = "pow2") -> int:
    """The least of ``sizes`` that holds ``length``. Raises as ``bucket``."""
    sizes = check_sizes(sizes)
    if isinstance(sizes, str):
        return 1 << max(length - 1, 0).bit_length()
    fitting = [size for size in sizes if size >= length]
    if not fitting:
        raise ValueError(
            f"a batch of length {length} does not fit into the largest bucket, {max(sizes)}; cut it, or give a larger "
            "size"
        )
    return min(fitting)


def check_sizes(sizes: Any) -> Sizes:
    """The sizes of buckets, as ints.

    Raises:
        TypeError: they are neither a text nor a list.
        ValueError: they are none.
    """
    required = 'sizes must be "pow2" or some positive integers'
    if isinstance(sizes, str):
        if sizes != "pow2":
            raise ValueError(f"{required}, got {sizes!r}")
        return "pow2"
    if isinstance(sizes, bytes) or not isinstance(sizes, Iterable):
        raise TypeError(f"{required}, got {sizes!r}")
    given = tuple(sizes)
    try:
        found = tuple(core.whole_number(size, "a size", least=1) for size in given)
    except (TypeError, ValueError):
        found = ()
    if not found:
        raise ValueError(f"{required}, got {list(given)!r}")
    return found


def _check_pad_value(value: Any) -> None:
    for one in value.values() if isinstance(value, Mapping) else (value,):
        if not isinstance(one, numbers.Number):
            raise TypeError(f"pad_value must be a number, or numbers by key or position, got {value!r}")


def _check_mask(mask: Any) -> None:
    if not isinstance(mask, bool) and not (isinstance(mask, str) and mask):
        raise TypeError(f"mask must be True, False or the name that a dictionary gets it under, got {mask!r}")


def _filled(like: torch.Tensor, shape: list[int], value: float) -> torch.Tensor:
    integers = not like.is_floating_point() and not like.is_complex()
    try:
        if not integers or value == int(value):
            return like.new_full(shape, value)
    except (RuntimeError, OverflowError, TypeError, ValueError):
        pass
    raise ValueError(
        f"pad_value {value!r} is no value of a tensor of {like.dtype}; give one by key or position for each"
    )


def _collate(collate: Callable[[Any], Any], samples: Any, **options: Any) -> Any:
    return bucket(collate(samples), **options)


def _has(leaf: Any, dim: int) -> bool:
    return isinstance(leaf, torch.Tensor) and -leaf.dim() <= dim < leaf.dim()


def _by_part(batch: Any, pad: Callable[[Any, float], Any], value: PadValue) -> Any:
    """Each part of the batch padded with its own value."""
    if not isinstance(value, Mapping):
        return pytree.tree_map(lambda leaf: pad(leaf, value), batch)
    if not isinstance(batch, torch.Tensor) and isinstance(batch, Mapping | tuple | list):
        parts_of = batch if isinstance(batch, Mapping) else range(len(batch))
        if unknown := [key for key in value if key not in parts_of]:
            raise ValueError(f"pad_value names {unknown[0]!r}, and the batch has {', '.join(map(repr, parts_of))}")
    if isinstance(batch, Mapping):
        return {key: _by_part(part, pad, value.get(key, 0)) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_by_part(part, pad, value.get(at, 0)) for at, part in enumerate(batch)]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    raise TypeError(f"pad_value by key is for dictionaries, tuples and lists, got a {type(batch).__name__}")


def _mask(first: torch.Tensor, dim: int, length: int, padded: int) -> torch.Tensor:
    row = torch.arange(padded) < length
    at = dim % first.dim()
    return row if at == 0 else row.expand(first.shape[0], padded).clone()


def _with_mask(batch: Any, mask: torch.Tensor, name: bool | str) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch, mask
    if isinstance(batch, Mapping):
        key = name if isinstance(name, str) else "mask"
        if key in batch:
            return batch
        return {**batch, key: mask}
    if type(batch) in (tuple, list):
        return type(batch)([*batch, mask])
    raise TypeError(f"a mask can be added to tensors, dictionaries, tuples and lists, got a {type(batch).__name__}")
