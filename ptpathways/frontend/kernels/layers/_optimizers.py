"""Steps of optimizers made with ``fused=True``, which transformers' Trainer takes by default.

Torch has one operation for all parameters of a group. PyTorch/XLA has none; what it compiles of single operations is
fused all the same, so these are written with those, a call for all tensors of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.slices import _buffers

if TYPE_CHECKING:
    import torch

Tensors = list["torch.Tensor"] | tuple["torch.Tensor", ...]


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


def _unless_infinite(step: Callable[..., None]) -> Callable[..., None]:
    """``step`` of unscaled gradients, and no step where they were found to be infinite; both as GradScaler asks.

    States are written in place otherwise: what takes their place has its own order in PyTorch/XLA's computations, and
    the first step's would not be that of the second.
    """

    def kernel(
        parameters: Tensors,
        gradients: Tensors,
        *states: Tensors,
        maximize: bool,
        grad_scale: torch.Tensor | None = None,
        found_inf: torch.Tensor | None = None,
        **options: Any,
    ) -> None:
        import torch

        if grad_scale is not None:
            torch._foreach_div_(gradients, grad_scale)
        if maximize:
            gradients = torch._foreach_neg(gradients)
        written = [one for tensors in (parameters, *states) for one in tensors]
        before = [] if found_inf is None else [one.clone() for one in written]
        if _buffers.share_memory(parameters):  # each step of what the one before has left
            for place in range(len(parameters)):
                lists = (tensors[place : place + 1] for tensors in (parameters, gradients, *states))
                step(*lists, **options)
        else:
            step(parameters, gradients, *states, **options)
        if found_inf is not None:
            stays = found_inf.reshape(()) == 1
            for one, old in zip(written, before, strict=True):
                one.copy_(torch.where(stays, old, one))

    return kernel


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
    ) -> None:
        import torch

        if weight_decay != 0 and decoupled:
            torch._foreach_mul_(parameters, 1 - lr * weight_decay)
        elif weight_decay != 0:
            gradients = torch._foreach_add(gradients, parameters, alpha=weight_decay)
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        if amsgrad:
            torch._foreach_maximum_(largest, squares)
        # Counts are tensors of devices without dimensions: together they are one. In float32 1 - 0.999 has four digits.
        counts = torch.stack(list(steps)).double()
        dtype = torch.float64 if parameters[0].dtype == torch.float64 else torch.float32
        roots = (1 - beta2**counts).sqrt().to(dtype).unbind()
        rates = (lr / (1 - beta1**counts)).to(dtype).unbind()
        scales = torch._foreach_sqrt(largest if amsgrad else squares)
        torch._foreach_div_(scales, roots)
        torch._foreach_add_(scales, eps)
        changes = torch._foreach_div(averages, scales)
        torch._foreach_mul_(changes, rates)
        torch._foreach_sub_(parameters, changes)

    return step


def _sgd(
    parameters: Tensors,
    gradients: Tensors,
    momenta: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    is_first_step: bool,
) -> None:
    """One step; the momenta of the first one are made here."""
    import torch

    if weight_decay != 0:
        gradients = torch._foreach_add(gradients, parameters, alpha=weight_decay)
    if momentum != 0:
        if is_first_step:
            torch._foreach_copy_(momenta, gradients)
        else:
            torch._foreach_mul_(momenta, momentum)
            torch._foreach_add_(momenta, gradients, alpha=1 - dampening)
        gradients = torch._foreach_add(gradients, momenta, alpha=momentum) if nesterov else momenta
    torch._foreach_sub_(parameters, torch._foreach_mul(gradients, lr))


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    f"_fused_{name}_{overload}": _unless_infinite(step)
    for name, step in (("adam", _adam(decoupled=False)), ("adamw", _adam(decoupled=True)), ("sgd", _sgd))
    for overload in ("", ".tensor_lr")
}
