"""What torch refuses for its tensors' types, and PyTorch/XLA computes with: matrices of two types, of which the first
decided, the larger of complex numbers, a float's function of integers that gives integers. Of some the computation
ended the process that compiled it: the softmax of complex numbers, products of booleans.

What torch's CPU merely lacks a kernel for, such as some functions of 16-bit floats, is not refused.
``python -m tests.fuzz.refusals`` compares.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Refusal:
    """What of an operation's tensors is refused."""

    booleans: bool = False
    integers: bool = False
    floats: bool = False
    complexes: bool = False
    mixed: bool = False
    """Of more than one type, but for those that are made of numbers."""
    count: int | None = None
    """Only of so many arguments, as where others are indices."""

    @property
    def plain(self) -> Plain | None:
        """Of which arguments nothing is; None: of none that can be told without looking."""
        held = Plain(0)
        if self.floats:
            return None
        if self.integers:
            held |= Plain.FLOATING
        elif self.booleans:
            held |= Plain.SMALL_NUMBERS
        if self.complexes:
            held |= Plain.REAL
        return held | Plain.SAME_TYPES if self.mixed else held

    def check(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """
        Raises:
            RuntimeError: it is refused.
        """
        given = (*arguments, *named.values()) if self.count is None else arguments[: self.count]
        tensors = list(_tensors(given))
        if self.complexes and any(isinstance(item, complex) for item in given):
            raise RuntimeError(f"{name} is not of complex numbers, got {given[-1]}; take its .real")
        for tensor in tensors:
            if self._refuses(tensor.dtype):
                raise RuntimeError(
                    f"{name} is not of tensors of {tensor.dtype}, as in eager PyTorch; convert it to a type that it is "
                    "of (.float(), .to(dtype)), or take the .real part of complex numbers"
                )
        if self.mixed:
            one_type(name, *tensors)

    def _refuses(self, dtype: torch.dtype) -> bool:
        import torch

        if dtype == torch.bool:
            return self.booleans
        if dtype.is_complex:
            return self.complexes
        return self.floats if dtype.is_floating_point else self.integers


def one_type(name: str, *tensors: torch.Tensor | None) -> None:
    """
    Raises:
        RuntimeError: they are of several types.
    """
    types = list(dict.fromkeys(str(tensor.dtype) for tensor in tensors if tensor is not None))
    if len(types) > 1:
        raise RuntimeError(
            f"{name} needs tensors that have the same dtype, got {' and '.join(types)}; convert some (.to(other.dtype))"
        )


@functools.lru_cache(maxsize=1024)
def check_holds(dtype: torch.dtype, number: complex) -> None:
    """
    Raises:
        RuntimeError: no such number is of the type.
    """
    import torch

    one = torch.ones((), dtype=torch.bool, device="cpu")
    one.to(dtype).masked_fill_(one, number)


def _tensors(given: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    import torch

    for item in given:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from _tensors(tuple(item))


_REAL = Refusal(complexes=True)
_FLOATS = Refusal(booleans=True, integers=True, complexes=True)
_FLOATS_OF_ONE_TYPE = Refusal(booleans=True, integers=True, complexes=True, mixed=True)
_FLOATS_OR_COMPLEX = Refusal(booleans=True, integers=True)
_NUMBERS = Refusal(booleans=True, complexes=True)
_REAL_VALUES = Refusal(complexes=True, count=1)
_PRODUCT = Refusal(booleans=True, mixed=True)

CHECKED: dict[str, Refusal] = dict.fromkeys(
    (
        "amax",
        "amin",
        "clamp",
        "clamp.Tensor",
        "clamp_max",
        "clamp_max.Tensor",
        "clamp_min",
        "clamp_min.Tensor",
        "cummax",
        "cummin",
        "erf",
        "erfc",
        "erfinv",
        "fmod.Scalar",
        "fmod.Tensor",
        "isneginf",
        "isposinf",
        "max_unpool2d",
        "max_unpool3d",
        "maximum",
        "minimum",
        "mse_loss",
        "remainder.Scalar",
        "remainder.Tensor",
        "sign",
        "softshrink",
        *(f"{name}.{overload}" for name in ("ge", "gt", "le", "lt") for overload in ("Scalar", "Tensor")),
    ),
    _REAL,
)
CHECKED |= dict.fromkeys(
    (
        "_log_softmax",
        "_softmax",
        "bernoulli",
        "elu",
        "exponential",
        "frac",
        "gelu",
        "glu",
        "hardshrink",
        "hardsigmoid",
        "hardswish",
        "leaky_relu",
        "log_sigmoid_forward",
        "mish",
        "round.decimals",
        "softplus",
    ),
    _FLOATS,
)
CHECKED |= dict.fromkeys(("ceil", "floor", "hardtanh", "relu", "round", "threshold", "trunc"), _NUMBERS)
CHECKED |= dict.fromkeys(("sort", "sort.stable"), _REAL_VALUES)
CHECKED |= dict.fromkeys(("cholesky", "linalg_inv_ex", "normal_", "normal.float_Tensor", "silu"), _FLOATS_OR_COMPLEX)
CHECKED |= dict.fromkeys(
    ("normal.Tensor_float", "normal.Tensor_Tensor"), Refusal(booleans=True, integers=True, count=1)
)
CHECKED |= dict.fromkeys(("addbmm", "addmm", "baddbmm", "bmm", "dot", "mm", "mv"), _PRODUCT)
CHECKED |= {
    "_weight_norm_interface": Refusal(mixed=True),
    "_prelu_kernel": _FLOATS_OF_ONE_TYPE,
    "_softmax_backward_data": _FLOATS_OF_ONE_TYPE,
    "_cdist_forward": _FLOATS_OF_ONE_TYPE,
    "argmax": Refusal(booleans=True),
    "argmin": Refusal(booleans=True),
    "atan2": _REAL,
    "abs": Refusal(booleans=True),
    "bitwise_not": Refusal(floats=True, complexes=True),
    "binary_cross_entropy": Refusal(booleans=True, integers=True, complexes=True, mixed=True, count=2),
    "convolution_overrideable": Refusal(booleans=True, mixed=True, count=3),
    "histc": _REAL,
    "kthvalue": Refusal(booleans=True, complexes=True, count=1),
    "lerp.Scalar": Refusal(booleans=True, integers=True, mixed=True),
    "lerp.Tensor": Refusal(booleans=True, integers=True, mixed=True),
    "linalg_vector_norm": _FLOATS_OR_COMPLEX,
    "logit": _REAL,
    "mvlgamma": Refusal(booleans=True),
    "topk": Refusal(booleans=True, complexes=True, count=1),
    "triangular_solve": Refusal(booleans=True, integers=True, mixed=True),
    "uniform_": _FLOATS_OR_COMPLEX,
}
"""By operation. Those that are made of these, or that the client computes, need no line of their own."""
