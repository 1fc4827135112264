"""Operations in place whose result the tensor cannot hold, which torch refuses: ``counts /= 2`` of integers, a matrix
added to a vector. As torch makes them of an operation and a copy for PyTorch/XLA, the copy would round to an integer,
drop an imaginary part, or give the tensor another shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _promotions
from ptpathways.frontend.kernels.arithmetic._mixed_types import as_number, common
from ptpathways.frontend.kernels.calls import _refusals
from ptpathways.frontend.kernels.calls._texts import check_broadcast
from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.FITS | Plain.KEEPS_SHAPE)
def held(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """For operations whose result has the arguments' common type."""
    _check_shape(values, rest)
    return _held(kernel, values, *rest, **named)


def held_of_vectors(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """The same of ``addr_``, whose shapes are of their own."""
    _check_product(values, (*rest[0].shape, *rest[1].shape))
    return _held(kernel, values, *rest, **named)


@hands_on(Plain.KEEPS_SHAPE)
def shaped(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """For those whose types PyTorch/XLA checks itself."""
    _check_shape(values, rest)
    return kernel(values, *rest, **named)


@hands_on(Plain.KEEPS_SHAPE)
def masked(kernel: Callable[..., Any], values: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """Of ``masked_scatter_``, whose source may have any shape."""
    _check_shape(values, (mask,))
    return kernel(values, mask, source)


def product(
    kernel: Callable[..., Any], values: torch.Tensor, one: torch.Tensor, two: torch.Tensor, **named: Any
) -> Any:
    """Of matrices, or of as many of them."""
    if one.dim() == two.dim() > 1:
        _check_product(values, (*one.shape[:-1], two.shape[-1]))
    return kernel(values, one, two, **named)


def of_lists(name: str) -> Callable[..., Any]:
    """For those of many tensors, as optimizers use them. A tensor that is named twice is written twice, and autograd is
    told, which torch does not do for devices: a value that it has kept for a gradient may be gone."""

    def wrapper(kernel: Callable[..., Any], values: Sequence[torch.Tensor], *rest: Any, **named: Any) -> Any:
        if not all(one.is_floating_point() for one in values) or any(map(_is_complex, rest)):
            _ask_the_cpu(name, (values, *rest), named)
        for one in values:
            _views.check_shown_once(name, one)
        return _write_lists(kernel, values, *rest, factors=name in _OF_FACTORS, **named)

    return wrapper


def copied(
    kernel: Callable[..., Any], values: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], *rest: Any
) -> Any:
    """``_foreach_copy_``, also between devices and the CPU, one by one."""
    import torch

    if len(values) != len(sources) or all(map(_of_one_device, values, sources)):
        return of_lists("_foreach_copy_")(kernel, values, sources, *rest)
    for one, source in zip(values, sources, strict=True):
        one.copy_(source, *rest)
    torch.autograd.graph.increment_version([one for one in values if not one.is_inference()])
    return None


def _of_one_device(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.device == other.device


def _is_complex(item: Any) -> bool:
    """A number, or a list of numbers."""
    numbers = item if isinstance(item, list | tuple) else (item,)
    return any(isinstance(number, complex) for number in numbers)


def _ask_the_cpu(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """
    Raises:
        RuntimeError: torch refuses such types; its kernels without values do not.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    def one(tensor: torch.Tensor) -> torch.Tensor:
        return torch.ones(1, dtype=tensor.dtype, device="cpu")

    _xla.operator(name)(*tree_map_only(torch.Tensor, one, arguments), **tree_map_only(torch.Tensor, one, named))


_OF_FACTORS = frozenset({"_foreach_addcdiv_.Tensor", "_foreach_addcmul_.Tensor"})
"""Of which the last argument is a tensor with a number for each one."""


def _write_lists(
    kernel: Callable[..., Any], values: Sequence[torch.Tensor], *rest: Any, factors: bool, **named: Any
) -> Any:
    import torch

    for item in rest[:-1] if factors else rest:
        if isinstance(item, torch.Tensor):
            for one in values:
                _check_shape(one, (item,))
        elif isinstance(item, list | tuple):
            for one, other in zip(values, item, strict=False):
                if isinstance(other, torch.Tensor) and other.shape != one.shape:
                    _check_shape(one, (other,))
    if len(set(map(id, values))) < len(values):
        for place in range(len(values)):
            part, lists = slice(place, place + 1), (list, tuple, torch.Tensor) if factors else (list, tuple)
            kernel(values[part], *(item[part] if isinstance(item, lists) else item for item in rest), **named)
    else:
        kernel(values, *rest, **named)
    torch.autograd.graph.increment_version([one for one in values if not one.is_inference()])
    return None


@hands_on(Plain.FITS | Plain.FLOATING | Plain.KEEPS_SHAPE)
def held_floats(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """For those that make floats of integers and booleans."""
    _check_shape(values, rest)
    return _held(kernel, values, *rest, floats=True, **named)


@hands_on(Plain.FITS)
def held_by_number(kernel: Callable[..., Any], values: torch.Tensor, number: complex) -> Any:
    """For those that take a number as it is."""
    _check(values, (number,))
    return kernel(values, number)


@hands_on(Plain.SAME_TYPES)
def of_one_type(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    _refusals.one_type("an operation in place", *(item for item in arguments if not isinstance(item, int | float)))
    return kernel(*arguments, **named)


@hands_on(Plain.REAL)
def magnitude(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    if values.is_complex():
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return kernel(values)


def running(kernel: Callable[..., Any], values: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    import torch

    if dtype not in (None, values.dtype):
        raise RuntimeError(
            f"Bad in-place call: input tensor dtype {values.dtype} and output tensor dtype {dtype} should match"
        )
    if values.dtype == torch.bool:
        raise RuntimeError(
            "cumsum and cumprod of booleans are of int64, which the tensor cannot hold; convert it before"
        )
    return kernel(values, dim, dtype=dtype)


def clamp(
    kernel: Callable[..., Any], values: torch.Tensor, min: complex | None = None, max: complex | None = None
) -> Any:
    bounds = tuple(bound for bound in (min, max) if bound is not None)
    if not bounds:
        raise RuntimeError("torch.clamp_: At least one of 'min' or 'max' must not be None")
    _check(values, bounds)
    return kernel(values, min, max)


@hands_on(Plain.FITS | Plain.FLOATING | Plain.KEEPS_SHAPE)
def divided(kernel: Callable[..., Any], values: torch.Tensor, other: Any, *, rounding_mode: str | None) -> Any:
    """With a rounding integers stay integers."""
    _check_shape(values, (other,))
    return _held(kernel, values, other, floats=rounding_mode is None, rounding_mode=rounding_mode)


def _held(
    kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, floats: bool = False, **named: Any
) -> torch.Tensor:
    import torch

    _check(values, tuple(item for item in rest if item is not None), floats)
    tensors = [
        item
        if isinstance(item, torch.Tensor) or item is None
        else _xla.number(as_number(item, values.dtype), values.dtype, values.device)
        for item in rest
    ]
    result: torch.Tensor = kernel(values, *tensors, **named)
    return result


def _check_shape(values: torch.Tensor, rest: tuple[Any, ...]) -> None:
    import torch

    shapes = [tuple(item.shape) for item in rest if isinstance(item, torch.Tensor)]
    made = check_broadcast(tuple(values.shape), *shapes)
    if made != values.shape:
        raise RuntimeError(f"output with shape {list(values.shape)} doesn't match the broadcast shape {list(made)}")


def _check_product(values: torch.Tensor, made: tuple[int, ...]) -> None:
    if tuple(values.shape) != made:
        raise RuntimeError(f"output with shape {list(values.shape)} doesn't match the shape {list(made)} of the result")


def _check(values: torch.Tensor, rest: tuple[Any, ...], floats: bool = False) -> None:
    import torch

    dtype = common((values, *rest))
    if floats and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    if not torch.can_cast(dtype, values.dtype):
        raise RuntimeError(
            f"result type {dtype} can't be cast to the desired output type {values.dtype}: an operation in place keeps "
            "its tensor's type; take the result of the one that is not, or convert the tensor before"
        )


class _Once:
    """Of operations in place, which torch refuses to write into a view that shows elements several times (``expand``):
    functionalisation adds up what is written to an element."""

    plain = Plain.ONCE

    def check(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        _views.check_shown_once(name, arguments[0])


def _in_place() -> list[str]:
    """Names of operations in place."""
    import torch

    registered = torch._C._dispatch_get_registrations_for_dispatch_key("Functionalize")
    names = [name.removeprefix("aten::") for name in registered if name.startswith("aten::")]
    return [name for name in names if name.partition(".")[0].endswith("_")]


def _writes_one(name: str) -> bool:
    """Whether the first argument is the tensor that is written."""
    first = _xla.operator(name)._schema.arguments[0]
    return str(first.type) == "Tensor" and name.partition(".")[0] not in _UNWRITTEN


_UNWRITTEN = frozenset(
    {
        *("as_strided_", "detach_", "set_", "squeeze_", "t_", "transpose_", "unsqueeze_"),
        *("_resize_output_", "resize_", "resize_as_", "resize_as_sparse_"),
        *("_coalesced_", "copy_sparse_to_sparse_", "sparse_resize_", "sparse_resize_and_clear_"),
    }
)
"""Which change what a tensor is, and no element."""
_EACH_ELEMENT = frozenset({"fill_.Scalar", "fill_.Tensor", "zero_"})
"""Which torch writes into such views, too."""
_IN_PLACE = _in_place()
_LISTS = [name for name in _IN_PLACE if name.startswith("_foreach_")]

WRAPPED_FUNCTIONALIZATION: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        "add_.Tensor",
        "addcmul_",
        "bitwise_and_.Tensor",
        "bitwise_left_shift_.Tensor",
        "bitwise_or_.Tensor",
        "bitwise_right_shift_.Tensor",
        "bitwise_xor_.Tensor",
        "clamp_.Tensor",
        "clamp_max_.Tensor",
        "clamp_min_.Tensor",
        "floor_divide_.Tensor",
        "fmod_.Tensor",
        "gcd_",
        "hypot_",
        "igamma_",
        "igammac_",
        "lcm_",
        "mul_.Tensor",
        "nextafter_",
        "pow_.Tensor",
        "remainder_.Tensor",
        "sub_.Tensor",
    ),
    held,
)
WRAPPED_FUNCTIONALIZATION |= {"addr_": held_of_vectors, "clamp_": clamp, "div_.Tensor_mode": divided}
WRAPPED_FUNCTIONALIZATION["div_.Scalar_mode"] = divided
WRAPPED_FUNCTIONALIZATION |= dict.fromkeys(
    ("clamp_max_", "clamp_min_", "fmod_.Scalar", "pow_.Scalar", "remainder_.Scalar"), held_by_number
)
WRAPPED_FUNCTIONALIZATION |= dict.fromkeys(
    (
        *(f"{name}_.Tensor" for name in ("eq", "ge", "gt", "le", "lt", "ne")),
        "heaviside_",
        "lerp_.Scalar",
        "lerp_.Tensor",
        "logical_and_",
        "logical_or_",
        "logical_xor_",
        "masked_fill_.Scalar",
        "masked_fill_.Tensor",
    ),
    shaped,
)
WRAPPED_FUNCTIONALIZATION |= {
    "addmm_": product,
    "baddbmm_": product,
    "masked_scatter_": masked,
}
WRAPPED_FUNCTIONALIZATION |= {name: of_lists(name) for name in _LISTS} | {"_foreach_copy_": copied}
WRAPPED_FUNCTIONALIZATION |= {"abs_": magnitude, "addmv_": of_one_type, "cumprod_": running, "cumsum_": running}
WRAPPED_FUNCTIONALIZATION |= dict.fromkeys(
    (
        "addcdiv_",
        "atan2_",
        "copysign_.Scalar",
        "copysign_.Tensor",
        "deg2rad_",
        "digamma_",
        "div_.Scalar",
        "div_.Tensor",
        "exp2_",
        "i0_",
        "lgamma_",
        "logit_",
        "mvlgamma_",
        "rad2deg_",
        "sinc_",
        "xlogy_.Scalar_Other",
        "xlogy_.Tensor",
        *(f"{name}_" for name in _promotions.FLOATS),
    ),
    held_floats,
)

CHECKED_FUNCTIONALIZATION = {name: _Once() for name in _IN_PLACE if name not in _EACH_ELEMENT and _writes_one(name)}
