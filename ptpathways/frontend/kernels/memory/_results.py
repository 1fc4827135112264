"""Tensors that are given for a result (``out=``) and cannot hold it, which torch refuses: another shape in a part of a
tensor, integers for floats. As torch makes these of an operation and a copy for PyTorch/XLA, the copy would round.

Torch's kernels for the meta device, which have no values, know what is refused; they are asked once for each kind of
arguments. Every such call goes through Python: no combination of types says whether a result's shape is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ptpathways.frontend.kernels.arithmetic._mixed_types import as_number, common
from ptpathways.frontend.kernels.calls import _refusals
from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch


# fmt: off
EXACT = frozenset((
    "amax", "amin", "avg_pool3d", "bitwise_not", "conj_physical", "gelu", "hardshrink", "heaviside", "histc",
    "index_add", "index_copy", "index_select", "linalg_cross", "linalg_ldl_solve", "linalg_lu_solve",
    "linalg_solve_triangular", "log_sigmoid_forward", "logcumsumexp", "masked_select", "nan_to_num", "neg", "ormqr",
    "renorm", "round", "scatter_reduce", "slice_scatter", "softplus", "softshrink", "take", "tril", "triu"
))
# fmt: on
"""Operations that torch writes only into tensors of the first one's type, which its kernels without values forget."""
CAST = frozenset(("_chunk_cat", "angle", "normal"))
"""Those that it writes into tensors that can hold the first one's type."""
WITH_INDICES = ("cummax", "cummin", "kthvalue", "sort")
"""Those whose values it writes into a tensor of the first one's type, and their indices into another."""
OF_TYPES = {"all": ("bool", "uint8"), "any": ("bool", "uint8"), "isin": ("bool",), "multinomial": ("int64",)}
OF_TYPES |= {"nonzero": ("int64",), "bucketize": ("int64", "int32"), "searchsorted": ("int64", "int32")}
OF_TYPES |= dict.fromkeys(WITH_INDICES, ("int64",))
"""Those that it writes into tensors of these types only."""
OF_INDICES = ("argmax", "argmin", "histogram")
"""Those of floats whose results are none, which the kernels without values know."""


class _Like(NamedTuple):
    """What is known of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class _Of(NamedTuple):
    """A number, of which 1 and True would be the same."""

    kind: type
    value: Any


def _key(item: Any) -> Any:
    import torch

    if isinstance(item, torch.Tensor):
        return _Like(item.dtype, tuple(item.shape))
    if isinstance(item, list | tuple):
        return tuple(map(_key, item))
    return _Of(type(item), item)


def _without_values(item: Any) -> Any:
    import torch

    if isinstance(item, _Like):
        return torch.empty(item.shape, dtype=item.dtype, device="meta")
    if isinstance(item, _Of):
        return torch.device("meta") if isinstance(item.value, torch.device) else item.value
    return list(map(_without_values, item))


@functools.lru_cache(maxsize=4096)
def _shapes(operator: torch._ops.OpOverload, arguments: tuple[Any, ...], results: tuple[tuple[str, Any], ...]) -> Any:
    """The shapes of the results, in the order of their names; None where torch does not know them without values.

    Raises:
        RuntimeError: torch refuses it.
    """
    import torch

    given = {name: _without_values(item) for name, item in results}
    try:
        operator(*map(_without_values, arguments), **given)
    except NotImplementedError:
        return None
    return tuple(item.shape if isinstance(item, torch.Tensor) else None for item in given.values())


def into(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """For an operation with ``out=``, or results of other names."""

    name = operator._overloadpacket.__name__
    running = name in ("cumprod", "cumsum")  # which add up in the type that they are written in
    special = running or name in OF_TYPES or name in OF_INDICES
    words = [item for item in operator._schema.arguments if not item.kwarg_only]
    numbered = [place for place, item in enumerate(words) if str(item.type) == "Tensor"]

    def wrapper(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """
        Raises:
            RuntimeError: a result cannot be held, or would change the shape of a part of a tensor.
        """
        import torch

        results = [item for item in named.values() if isinstance(item, torch.Tensor)]
        fixed = [item for item in results if _views.shares_memory(item) or any(given is item for given in arguments)]
        for item in fixed:
            _views.check_shown_once(name, item)
        if not special and _are_floats_of_one_type(arguments, results) and not fixed:
            return kernel(*_of_tensors(arguments, numbered), **named)  # what they give, a tensor of their type can hold
        _check_type(name, operator, arguments, named)
        if running and named.get("dtype") is None:
            named["dtype"] = named["out"].dtype
        key = tuple((name, _key(item)) for name, item in named.items())
        shapes = _shapes(operator, tuple(map(_key, arguments)), key)
        for item, shape in zip(named.values(), shapes or (), strict=False):
            if shape is not None and shape != item.shape and any(item is one for one in fixed):
                raise RuntimeError(
                    f"{operator} has a result of shape {tuple(shape)}, and out= is a part of a tensor, or has parts, "
                    f"or is an argument, of shape {tuple(item.shape)}, which keeps its shape; give a tensor of its "
                    "own, or of that shape"
                )
        return kernel(*_of_tensors(arguments, numbered), **named)

    return wrapper


def _are_floats_of_one_type(arguments: tuple[Any, ...], results: Iterable[Any]) -> bool:
    import torch

    dtype = None
    for item in (*arguments, *results):
        if isinstance(item, torch.Tensor):
            dtype = item.dtype if dtype is None else dtype
            if item.dtype != dtype or not dtype.is_floating_point:
                return False
        elif isinstance(item, complex | list | tuple) and not all(isinstance(part, int) for part in _parts(item)):
            return False
    return True


def _parts(item: Any) -> Any:
    return item if isinstance(item, list | tuple) else (item,)


def _check_type(name: str, operator: torch._ops.OpOverload, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """What torch's kernels without values do not refuse.

    Raises:
        RuntimeError: torch refuses it.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [item for item in tree_leaves((arguments, named)) if isinstance(item, torch.Tensor)]
    first, result = tensors[0], tensors[-1]
    dtype = str(result.dtype).removeprefix("torch.")
    if name in EXACT or name.endswith("_copy"):
        _refusals.one_type(f"{operator} with out=", first, result)
    if name in WITH_INDICES:
        _refusals.one_type(f"{operator} with values=", first, tensors[-2])
    if operator is torch.ops.aten.lerp.Tensor_out and tensors[2].dim():
        _refusals.one_type(f"{operator} with out=", first, result)
    if (name in OF_TYPES and dtype not in OF_TYPES[name]) or (name in ("cumprod", "cumsum") and dtype == "bool"):
        raise RuntimeError(
            f"{operator} does not write its result into a tensor of {result.dtype}; convert it afterwards"
        )
    made = torch.get_default_dtype() if name == "angle" and not first.is_floating_point() else first.dtype
    if name in CAST and not torch.can_cast(made, result.dtype):
        raise RuntimeError(f"result type {made} can't be cast to the desired output type {result.dtype}")


def _of_tensors(arguments: tuple[Any, ...], places: list[int]) -> Sequence[Any]:
    """With tensors in place of numbers, of which torch had made tensors before it called a wrapper."""
    import torch

    numbers = [
        place for place in places if place < len(arguments) and isinstance(arguments[place], int | float | complex)
    ]
    if not numbers:
        return arguments
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    dtype = common((*tensors, *(arguments[place] for place in numbers)))
    made = list(arguments)
    for place in numbers:
        made[place] = _xla.number(as_number(arguments[place], dtype), dtype, tensors[0].device)
    return made


def _operators() -> dict[str, torch._ops.OpOverload]:
    """Those with named results for which torch has a kernel of its own. It generates others for the sake of graphs,
    which none of its functions call."""
    import torch

    found: dict[str, torch._ops.OpOverload] = {}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("Functionalize"):
        space, _, word = name.partition("::")
        packet = word.partition(".")[0]
        if (
            space != "aten"
            or packet == "bernoulli"
            or (packet[0] == "_" and not packet.startswith(("_linalg_", "_chunk")))
        ):
            continue
        operator = _xla.operator(word)
        written = any(item.kwarg_only and item.alias_info is not None for item in operator._schema.arguments)
        own = torch.Tag.generated not in operator.tags or packet.endswith(("_copy", "slice_scatter"))
        if written and own and "backward" not in packet:
            found[word] = operator
    return found


WRAPPED_FUNCTIONALIZATION: dict[str, Callable[..., Any]] = {
    name: into(operator) for name, operator in _operators().items()
}
