"""Operators of several tensors whose types differ: torch converts them to one type, PyTorch/XLA often to the first's.

``torch.where(mask, integers, floats)`` gave integers, ``integers % floats`` was 0, and tensors without dimensions of a
wider type made a computation's results another type than PyTorch/XLA said they had.
``python -m tests.fuzz.promotions`` compares pairs of all types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _refusals
from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def as_number(number: Any, dtype: torch.dtype) -> Any:
    """A number as a type has it: floats are rounded, and integers wrap round, as torch's do."""
    import torch

    if isinstance(number, int) and not dtype.is_floating_point and not dtype.is_complex:
        return torch.tensor(number).to(dtype).item()
    return torch.tensor(number, dtype=dtype).item()


def converted(arguments: tuple[Any, ...], dtype: torch.dtype) -> list[Any]:
    """Torch gives a wrapper a number in place of a tensor that was made of one."""
    import torch

    device = next(item.device for item in arguments if isinstance(item, torch.Tensor))
    return [
        item.to(dtype) if isinstance(item, torch.Tensor) else _xla.number(as_number(item, dtype), dtype, device)
        for item in arguments
    ]


def common(arguments: tuple[Any, ...]) -> torch.dtype:
    """The type that torch computes with, of two or three tensors of which some may be numbers."""
    import torch

    first, *others = arguments
    for other in others:
        # Tensors without dimensions decide less than others.
        shape = [1] * any(isinstance(item, torch.Tensor) and item.dim() > 0 for item in (first, other))
        first = torch.empty(shape, dtype=torch.result_type(first, other), device="meta")
    dtype: torch.dtype = first.dtype
    return dtype


def _of_one_type(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """``kernel`` of all tensors in their common type."""
    return kernel(*converted(arguments, common(arguments)), **named)


@hands_on(Plain.SAME_TYPES)
def of_one_type(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """For kernels that know what to do with a number."""
    return _of_one_type(kernel, *arguments, **named)


@hands_on(Plain.SAME_TYPES | Plain.TENSORS)
def of_one_type_and_tensors(kernel: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """For those that give a number the tensor's type, or fail."""
    return _of_one_type(kernel, *arguments, **named)


@hands_on(Plain.SAME_TYPES)
def difference(kernel: Callable[..., Any], values: Any, other: Any, **named: Any) -> Any:
    """
    Raises:
        RuntimeError: one of the two is of booleans.
    """
    _check_no_booleans(values, other)
    return _of_one_type(kernel, values, other, **named)


def _check_no_booleans(*items: Any) -> None:
    """Of two types; PyTorch/XLA sees to two tensors of booleans."""
    import torch

    types = {item.dtype for item in items if isinstance(item, torch.Tensor)}
    if torch.bool in types and (len(types) > 1 or len(items) > sum(isinstance(item, torch.Tensor) for item in items)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


@hands_on(Plain.SMALL_NUMBERS)
def compared(kernel: Callable[..., Any], values: torch.Tensor, number: complex) -> Any:
    """With a number as the common type has it: the float32 of 0.1 equals 0.1, which is another number in float64."""
    import torch

    dtype = torch.result_type(values, number)
    return kernel(values.to(dtype), as_number(number, dtype))


@hands_on(Plain.SMALL_NUMBERS | Plain.FLOATING)
def subtracted(kernel: Callable[..., Any], values: torch.Tensor, number: complex, alpha: complex = 1) -> Any:
    """``number - alpha * values``."""
    import torch

    _check_no_booleans(values, number)

    dtype = torch.result_type(values, number)
    return kernel(values.to(dtype), as_number(number, dtype), alpha)


@hands_on(Plain.SAME_TYPES | Plain.WIDE | Plain.FLOATING)
def quotient_added(kernel: Callable[..., Any], values: torch.Tensor, one: Any, other: Any, **named: Any) -> Any:
    """``addcdiv``.

    Raises:
        RuntimeError: both factors are integers.
    """
    import torch

    dtype = torch.result_type(one, other)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("Integer division with addcdiv is no longer supported; convert one of the two (.float())")
    return _precision.in_float32(kernel, *converted((values, one, other), common((values, one, other))), **named)


@hands_on(Plain.SAME_TYPES | Plain.WIDE | Plain.FLOATING)
def product_added(kernel: Callable[..., Any], *tensors: Any, **named: Any) -> Any:
    """``addcmul``.

    Raises:
        RuntimeError: all are booleans.
    """
    import torch

    if (dtype := common(tensors)) == torch.bool:
        raise RuntimeError("addcmul is of numbers, got booleans; convert some (.to(dtype))")
    if isinstance(factor := named.get("value"), complex):
        _refusals.check_holds(dtype, factor)
    return _precision.in_float32(kernel, *converted(tensors, dtype), **named)


@hands_on(Plain.SAME_TYPES | Plain.WIDE | Plain.FLOATING)
def loss(kernel: Callable[..., Any], values: torch.Tensor, target: torch.Tensor, *rest: Any) -> Any:
    """
    Raises:
        RuntimeError: neither is of floats.
    """
    dtype = common((values, target))
    if not dtype.is_floating_point:
        raise RuntimeError(f"a loss needs floats, got tensors of {dtype}; convert one of them (.float())")
    return _precision.in_float32(kernel, *converted((values, target), dtype), *rest)


@hands_on(Plain.SAME_TYPES | Plain.MASKED)
def where(kernel: Callable[..., Any], mask: torch.Tensor, values: Any, other: Any) -> Any:
    """The mask keeps its type."""
    given = (values, other)
    return kernel(mask, *converted(given, common(given)))


@hands_on(Plain.SAME_TYPES | Plain.TENSORS | Plain.FLOATING)
def xlogy(kernel: Callable[..., Any], values: Any, other: Any) -> Any:
    """Integers become floats each by itself."""
    import torch

    dtype = common((values, other))
    if not dtype.is_floating_point and not dtype.is_complex:
        dtype = torch.get_default_dtype()
    return kernel(*converted((values, other), dtype))


def clamp(kernel: Callable[..., Any], values: torch.Tensor, *bounds: Any) -> Any:
    """Of two bounds one may be None. No call is plain: PyTorch/XLA takes a bound on the CPU for none, and says nothing.

    Raises:
        RuntimeError: both are None.
    """
    if all(bound is None for bound in bounds):
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    given = [bound for bound in bounds if bound is not None]
    made = iter(converted((values, *given), common((values, *given))))
    return kernel(next(made), *(None if bound is None else next(made) for bound in bounds))


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(
    (
        "add.Tensor",
        "eq.Tensor",
        "ge.Tensor",
        "gt.Tensor",
        "le.Tensor",
        "lt.Tensor",
        "maximum",
        "minimum",
        "mul.Tensor",
        "ne.Tensor",
    ),
    of_one_type,
)
WRAPPED |= dict.fromkeys(
    (
        "bitwise_and.Tensor",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
        "fmod.Tensor",
    ),
    of_one_type_and_tensors,
)
WRAPPED |= {"addcdiv": quotient_added, "addcmul": product_added}
WRAPPED |= {f"{name}.Scalar": compared for name in ("eq", "ge", "gt", "le", "lt", "ne")}
WRAPPED |= {"mse_loss": loss, "smooth_l1_loss": loss}
WRAPPED |= dict.fromkeys(("rsub.Tensor", "sub.Tensor"), difference)
WRAPPED |= {"clamp.Tensor": clamp, "rsub.Scalar": subtracted, "where.self": where, "xlogy.Tensor": xlogy}
