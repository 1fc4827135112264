"""Steps of optimizers made with ``fused=True``, which transformers' Trainer takes by default.

Torch has one operation for all parameters of a group. PyTorch/XLA has none; what it compiles of single operations is
fused all the same, so these are written with those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Tensors = Sequence["torch.Tensor"]


def accept_devices() -> None:
    """Lets torch's optimizers take ``fused=True`` for parameters on XLA devices. Idempotent."""
    import importlib

    optimizer: Any = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
    plain = optimizer._get_fused_kernels_supported_devices
    if "xla" in plain():
        return
    optimizer._get_fused_kernels_supported_devices = lambda: [*plain(), "xla"]


def take_own_clipping() -> None:
    """``torch.nn.utils.clip_grad_norm_`` is torch's again: PyTorch/XLA's knows one device. Idempotent."""
    import torch

    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_


def _adam(decoupled: bool) -> Callable[..., None]:
    def step(
        parameters: Tensors,
        gradients: Tensors,
        averages: Tensors,
        squares: Tensors,
        largest: Tensors,
        steps: Tensors,
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: torch.Tensor | None = None,
        found_inf: torch.Tensor | None = None,
    ) -> None:
        import torch

        for place, parameter in enumerate(parameters):
            gradient = _unscaled(gradients[place], grad_scale, maximize)
            value = parameter
            if weight_decay != 0 and decoupled:
                value = parameter * (1 - lr * weight_decay)
            elif weight_decay != 0:
                gradient = gradient + parameter * weight_decay
            average = averages[place].lerp(gradient, 1 - beta1)
            square = squares[place] * beta2 + gradient * gradient * (1 - beta2)
            root = (1 - beta2 ** steps[place]).sqrt()
            most = square
            if amsgrad:
                most = torch.maximum(largest[place], square)
                _put(largest[place], most, found_inf)
            value = value - average / (most.sqrt() / root + eps) * (lr / (1 - beta1 ** steps[place]))
            _put(averages[place], average, found_inf)
            _put(squares[place], square, found_inf)
            _put(parameter, value, found_inf)

    return step


def sgd(
    parameters: Tensors,
    gradients: Tensors,
    momenta: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """One step; the momenta of the first one are made here."""
    for place, parameter in enumerate(parameters):
        gradient = _unscaled(gradients[place], grad_scale, maximize)
        if weight_decay != 0:
            gradient = gradient + parameter * weight_decay
        if momentum != 0:
            kept = gradient if is_first_step else momenta[place] * momentum + gradient * (1 - dampening)
            gradient = gradient + kept * momentum if nesterov else kept
            _put(momenta[place], kept, found_inf)
        _put(parameter, parameter - gradient * lr, found_inf)


def _unscaled(gradient: torch.Tensor, scale: torch.Tensor | None, maximize: bool) -> torch.Tensor:
    if scale is not None:
        gradient.copy_(gradient / scale)
    return -gradient if maximize else gradient


def _put(tensor: torch.Tensor, value: torch.Tensor, found_inf: torch.Tensor | None) -> None:
    """Writes the value, unless the gradients were found to be infinite."""
    import torch

    tensor.copy_(value if found_inf is None else torch.where(found_inf.reshape(()) == 1, tensor, value))


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    f"_fused_{name}_{overload}": kernel
    for name, kernel in (("adam", _adam(decoupled=False)), ("adamw", _adam(decoupled=True)), ("sgd", sgd))
    for overload in ("", ".tensor_lr")
}
