"""Two functions of accelerate that fail for models on XLA devices, and through it those of transformers' Trainer.

``Accelerator.prepare`` compares the names of parameters before and after ``torch.compile``, which puts ``_orig_mod.``
before each (``KeyError``). ``Accelerator.save_model`` finds tied weights by the addresses of their storages, which
tensors of XLA devices do not have.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import importlib.machinery
    import types
    from collections.abc import Sequence

    import torch

_MODULE = "accelerate.accelerator"
_COMPILED = "_orig_mod."


def register() -> None:
    """Mends accelerate, now or when the program imports it. Idempotent."""
    if _MODULE in sys.modules:
        _mend()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Mends the module as soon as it is imported, and is no longer asked then."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                _mend()

            loader.exec_module = exec_module
        return spec


def _mend() -> None:
    modules: dict[str, Any] = sys.modules
    accelerator: Any = getattr(modules[_MODULE], "Accelerator", None)
    names = getattr(accelerator, "_get_named_parameters", None)
    if names is not None and not hasattr(names, "__wrapped__"):  # else another version, or done

        @functools.wraps(names)
        def named_parameters(self: Any, *objects: Any, **options: Any) -> dict[str, torch.nn.Parameter]:
            found = names(self, *objects, **options)
            return {name.replace(_COMPILED, ""): parameter for name, parameter in found.items()}

        accelerator._get_named_parameters = named_parameters

    for name in ("accelerate.utils.modeling", "accelerate.utils.other"):
        module = modules.get(name)
        identify = getattr(module, "id_tensor_storage", None)
        if identify is not None and not hasattr(identify, "__wrapped__"):
            vars(module)["id_tensor_storage"] = _identifying(identify)


def _identifying(identify: Any) -> Any:
    @functools.wraps(identify)
    def id_tensor_storage(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "xla":
            return identify(tensor)
        storage = tensor.untyped_storage()
        return tensor.device, storage._cdata, storage.nbytes()

    return id_tensor_storage
