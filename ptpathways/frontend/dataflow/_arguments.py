"""What a function or program was called with: the tensors, and the rest, which is part of what is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways.frontend.base import _state
from ptpathways.frontend.slices._future import Future
from ptpathways.frontend.xla import _dtypes
from ptpathways.frontend.xla._trace import TensorSpec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Static:
    """A leaf that is no tensor: an integer, a text, None, a function... Equal when type and value are."""

    kind: type
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class HostValue:
    """A tensor of this process, to be uploaded."""

    tensor: torch.Tensor
    spec: TensorSpec


def flatten(tree: Any, *, lists: bool = True) -> tuple[list[Any], Any]:
    """Leaves and structure. With ``lists``, lists of numbers are leaves: they become tensors."""
    from torch.utils import _pytree

    return _pytree.tree_flatten(tree, is_leaf=_is_number_list if lists else None)


def unflatten(leaves: Sequence[Any], structure: Any) -> Any:
    from torch.utils import _pytree

    return _pytree.tree_unflatten(list(leaves), structure)


def leaf(value: Any, where: Callable[[], str]) -> Any:
    """A ``Future`` as it is or of a tensor on a slice, a ``HostValue``, or a ``Static``.

    A float is a tensor of type f32, and so are nested lists of floats; integers in lists are s64. ``where`` names the
    leaf in messages.

    Raises:
        TypeError: a static argument that cannot be compared, or a tensor that cannot go to a device.
    """
    if isinstance(value, Future):
        return value
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise TypeError(f"{where()} must be a dense tensor, got layout {value.layout}")
        if value.device.type == "xla" and _state.runtime().connection is not None:
            from ptpathways.frontend.slices import _exchange

            return _exchange.as_future(value)
        return host_value(value.detach() if value.device.type == "cpu" else value.detach().cpu())
    if isinstance(value, float):
        return host_value(torch.tensor(value, dtype=torch.float32))
    if isinstance(value, np.ndarray | np.generic):
        return host_value(torch.from_numpy(np.array(value)))
    if isinstance(value, list):
        return host_value(torch.tensor(value))
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{where()} is a {type(value).__name__}, which is neither a tensor nor hashable: tensors, arrays, floats "
            "and lists of numbers are passed as values, everything else becomes part of the compiled function and is "
            "compared by its hash"
        ) from None
    return Static(type(value), value)


def host_value(tensor: torch.Tensor) -> HostValue:
    """Of a CPU tensor. Raises TypeError for an element type that devices have not."""
    return HostValue(tensor, TensorSpec(tuple(tensor.shape), _dtypes.name_of(tensor.dtype)))


def is_array(value: Any) -> bool:
    """Whether ``value`` is a tensor or an array of this process."""
    import torch

    return isinstance(value, torch.Tensor | np.ndarray | np.generic)


def _is_number_list(value: Any) -> bool:
    """A non-empty list of numbers, or of such lists."""
    if type(value) is not list or not value:
        return False
    return all(isinstance(item, int | float) or _is_number_list(item) for item in value)
