"""Kernels in place of PyTorch/XLA's where those give wrong results, end the process, or fail without saying why.

``docs/operators.md`` has what is compared with PyTorch, and how. Three causes make up most of it:

- a kernel that was not written for some arguments: 0-dimensional or empty tensors, dilation, rounding up of sizes;
- a wrong formula (the gradient of ELU);
- **a wrong computation taken from a cache**: PyTorch/XLA finds compiled computations by a number that is made of the
  operations and their attributes, and a few operations leave an attribute out. ``celu(x, 1.0)`` after
  ``celu(x, 2.0)`` then runs the first one's.

Each is called below autograd, with plain XLA tensors. The packages in this one divide them by subject.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.algebra import _linearized, _reductions
from ptpathways.frontend.kernels.calls import _checks, _operands, _texts
from ptpathways.frontend.kernels.layers import _optimizers
from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_libraries: list[torch.library.Library] = []

_KEYS = {
    "REPLACED": "XLA",
    "WRAPPED": "XLA",
    "WRAPPED_FUNCTIONALIZATION": "Functionalize",
    "REPLACED_ABOVE_AUTOGRAD": "AutogradXLA",
    "WRAPPED_ABOVE_AUTOGRAD": "AutogradXLA",
}
"""Of the modules' tables the dispatch key under which torch calls what they have."""
_CHECKS = ("", "_ABOVE_AUTOGRAD", "_FUNCTIONALIZATION")
"""Of tables CHECKED, before whose kernels they come."""


def find_modules() -> list[str]:
    """The modules of all packages, in the order of their own names.

    Of two modules that check one operation the later one's check comes first.
    """
    found = [module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.") if not module.ispkg]
    return sorted(found, key=lambda name: name.rpartition(".")[2])


def register() -> None:
    """Puts the kernels in torch's table for XLA devices. Idempotent."""
    if _libraries:
        return
    found: dict[str, dict[str, Callable[..., Any]]] = {table: {} for table in _KEYS}
    modules = [importlib.import_module(name) for name in find_modules()]
    for module in modules:
        for table, kernels in found.items():
            kernels |= getattr(module, table, {})
    for module in modules:
        for where in _CHECKS:
            checks = getattr(module, f"CHECKED{where}", {})
            _checks.put_before(checks, found.get(f"REPLACED{where}", {}), found[f"WRAPPED{where}"])
    wrapped, replaced = found["WRAPPED"], found["REPLACED"]
    for name in _operands.ACCEPTED:
        if name in replaced:
            replaced[name] = _operands.brought_to_replaced(replaced[name])
        else:
            wrapped[name] = _operands.brought(wrapped.get(name, _checks.as_it_is))
    for name in (*_operands.REFUSED_UNLIKE, *_operands.TAKEN_UNLIKE):
        wrapper = wrapped.get(name, _checks.as_it_is)
        wrapped[name] = _operands.alike(wrapper, name in _operands.REFUSED_UNLIKE)
    for name in _texts.TOLD:
        if name not in replaced:
            wrapped[name] = _texts.in_torchs_words(name, wrapped.get(name, _checks.as_it_is))
    for name in _texts.OF_DIMENSIONS:
        wrapped[name] = _texts.dimensions_told(name, wrapped.get(name, _checks.as_it_is))
    views = found["WRAPPED_ABOVE_AUTOGRAD"]
    for name in _views.VIEWS:
        views[name] = _views.of_what_is_there(views.get(name, _checks.as_it_is))
    for table, kernels in found.items():
        put = _xla.replace_kernels if table.startswith("REPLACED") else _xla.wrap_kernels
        _libraries.append(put(kernels, _KEYS[table]))
    _optimizers.accept_devices()
    _optimizers.take_own_clipping()
    _reductions.take_own_norm()
    _linearized.take_own_linearize()
    _views.take_own_copies()
    _views.refuse_unknown_memory()
