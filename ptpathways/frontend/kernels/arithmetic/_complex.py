"""Complex numbers: PyTorch/XLA divides their real parts only, has no moments of them, and some wrong gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _fallback, _refusals, _small
from ptpathways.frontend.xla import _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@functools.cache
def _by_number() -> Callable[..., Any]:
    return _xla.former("div.Scalar")


@hands_on(Plain.FLOATING | Plain.SAME_TYPES | Plain.WIDE)
def divide(kernel: Callable[..., Any], values: torch.Tensor, other: Any) -> Any:
    """``values / other``; the divisor is scaled, so that its square does not overflow."""
    import torch

    if not isinstance(values, torch.Tensor):
        values = _xla.number(values, torch.result_type(other, values), other.device)
    if not isinstance(other, torch.Tensor):
        return divide_by_number(_by_number(), values, other)
    dtype = torch.result_type(values, other)
    if not dtype.is_complex:
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return kernel(values.to(dtype), other.to(dtype))
    values, other = values.to(dtype), other.to(dtype)
    if values.numel() == 0 or other.numel() == 0:
        return values * other
    divisor = torch.view_as_real_copy(other)
    largest = divisor.abs().amax([-1], keepdim=True)
    nothing = largest == 0
    largest = torch.where(nothing, torch.ones_like(largest), largest)
    scaled = divisor / largest
    signs = torch.tensor([1.0, -1.0], dtype=scaled.dtype).to(scaled.device)
    product = torch.view_as_real_copy(values * torch.view_as_complex_copy(scaled * signs))
    quotient = product / (scaled.square().sum([-1], keepdim=True) * largest)
    infinite = torch.view_as_real_copy(values) / divisor.narrow(-1, 0, 1)
    return torch.view_as_complex_copy(torch.where(nothing, infinite, quotient))


@hands_on(Plain.FLOATING | Plain.WIDE)
def divide_by_number(kernel: Callable[..., Any], values: torch.Tensor, other: complex) -> Any:
    """A number is not rounded to 16 bits."""
    if values.is_complex() or isinstance(other, complex):
        return values * (1 / other if other else complex("inf"))
    import torch

    if not values.is_floating_point():
        values = values.to(torch.get_default_dtype())
    return _precision.in_float32(kernel, values, other)


def real_parts(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """The kernel gives its result a layout of too few dimensions, and to transpose that ends the process."""
    return kernel(values) * 1


def moments(operation: str) -> Callable[..., Any]:
    """``var``, ``std`` and their relatives: of complex numbers on the client."""

    @hands_on(Plain.FLOATING | Plain.WIDE | Plain.WITH_DIMENSIONS | Plain.DIMENSIONS_NAMED)
    def wrapper(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if rest:
            rest = (_small.dimensions(values, rest[0]), *rest[1:])
        if not values.is_floating_point() and not values.is_complex():
            raise RuntimeError(
                f"{operation} needs a tensor of a floating-point or complex type, got {values.dtype}; convert it, as "
                "with values.float()"
            )
        if not values.is_complex():
            run = kernel if values.dim() > 0 else functools.partial(_small.scalar_as_vector, kernel)
            return _precision.in_float32(run, values, *rest, **named)
        import torch

        return _fallback.on_client(getattr(torch.ops.aten, operation).correction, values, *rest, **named)

    return wrapper


NO_TYPE = Plain.UNIT_FACTORS
"""No ``dtype=``: types come as numbers, too, and these operations have no others. PyTorch/XLA converts their result."""


@hands_on(Plain.FLOATING | Plain.WIDE | Plain.WITH_DIMENSIONS | Plain.DIMENSIONS_NAMED | Plain.OWN_TYPE | NO_TYPE)
def mean(
    kernel: Callable[..., Any], values: torch.Tensor, dim: Sequence[int] | None = None, *rest: Any, **named: Any
) -> Any:
    """``mean`` over some dimensions; of a 0-dimensional tensor, too."""
    if _is_named(named) and not _precision.is_short(values.dtype):
        values = values.to(named.pop("dtype"))
    dim = _small.dimensions(values, dim)
    if values.dim() > 0 and not _precision.is_short(values.dtype) and not values.is_complex():
        return kernel(values, dim, *rest, **_typed(values, named))
    import torch

    if _precision.is_short(values.dtype):
        wide = kernel if values.dim() > 0 else functools.partial(mean, kernel)
        return _precision.wider(wide, values, dim, *rest, **named)
    if values.dim() == 0:
        if not values.is_floating_point() and not values.is_complex():
            raise RuntimeError(
                "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
                f"Got: {values.dtype}"
            )
        _small.check_of_scalar(*dim)
        if len(dim) > 1:
            raise RuntimeError("dim 0 appears multiple times in the list of dims")
        return values.to(named["dtype"]) if named.get("dtype") else values.clone()
    count = math.prod(values.shape[index] for index in dim)
    return torch.sum(values, dim, *rest, **named) / count


@hands_on(Plain.REAL)
def tanh_backward(kernel: Callable[..., Any], gradient: torch.Tensor, result: torch.Tensor) -> Any:
    if not result.is_complex():
        return kernel(gradient, result)
    return gradient * (1 - result * result).conj().resolve_conj()


@hands_on(Plain.REAL)
def sigmoid_backward(kernel: Callable[..., Any], gradient: torch.Tensor, result: torch.Tensor) -> Any:
    if not result.is_complex():
        return kernel(gradient, result)
    return gradient * ((1 - result) * result).conj().resolve_conj()


def _is_named(named: dict[str, Any]) -> bool:
    """Whether there is a ``dtype=``."""
    import torch

    return isinstance(named.get("dtype"), torch.dtype)


def _typed(values: torch.Tensor, named: dict[str, Any]) -> dict[str, Any]:
    """With the values' type, if no other is named (``Plain.OWN_TYPE``)."""
    return named if named.get("dtype") is not None else named | {"dtype": values.dtype}


@hands_on(Plain.FLOATING | Plain.WIDE | Plain.OWN_TYPE | NO_TYPE)
def mean_of_all(kernel: Callable[..., Any], values: torch.Tensor, **named: Any) -> Any:
    if _is_named(named) and not _precision.is_short(values.dtype):
        values = values.to(named.pop("dtype"))
    if _precision.is_short(values.dtype):
        return _precision.wider(kernel, values, **named)
    if not values.is_complex():
        return kernel(values, **_typed(values, named))
    import torch

    return torch.sum(values, **named) / values.numel()


@hands_on(Plain.FLOATING | Plain.WIDE)
def constant_pad(kernel: Callable[..., Any], values: torch.Tensor, pad: Sequence[int], value: complex = 0) -> Any:
    """Real and imaginary parts, one after the other. A number that the tensor's type does not have is refused."""
    if not values.is_complex():
        _refusals.check_holds(values.dtype, value)
        return kernel(values, pad, value)
    import torch

    parts = torch.view_as_real_copy(values)
    real, imaginary = (parts.select(-1, number) for number in (0, 1))
    value = complex(value)
    padded = [kernel(real, pad, value.real), kernel(imaginary, pad, value.imag)]
    return torch.view_as_complex_copy(torch.stack(padded, -1))


def einsum(
    kernel: Callable[..., Any], equation: str, tensors: Sequence[torch.Tensor], *, path: Sequence[int] | None = None
) -> Any:
    """PyTorch/XLA's gradient takes no conjugates, so complex ones are made of torch's products; and it reads beyond the
    end of a tensor where one letter has two sizes, which torch's refuses, takes the first one's type of several, and
    finds no result in ``"ii"``."""
    import torch

    alike = len({tensor.dtype for tensor in tensors}) == 1 and not tensors[0].is_complex()
    if alike and _has_one_size_each(equation, tensors):
        return kernel(equation, tensors, path=path)
    of_torch = torch.library.get_kernel("aten::einsum", "CPU")
    keys = torch._C._dispatch_keys(tensors[0])
    return of_torch.call_boxed(keys, equation, tensors, path=path)


def _has_one_size_each(equation: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether each letter of the equation stands for dimensions of one size, and once in the result, also where that
    is not given."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if not arrow and any(len(set(part)) < len(part) for part in parts):
        return False
    if len(parts) != len(tensors) or "." in equation or len(set(wanted)) < len(wanted):
        return False
    sizes: dict[str, int] = {}
    for part, tensor in zip(parts, tensors, strict=True):
        shape = tensor.shape
        if len(part) != len(shape):
            return False
        for letter, size in zip(part, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return False
    return True


WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"einsum": einsum}
WRAPPED: dict[str, Callable[..., Any]] = {
    f"{name}.correction": moments(name) for name in ("var", "std", "var_mean", "std_mean")
}
WRAPPED |= {
    "constant_pad_nd": constant_pad,
    "div.Scalar": divide_by_number,
    "div.Tensor": divide,
    "mean": mean_of_all,
    "mean.dim": mean,
    "sigmoid_backward": sigmoid_backward,
    "tanh_backward": tanh_backward,
    "view_as_real_copy": real_parts,
}
