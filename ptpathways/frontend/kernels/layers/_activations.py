"""ELU and its relatives: PyTorch/XLA's gradient is wrong, and its CELU forgets ``alpha`` when it looks for a compiled
computation. Its thresholds take what is no number for something below."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def elu_backward(
    gradient: torch.Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    given: torch.Tensor,
) -> torch.Tensor:
    """The gradient of ``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``.

    ``given`` is the result where ``is_result``, as for the variant in place, else ``x``.
    """
    import torch

    if is_result:
        below = gradient * input_scale * (given + alpha * scale)
    else:
        # exp of what is not below zero could overflow, and infinity times zero is no number
        below = gradient * (input_scale * alpha * scale) * torch.exp(given.clamp(max=0) * input_scale)
    return torch.where(given > 0, gradient * scale, below)


def celu(values: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    import torch

    found: torch.Tensor = torch.ops.aten.elu(values, alpha, 1.0, 1.0 / alpha)
    return found


def _wide(values: torch.Tensor) -> torch.Tensor:
    """Torch compares 16-bit floats with a number in float32."""
    return values.float() if _precision.is_short(values.dtype) else values


def threshold(values: torch.Tensor, threshold: float, value: float) -> torch.Tensor:
    import torch

    return torch.where(_wide(values) <= threshold, value, values).to(values.dtype)


def threshold_backward(gradient: torch.Tensor, values: torch.Tensor, threshold: float) -> torch.Tensor:
    """Also of ReLU, which is given the result."""
    import torch

    return torch.where(_wide(values) <= threshold, 0.0, gradient).to(gradient.dtype)


def hardtanh_backward(gradient: torch.Tensor, values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """0 at the bounds, which are numbers of the type of ``values``."""
    import torch

    wide = _wide(values)
    return torch.where((wide <= low) | (wide >= high), 0.0, gradient).to(gradient.dtype)


def hardsigmoid_backward(gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    import torch

    inside = (values > -3) & (values < 3)
    return torch.where(inside, _wide(gradient) / 6, 0.0).to(gradient.dtype)


def hardswish_backward(gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """0 at -3, and 1 at 3."""
    import torch

    wide, given = _wide(values), _wide(gradient)
    above = torch.where(wide < 3, given * (wide / 3 + 0.5), given)
    return torch.where(wide <= -3, 0.0, above).to(gradient.dtype)


def log_sigmoid(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """And ``exp(-|x|)``, which torch keeps for the gradient."""
    import torch

    wide = _wide(values)
    kept = torch.exp(-wide.abs())
    return (wide.clamp(max=0) - torch.log1p(kept)).to(values.dtype), kept.to(values.dtype)


def log_sigmoid_backward(gradient: torch.Tensor, values: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """1 where ``values`` is negative infinity."""
    import torch

    return (_wide(gradient) * torch.sigmoid(-_wide(values))).to(gradient.dtype)


def softshrink(values: torch.Tensor, by: float = 0.5) -> torch.Tensor:
    """What is no number stays so."""
    import torch

    wide = _wide(values)
    below = torch.where(wide < -by, wide + by, wide * 0)
    return torch.where(wide > by, wide - by, below).to(values.dtype)


def logit(kernel: Callable[..., Any], values: torch.Tensor, eps: float | None = None) -> Any:
    """Between ``eps`` and ``1 - eps``."""
    import torch

    if not values.is_floating_point():
        values = values.to(torch.get_default_dtype())
    return kernel(values if eps is None else values.clamp(eps, 1 - eps), None)


@hands_on(Plain.WIDE | Plain.NO_DOUBLE)
def gelu(kernel: Callable[..., Any], values: torch.Tensor, *, approximate: str = "none") -> Any:
    """PyTorch/XLA's constants are float32, also for float64."""
    import torch

    if values.dtype != torch.float64:
        return _precision.in_float32(kernel, values, approximate=approximate)
    return values * _gelu_factor(values, approximate)[0]


@hands_on(Plain.WIDE | Plain.NO_DOUBLE)
def gelu_backward(
    kernel: Callable[..., Any], gradient: torch.Tensor, values: torch.Tensor, *, approximate: str = "none"
) -> Any:
    import torch

    if values.dtype != torch.float64 or gradient.dtype != torch.float64:
        return _precision.in_float32(kernel, gradient, values, approximate=approximate)
    factor, slope = _gelu_factor(values, approximate)
    return gradient * (factor + values * slope)


def _gelu_factor(values: torch.Tensor, approximate: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The distribution that the values are multiplied with, or what approximates it, and its derivative."""
    import torch

    if approximate == "none":
        factor = 0.5 * (1 + torch.erf(values * math.sqrt(0.5)))
        return factor, torch.exp(-0.5 * values * values) / math.sqrt(2 * math.pi)
    bent = torch.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3))
    inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * values * values)
    return 0.5 * (1 + bent), 0.5 * (1 - bent * bent) * inner


REPLACED: dict[str, Callable[..., Any]] = {
    "elu_backward": elu_backward,
    "celu": celu,
    "hardsigmoid_backward": hardsigmoid_backward,
    "hardswish_backward": hardswish_backward,
    "hardtanh_backward": hardtanh_backward,
    "log_sigmoid_backward": log_sigmoid_backward,
    "log_sigmoid_forward": log_sigmoid,
    "softshrink": softshrink,
    "threshold": threshold,
    "threshold_backward": threshold_backward,
}
WRAPPED: dict[str, Callable[..., Any]] = {"gelu": gelu, "gelu_backward": gelu_backward, "logit": logit}
