"""Calls that PyTorch/XLA refuses are refused in torch's words, whose users know them: shapes that do not fit together,
dimensions and views that are not there. PyTorch/XLA's own words are those of its C++ or of XLA.

Tensors without memory ("meta") take the call, and what torch says of them is raised. Nothing is asked of calls that
succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on, of_wrapper

if TYPE_CHECKING:
    import torch

Kernel = Callable[..., Any]
Shape = tuple[int, ...]

_OF_REFERENCES = ("Attempting to broadcast", "a and b must have same reduction dim", "could not convert to type")
"""How torch's references in Python begin what its kernels say otherwise."""
_PRODUCTS = {"mm": 0, "addmm": 1}
"""Of products of matrices, which argument is the first factor."""

TOLD = (
    *("view_copy", "_unsafe_view", "expand_copy", "permute_copy", "transpose_copy.int", "unsqueeze_copy", "repeat"),
    *("squeeze_copy.dim", "squeeze_copy.dims", "select_copy.int", "flip", "roll", "topk", "gather", "copy", "full"),
    *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "fmod.Tensor", "remainder.Tensor", "pow.Tensor_Tensor"),
    *("maximum", "minimum", "where.self", "masked_fill.Scalar", "addcmul", "addcdiv"),
    *(f"{name}.Tensor" for name in ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor")),
    *("logical_and", "logical_or", "logical_xor", "atan2"),
    *("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "cat", "stack"),
    *("sum.dim_IntList", "mean.dim", "argmax", "argmin", "max.dim", "min.dim", "amax", "amin", "cumsum", "sort"),
    *("_softmax", "_log_softmax", "prod.dim_int", "mean", "scatter.src", "scatter.value", "index_add"),
)
"""Operations that compute nothing but their results, and wait for no value, by torch's names: a refused call is made
twice, and a wait that Ctrl-C has ended must not begin again."""

OF_DIMENSIONS = tuple(f"{name}.correction" for name in ("std", "std_mean", "var", "var_mean"))
"""Others that name dimensions, of which some wait."""


def in_torchs_words(name: str, wrapper: Kernel) -> Kernel:
    """``wrapper`` of an operation of ``TOLD``; what it hands on is handed on until PyTorch/XLA refuses it."""

    def told(kernel: Kernel, *arguments: Any, **named: Any) -> Any:
        try:
            return wrapper(kernel, *arguments, **named)
        except (RuntimeError, IndexError) as refused:
            if (known := _by_text(name, refused) or _torchs_error(name, arguments, named)) is None:
                raise
            try:
                raise known from refused
            finally:
                del known  # or this frame, which the error holds, holds the error, and both hold the call's tensors

    plain = of_wrapper(wrapper)
    return told if plain is None else hands_on(plain | Plain.UNTIL_REFUSED)(told)


def dimensions_told(name: str, wrapper: Kernel) -> Kernel:
    """``wrapper`` of an operation of ``OF_DIMENSIONS``; nothing of it is called twice."""

    def told(kernel: Kernel, *arguments: Any, **named: Any) -> Any:
        try:
            return wrapper(kernel, *arguments, **named)
        except RuntimeError as refused:
            if (known := _by_text(name, refused)) is None:
                raise
            try:
                raise known from refused
            finally:
                del known

    plain = of_wrapper(wrapper)
    return told if plain is None else hands_on(plain | Plain.UNTIL_REFUSED)(told)


def check_broadcast(*shapes: Shape) -> Shape:
    """The shape to which ``shapes`` are broadcast.

    Raises:
        RuntimeError: there is none; in the words of torch's kernels.
    """
    made: Shape = ()
    for shape in shapes:
        count = max(len(made), len(shape))
        left, right = ((1,) * (count - len(sizes)) + sizes for sizes in (made, shape))
        for dim, (a, b) in reversed(list(enumerate(zip(left, right, strict=True)))):
            if a != b and 1 not in (a, b):
                raise RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}"
                )
        made = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return made


def _by_text(name: str, refused: Exception) -> Exception | None:
    """What torch raises of dimensions that are not there and of bits of floats, which PyTorch/XLA says otherwise."""
    beginning, said = "Value out of range", str(refused)
    if said.startswith(beginning):
        return IndexError(said.replace(beginning, "Dimension out of range", 1))
    if said.startswith("Expected pred or integral type"):
        return NotImplementedError(
            f"{name.partition('.')[0]} needs integers or booleans, got floats or complex numbers"
        )
    return None


def _torchs_error(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Exception | None:
    """What torch raises of such tensors, or None."""
    given, options = map(_without_memory, arguments), {key: _without_memory(item) for key, item in named.items()}
    try:
        _xla.operator(name)(*given, **options)
        return None
    except (NotImplementedError, ValueError, TypeError):  # no kernel without values, or a reference in Python's words
        return None
    except AssertionError as error:
        return RuntimeError(str(error))
    except (RuntimeError, IndexError) as error:
        if not str(error).startswith((*_OF_REFERENCES, "aten::")):  # as of a number where the name has a tensor
            return error.with_traceback(None)
    try:
        if name in _PRODUCTS:
            left, right = arguments[_PRODUCTS[name] :][:2]
            if left.shape[1] != right.shape[0]:
                sizes = " and ".join("x".join(map(str, factor.shape)) for factor in (left, right))
                return RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
            _without_memory(arguments[0]).expand(left.shape[0], right.shape[1])
        else:
            check_broadcast(*(tuple(tensor.shape) for tensor in _tensors(arguments)))
    except RuntimeError as error:
        return error.with_traceback(None)
    return None


def _without_memory(item: Any) -> Any:
    import torch

    if isinstance(item, torch.Tensor):
        return torch.empty(item.shape, dtype=item.dtype, device="meta")
    if isinstance(item, torch.device):
        return torch.device("meta")
    if isinstance(item, list | tuple):
        return [_without_memory(element) for element in item]
    return item


def _tensors(items: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    import torch

    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
