"""Operations that torch makes of others, and of which PyTorch/XLA has kernels without gradients.

Where there are such kernels torch records no gradient. It does of the others where functionalization makes them of
these, but not in transforms of ``torch.func``: there ``grad`` of ``selu`` or ``kl_div`` was zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAMES = ("cross", "diag", "kl_div", "logdet", "qr", "selu", "selu_", "std", "std.dim", "svd")


def of_others(name: str) -> Callable[..., Any]:
    """What torch makes of an operation for its other devices."""

    @functools.cache
    def of_torch() -> Any:
        import torch

        return torch.library.get_kernel(f"aten::{name}", "CPU")

    def made(*arguments: Any, **named: Any) -> Any:
        import torch

        return of_torch().call_boxed(torch._C._dispatch_keys(arguments[0]), *arguments, **named)

    return made


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {name: of_others(name) for name in NAMES}
