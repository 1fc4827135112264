"""Powers. XLA takes an integer's exponent modulo 16 to 128, and PyTorch/XLA takes no complex one for a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic._mixed_types import as_number, common, converted
from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch

_BITS = 3
"""Of an exponent that XLA takes as it is, whatever the integers' type."""


@hands_on(Plain.FLOATING)
def by_number(kernel: Callable[..., Any], values: torch.Tensor, exponent: complex) -> Any:
    """``values ** exponent``.

    Raises:
        RuntimeError: an integer has a negative exponent.
    """
    import torch

    dtype = torch.result_type(values, exponent)
    if isinstance(exponent, complex):
        given = _xla.number(exponent, dtype, values.device)
        return _of_complex(_xla.former("pow.Tensor_Tensor"), values.to(dtype), given)
    if dtype.is_floating_point or dtype.is_complex:
        return kernel(values.to(dtype), exponent)
    exponent = int(exponent)
    if exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return _of_integers(values.to(dtype), exponent)


def _of_complex(kernel: Callable[..., Any], values: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """0 has the logarithm of 0, times which an imaginary part is no number."""
    import torch

    grows = torch.view_as_real_copy(exponent).select(-1, 0) > 0
    found: torch.Tensor = torch.where((values == 0) & grows, torch.zeros_like(values), kernel(values, exponent))
    return found


def _of_integers(values: torch.Tensor, exponent: int) -> torch.Tensor:
    """By squaring; as integers do, powers wrap round."""
    import torch

    result = None
    while exponent:
        if exponent & 1:
            result = values if result is None else result * values
        exponent >>= 1
        if exponent:
            values = values * values
    return torch.ones_like(values) if result is None else result


@hands_on(Plain.FLOATING | Plain.SAME_TYPES)
def power(kernel: Callable[..., Any], values: Any, exponent: Any) -> Any:
    """As torch does, 1 and -1 have negative powers among integers, and others' are 0.

    Raises:
        NotImplementedError: both are booleans.
    """
    import torch

    dtype = common((values, exponent))
    if dtype == torch.bool:
        raise NotImplementedError("\"pow\" not implemented for 'Bool': convert one of the two, as with values.int()")
    values, exponent = converted((values, exponent), dtype)
    if dtype.is_complex:
        return _of_complex(kernel, values, exponent)
    if dtype.is_floating_point:
        return kernel(values, exponent)
    few = (1 << _BITS) - 1
    result, left = kernel(values, torch.where(exponent < 0, exponent, exponent & few)), exponent
    for _ in range(_BITS, torch.iinfo(dtype).bits, _BITS):
        values = kernel(values, torch.full_like(values, 1 << _BITS))
        left = left >> _BITS
        result = result * torch.where(exponent < 0, 1, kernel(values, left & few))
    return result


def of_number(kernel: Callable[..., Any], base: complex, exponent: torch.Tensor) -> Any:
    """``base ** exponent``. PyTorch/XLA makes the base a part of the computation, and schedulers change betas at each
    step; whole numbers stay what they are, because XLA has faster ways to them."""
    import torch

    dtype = torch.result_type(base, exponent)
    if dtype.is_floating_point and not isinstance(base, complex) and float(base).is_integer():
        return kernel(base, exponent.to(dtype))
    given = _xla.number(as_number(base, dtype), dtype, exponent.device)
    if dtype.is_floating_point:
        return _xla.former("pow.Tensor_Tensor")(given, exponent.to(dtype))
    return power(_xla.former("pow.Tensor_Tensor"), given, exponent)


WRAPPED: dict[str, Callable[..., Any]] = {
    "pow.Scalar": of_number,
    "pow.Tensor_Scalar": by_number,
    "pow.Tensor_Tensor": power,
}
