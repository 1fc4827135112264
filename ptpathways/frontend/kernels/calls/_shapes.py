"""What torch refuses for shapes and numbers, and PyTorch/XLA takes: it finds out when the step is compiled, at which
all that was traced with it is lost, or computes something else, or divides by zero and ends the process.

Indices and other values on devices are not looked at. The cases are those of torch's database of operators
(``OpInfo.error_inputs``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain

if TYPE_CHECKING:
    import torch


class Shapes:
    """A check by a function of the operation's name and its arguments; only ``plain`` calls do without it."""

    def __init__(self, of: Callable[..., None], plain: Plain | None = None) -> None:
        self._of, self.plain = of, plain

    def check(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """
        Raises:
            RuntimeError, IndexError: they are refused.
        """
        self._of(name, *arguments, **named)


def _pool(
    name: str,
    values: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    *rest: Any,
    **named: Any,
) -> None:
    """Average pools have a switch where the others have their dilation."""
    dilation = named.get("dilation", rest[0] if rest and name.startswith("max") else (1,))
    for place, size in enumerate(kernel):
        pad, step = padding[place % len(padding)], dilation[place % len(dilation)]
        if size < 1:
            raise RuntimeError(f"{name}: kernel size should be greater than zero, but got {size}")
        if pad < 0:
            raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {pad}")
        if pad * 2 > (size - 1) * step + 1:
            raise RuntimeError(
                f"{name}: pad should be at most half of effective kernel size, but got pad={pad}, kernel_size={size} "
                f"and dilation={step}"
            )
        given = values.shape[place - len(kernel)] + 2 * pad
        if given < (size - 1) * step + 1:
            raise RuntimeError(f"{name}: output size is too small: windows of {size} in {given} elements, with padding")
    if 0 in stride:
        raise RuntimeError(f"{name}: stride should not be zero, got {tuple(stride)}")
    if 0 in values.shape[1:]:
        raise RuntimeError(f"{name}: expected input with dimensions of positive size, got {tuple(values.shape)}")


def _adaptive_pool(name: str, values: torch.Tensor, output_size: Sequence[int]) -> None:
    rank = 3 if "3d" in name else 2
    if len(output_size) != rank or min(output_size) < 0:
        raise RuntimeError(f"{name}: output_size must be {rank} numbers, none below 0, got {tuple(output_size)}")
    if values.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}: expected a tensor of {rank + 1} or {rank + 2} dimensions, got one of shape {tuple(values.shape)}"
        )


def _scatter(name: str, values: torch.Tensor, dim: int, index: torch.Tensor, *rest: Any, **named: Any) -> None:
    import torch

    _check_index(name, index, torch.int64, torch.int32)
    source = rest[0] if rest else named.get("src")
    source = source if isinstance(source, torch.Tensor) and name not in _OF_NUMBERS else None
    if source is not None and source.dtype != values.dtype:
        raise RuntimeError(
            f"{name}(): expected self.dtype to be equal to src.dtype, got {values.dtype} and {source.dtype}"
        )
    if index.numel() == 0:
        return
    shapes = {"self": _shape(values), "src": None if source is None else _shape(source)}
    sizes, dim = _shape(index), dim % max(values.dim(), 1)
    for of, shape in shapes.items():
        if shape is not None and len(shape) != len(sizes):
            raise RuntimeError(
                f"{name}(): index tensor must have the same number of dimensions as {of} tensor, got {list(sizes)} and "
                f"{list(shape)}"
            )
        places = range(len(sizes)) if of == "src" else (place for place in range(len(sizes)) if place != dim)
        if shape is not None and any(sizes[place] > shape[place] for place in places):
            raise RuntimeError(
                f"{name}(): expected index {list(sizes)} to be no larger than {of} {list(shape)}"
                + ("" if of == "src" else f" apart from dimension {dim}")
            )


def _check_index(name: str, index: torch.Tensor, *types: torch.dtype) -> None:
    if index.dtype not in types and index.numel() > 0:
        raise RuntimeError(f"{name}(): expected dtype int64 for index, got {index.dtype}; convert it (.long())")


def _take(name: str, values: torch.Tensor, index: torch.Tensor) -> None:
    import torch

    _check_index(name, index, torch.int64, torch.int32, torch.int16, torch.uint8)
    if values.numel() == 0 and index.numel() > 0:
        raise IndexError(f"{name}(): tried to {name} elements of an empty tensor")


def _put(name: str, values: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> None:
    _take(name, values, index)
    if index.numel() != source.numel():
        raise RuntimeError(
            f"{name}(): expected source and index to have the same number of elements, got {source.numel()} and "
            f"{index.numel()}"
        )
    if source.dtype != values.dtype:
        raise RuntimeError(
            f"{name}(): expected self and source to have same dtype, got {values.dtype} and {source.dtype}"
        )


def _index_fill(name: str, values: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> None:
    if index.dim() > 1:
        raise RuntimeError(f"{name}: index has to be a vector or of no dimension, got {index.dim()} dimensions")


def check_index_put(
    name: str, values: torch.Tensor, indices: Sequence[torch.Tensor | None], source: torch.Tensor, *rest: Any
) -> None:
    """How many elements a mask has is not known."""
    import torch

    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return
    places = [place for place, index in enumerate(indices) if index is not None]
    picked = torch.broadcast_shapes(*(index.shape for index in given))
    kept = [size for place, size in enumerate(values.shape) if place not in places]
    together = places == list(range(places[0], places[-1] + 1)) if places else True
    before = places[0] if places and together else 0
    shape = (*kept[:before], *picked, *kept[before:])
    if not _fits(source.shape, shape):
        raise RuntimeError(
            f"{name}: shape mismatch: value tensor of shape {list(source.shape)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        )


def _fits(shape: Sequence[int], into: Sequence[int]) -> bool:
    """Whether a tensor of ``shape`` can be broadcast to another one, which has as many dimensions, or more."""
    ends = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(size in (1, wanted) for size, wanted in ends)


_OF_NUMBERS = frozenset({"scatter.value", "scatter.value_reduce"})


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape) or (1,)


def _masked_scatter(name: str, values: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> None:
    import torch

    if mask.dtype != torch.bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}; use mask.bool()")
    if source.dtype != values.dtype:
        raise RuntimeError(
            f"{name}: expected self and source to have same dtypes, got {values.dtype} and {source.dtype}"
        )


def _matrix(name: str, values: torch.Tensor, diagonal: int = 0) -> None:
    if values.dim() < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got {values.dim()}")


def _diagonal(name: str, values: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> None:
    rank = values.dim()
    for dim in (dim1, dim2):
        if not -rank <= dim < rank:
            raise IndexError(f"{name}: dimension out of range (expected to be in [{-rank}, {rank - 1}], but got {dim})")
    if dim1 % rank == dim2 % rank:
        raise RuntimeError(f"{name}: diagonal dimensions cannot be identical {dim1}, {dim2}")


def _diagonal_scatter(name: str, values: torch.Tensor, source: torch.Tensor, *numbers: int, **named: int) -> None:
    _diagonal(name, values, *numbers, **named)


def _strided_scatter(
    name: str,
    values: torch.Tensor,
    source: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> None:
    last = (storage_offset or 0) + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if 0 not in size and last >= values.numel():
        raise RuntimeError(
            f"{name}: sizes {list(size)}, strides {list(stride)} and storage offset {storage_offset or 0} need "
            f"{last + 1} elements, but there are {values.numel()}"
        )


def _part_of(name: str, values: torch.Tensor, source: torch.Tensor, *numbers: Any, **named: Any) -> None:
    """Of those that write a part: torch says itself which part is not there."""
    import torch

    part = _xla.operator(_PARTS[name])(torch.empty(values.shape, device="meta"), *numbers, **named)
    if part.shape != source.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(source.shape)}, slice size = "
            f"{list(part.shape)}"
        )


_PARTS = {
    f"{name.partition('.')[0]}_scatter": name for name in ("as_strided", "diagonal", "select.int", "slice.Tensor")
}
"""By what writes a part, what reads it."""


def _bounds(name: str, values: torch.Tensor, min: Any = None, max: Any = None) -> None:
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")


def _square(name: str, values: torch.Tensor, **named: Any) -> None:
    if values.dim() < 2 or values.shape[-1] != values.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {tuple(values.shape[-2:])}")


def _halves(name: str, values: torch.Tensor, dim: int = -1) -> None:
    if values.dim() == 0 or values.shape[dim] % 2:
        raise RuntimeError(
            f"{name}: halving dimension must be even, but dimension {dim} of {tuple(values.shape)} is not"
        )


def _sizes(name: str, values: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> None:
    if sum(sizes) != values.shape[dim] or min(sizes, default=0) < 0:
        raise RuntimeError(
            f"{name} expects split_sizes to sum exactly to {values.shape[dim]} (input tensor's size at dimension "
            f"{dim}), but got split_sizes={list(sizes)}"
        )


def _softshrink(name: str, values: torch.Tensor, lambd: float = 0.5) -> None:
    if lambd < 0:
        raise RuntimeError(f"{name}: lambda must be greater or equal to 0, but found to be {lambd}")


def _eye(name: str, n: int, m: int | None = None, **named: Any) -> None:
    for what, size in (("n", n), ("m", m)):
        if size is not None and size < 0:
            raise RuntimeError(f"{name}: {what} must be greater or equal to 0, got {size}")


def _exponential(name: str, values: torch.Tensor, lambd: float = 1.0, **named: Any) -> None:
    if lambd <= 0:
        raise RuntimeError(f"{name} expects lambda > 0.0, but found lambda={lambd}")


def _deviation(name: str, values: torch.Tensor, mean: float = 0.0, std: float = 1.0, **named: Any) -> None:
    if std < 0:
        raise RuntimeError(f"{name} expects std >= 0.0, but found std {std}")


def _unsigned(name: str, values: torch.Tensor, min_val: float = -1, max_val: float = 1) -> None:
    if not values.dtype.is_signed and min(min_val, max_val) < 0:
        raise RuntimeError(f"cannot do {name} on an unsigned type with negative limits")


def _factor(name: str, values: torch.Tensor, factor: int) -> None:
    if factor < 1:
        raise RuntimeError(f"{name} expects a positive factor, but got {factor}")


def _dimensions(name: str, values: torch.Tensor, *dims: int) -> None:
    size = max(values.dim(), 1)
    for dim in dims:
        if not -size <= dim < size:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})"
            )


def _transposed(name: str, values: torch.Tensor) -> None:
    if values.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {values.dim()}D")


def _vectors(name: str, one: torch.Tensor, other: torch.Tensor) -> None:
    if one.dim() != 1 or other.dim() != 1:
        raise RuntimeError(f"{name}: 1D tensors expected, but got {one.dim()}D and {other.dim()}D tensors")


CHECKED: dict[str, Shapes] = {
    "adaptive_max_pool2d": Shapes(_adaptive_pool),
    "adaptive_max_pool3d": Shapes(_adaptive_pool),
    "as_strided_scatter": Shapes(_strided_scatter),
    "clamp": Shapes(_bounds),
    "clamp.Tensor": Shapes(_bounds),
    "diagonal_copy": Shapes(_diagonal),
    "diagonal_scatter": Shapes(_diagonal_scatter),
    "exponential": Shapes(_exponential),
    "eye.m": Shapes(_eye),
    "glu": Shapes(_halves),
    "hardtanh": Shapes(_unsigned),
    "index_fill.int_Scalar": Shapes(_index_fill),
    "index_fill.int_Tensor": Shapes(_index_fill),
    "index_put": Shapes(check_index_put),
    "linalg_inv_ex": Shapes(_square),
    "masked_scatter": Shapes(_masked_scatter),
    "normal_": Shapes(_deviation),
    "pixel_shuffle": Shapes(_factor),
    "pixel_unshuffle": Shapes(_factor),
    "put": Shapes(_put),
    "softshrink": Shapes(_softshrink),
    "t_copy": Shapes(_transposed, Plain.AT_MOST_MATRICES),
    "take": Shapes(_take),
    "transpose_copy.int": Shapes(_dimensions, Plain.MATRICES),
    "vdot": Shapes(_vectors),
}
"""By operation."""
CHECKED |= dict.fromkeys(("tril", "triu"), Shapes(_matrix))
CHECKED |= dict.fromkeys(
    ("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"), Shapes(_pool)
)
CHECKED |= dict.fromkeys(
    ("scatter.reduce", "scatter.src", "scatter.value", "scatter.value_reduce", "scatter_add", "scatter_reduce.two"),
    Shapes(_scatter),
)
CHECKED_ABOVE_AUTOGRAD: dict[str, Shapes] = dict.fromkeys(("max_pool2d", "max_pool3d"), Shapes(_pool))
CHECKED_ABOVE_AUTOGRAD |= dict.fromkeys(_PARTS, Shapes(_part_of))
"""Functionalisation calls these, too, for each write in a view: not from here."""
CHECKED_FUNCTIONALIZATION: dict[str, Shapes] = {"split_with_sizes": Shapes(_sizes)}
