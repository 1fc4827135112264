"""0-dimensional and empty tensors, for which many of PyTorch/XLA's kernels were not written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _fallback, _refusals
from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.WITH_DIMENSIONS)
def scalar_as_vector(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A 0-dimensional tensor as a vector of one element, which has the same dimensions to name: 0 and -1."""
    if arguments[0].dim() > 0:
        return kernel(*arguments, **named)
    import torch
    from torch.utils._pytree import tree_map_only

    def lifted(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(1) if tensor.dim() == 0 else tensor

    result = kernel(*tree_map_only(torch.Tensor, lifted, arguments), **tree_map_only(torch.Tensor, lifted, named))
    return tree_map_only(torch.Tensor, lambda tensor: tensor.reshape(()), result)


def check_of_scalar(*dims: int) -> None:
    """Of a 0-dimensional tensor these dimensions can be named.

    Raises:
        IndexError: they cannot.
    """
    for dim in dims:
        if dim not in (0, -1):
            raise IndexError(f"Dimension out of range (expected to be in range of [-1, 0], but got {dim})")


def dimensions(values: torch.Tensor, dim: Sequence[int] | None) -> list[int]:
    """Those that a reduction goes over: all where none is named, which PyTorch/XLA takes for none of them."""
    return list(dim or range(values.dim()))


def of_source(
    kernel: Callable[..., Any], values: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **named: Any
) -> Any:
    """``index_add`` and ``index_copy``, to which no plain call is known: an index is never of the source's type.

    Raises:
        RuntimeError: the source is of another type, of which PyTorch/XLA would cut the fractions off.
    """
    if source.dtype != values.dtype:
        raise RuntimeError(
            f"self and source expected to have the same dtype, but got {values.dtype} and {source.dtype}; convert the "
            "source (.to(tensor.dtype))"
        )
    run = kernel if values.dim() > 0 else functools.partial(scalar_as_vector, kernel)
    return run(values, dim, index, source, **named)


def index_fill(kernel: Callable[..., Any], values: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """``value`` stays 0-dimensional, and indices count from the end, too, which PyTorch/XLA writes nowhere.

    Raises:
        RuntimeError: the tensor's type has no such number.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        _refusals.check_holds(values.dtype, value)

    size = values.shape[dim] if values.dim() > 0 else 1
    index = index.reshape(-1)
    index = torch.where(index < 0, index + size, index)
    if values.dim() > 0:
        return kernel(values, dim, index, value)
    return kernel(values.reshape(1), dim, index, value).reshape(())


@hands_on(Plain.WITH_DIMENSIONS | Plain.NONEMPTY)
def scatter(
    kernel: Callable[..., Any], values: torch.Tensor, dim: int, index: torch.Tensor, *rest: Any, **named: Any
) -> Any:
    """Either may be 0-dimensional where the other is a vector; the result has the shape of ``values``."""
    import torch

    if index.numel() == 0:
        return values.clone()
    if values.dim() > 0 and index.dim() > 0:
        return kernel(values, dim, index, *rest, **named)
    flat = [item.reshape(-1) if isinstance(item, torch.Tensor) else item for item in rest]
    return kernel(values.reshape(-1), 0, index.reshape(-1), *flat, **named).reshape(values.shape)


def repeat(kernel: Callable[..., Any], values: torch.Tensor, repeats: Sequence[int]) -> Any:
    """PyTorch/XLA concatenates, for which there has to be something."""
    import torch

    if values.numel() > 0 and 0 not in repeats:
        return kernel(values, repeats)
    shape = [1] * (len(repeats) - values.dim()) + list(values.shape)
    sizes = [size * count for size, count in zip(shape, repeats, strict=True)]
    return torch.zeros(sizes, dtype=values.dtype, device=values.device)


def or_empty(operation: str) -> Callable[..., Any]:
    """For ``operation``, a wrapper that computes results of empty tensors, which depend on no value, on the client."""

    @hands_on(Plain.NONEMPTY)
    def wrapper(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if arguments[0].numel() > 0:
            return kernel(*arguments, **named)
        return _fallback.on_client(_xla.operator(operation), *arguments, **named)

    return wrapper


def running(operation: str) -> Callable[..., Any]:
    """``cumsum`` or ``cumprod``: both of the above, and integers and booleans are added up as int64."""
    empty = or_empty(operation)

    @hands_on(Plain.WITH_DIMENSIONS | Plain.NONEMPTY | Plain.FLOATING)
    def wrapper(kernel: Callable[..., Any], values: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        if dtype is None and not values.is_floating_point() and not values.is_complex():
            import torch

            values, dtype = values.to(torch.int64), torch.int64
        run = empty if values.numel() == 0 else scalar_as_vector
        return run(kernel, values, dim, dtype=dtype)

    return wrapper


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        "flip",
        "index_reduce",
        "logcumsumexp",
        "median.dim",
        "mode",
        "nanmedian.dim",
        "prod.dim_int",
        "squeeze_copy.dim",
        "squeeze_copy.dims",
    ),
    scalar_as_vector,
)
WRAPPED |= dict.fromkeys(("index_add", "index_copy"), of_source)
WRAPPED |= {"index_fill.int_Scalar": index_fill, "index_fill.int_Tensor": index_fill}
WRAPPED |= {f"scatter.{overload}": scatter for overload in ("src", "value", "reduce", "value_reduce")}
WRAPPED |= {"scatter_add": scatter, "scatter_reduce.two": scatter, "repeat": repeat}
WRAPPED |= {name: or_empty(name) for name in ("roll",)}
