"""Kernels in place of PyTorch/XLA's where those give wrong results, end the process, or fail without saying why.

``docs/operators.md`` has what is compared with PyTorch, and how. Three causes make up most of it:

- a kernel that was not written for some arguments: 0-dimensional or empty tensors, dilation, rounding up of sizes;
- a wrong formula (the gradient of ELU);
- **a wrong computation taken from a cache**: PyTorch/XLA finds compiled computations by a number that is made of the
  operations and their attributes, and a few operations leave an attribute out. ``celu(x, 1.0)`` after
  ``celu(x, 2.0)`` then runs the first one's.

Each is called below autograd, with plain XLA tensors.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels import _optimizers, _views
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_libraries: list[torch.library.Library] = []


def register() -> None:
    """Puts the kernels in torch's table for XLA devices. Idempotent."""
    if _libraries:
        return
    replaced: dict[str, Callable[..., Any]] = {}
    wrapped: dict[str, Callable[..., Any]] = {}
    replaced_above: dict[str, Callable[..., Any]] = {}
    wrapped_above: dict[str, Callable[..., Any]] = {}
    wrapped_in_place: dict[str, Callable[..., Any]] = {}
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        replaced |= getattr(module, "REPLACED", {})
        wrapped |= getattr(module, "WRAPPED", {})
        replaced_above |= getattr(module, "REPLACED_ABOVE_AUTOGRAD", {})
        wrapped_above |= getattr(module, "WRAPPED_ABOVE_AUTOGRAD", {})
        wrapped_in_place |= getattr(module, "WRAPPED_FUNCTIONALIZATION", {})
    _libraries.extend((_xla.replace_kernels(replaced), _xla.wrap_kernels(wrapped)))
    _optimizers.accept_devices()
    _optimizers.take_own_clipping()
    _views.take_own_copies()
    _libraries.append(_xla.wrap_kernels(wrapped_in_place, "Functionalize"))
    above = "AutogradXLA"
    _libraries.extend((_xla.replace_kernels(replaced_above, above), _xla.wrap_kernels(wrapped_above, above)))
