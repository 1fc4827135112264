"""Parts of accelerate and transformers that fail for models on XLA devices, or leave undone what they are asked for.

``Accelerator.prepare`` compares the names of parameters before and after ``torch.compile``, which puts ``_orig_mod.``
before each (``KeyError``). ``Accelerator.save_model`` finds tied weights by the addresses of their storages, which
tensors of XLA devices do not have. Sharded parameters that are asked for by their arguments are refused by name:
accelerate would not shard, and transformers' Trainer fails in its own scheduler.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._when_imported import when_imported

if TYPE_CHECKING:
    import torch

_COMPILED = "_orig_mod."
_REFUSES = "_refuses_shards"
"""An attribute of constructors that were wrapped."""


def register() -> None:
    """Mends both, now or when the program imports them. Idempotent."""
    when_imported("accelerate.accelerator", _mend_accelerate)
    when_imported("transformers.trainer", _mend_transformers)


def _mend_accelerate(module: Any) -> None:
    accelerator: Any = getattr(module, "Accelerator", None)
    names = getattr(accelerator, "_get_named_parameters", None)
    if names is not None and not hasattr(names, "__wrapped__"):  # else another version, or done

        @functools.wraps(names)
        def named_parameters(self: Any, *objects: Any, **options: Any) -> dict[str, torch.nn.Parameter]:
            found = names(self, *objects, **options)
            return {name.replace(_COMPILED, ""): parameter for name, parameter in found.items()}

        accelerator._get_named_parameters = named_parameters
    _refuse_shards(accelerator, _asked_of_accelerate)

    for name in ("accelerate.utils.modeling", "accelerate.utils.other"):
        other = sys.modules.get(name)
        identify = getattr(other, "id_tensor_storage", None)
        if identify is not None and not hasattr(identify, "__wrapped__"):
            vars(other)["id_tensor_storage"] = _identifying(identify)


def _mend_transformers(module: Any) -> None:
    _refuse_shards(getattr(module, "Trainer", None), _asked_of_trainer)


def _asked_of_accelerate(given: Mapping[str, Any]) -> str | None:
    for name in ("fsdp_plugin", "torch_tp_plugin", "parallelism_config"):
        if (value := given.get(name)) is not None and getattr(value, "total_size", None) != 1:
            return f"{name}="
    # `accelerate launch --use_fsdp` sets it.
    asked = os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes", "on", "y", "t")
    return "ACCELERATE_USE_FSDP in the environment" if asked else None


def _asked_of_trainer(given: Mapping[str, Any]) -> str | None:
    return "fsdp=" if getattr(given.get("args"), "fsdp", None) else None


def _refuse_shards(of: Any, asked: Callable[[Mapping[str, Any]], str | None]) -> None:
    """Has a class refuse to be made where ``asked``, which is given the arguments by name, says what asks for shards.
    None: another version has no such class."""
    make = getattr(of, "__init__", None)
    if make is None or hasattr(make, _REFUSES):
        return
    signature = inspect.signature(make)

    @functools.wraps(make)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            given = signature.bind_partial(self, *arguments, **named).arguments
        except TypeError:  # the class says what is wrong with them
            given = {}
        if (cause := asked(given)) is not None:
            raise ValueError(
                f"{of.__name__} with {cause} would shard parameters over processes, and this process drives all "
                f"devices of its cluster; leave it out, and shard the model before it is given to {of.__name__}: "
                'model = pw.prepare(model, strategy="fsdp") (docs/training.md)'
            )
        make(self, *arguments, **named)

    setattr(init, _REFUSES, True)
    of.__init__ = init


def _identifying(identify: Any) -> Any:
    @functools.wraps(identify)
    def id_tensor_storage(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "xla":
            return identify(tensor)
        storage = tensor.untyped_storage()
        return tensor.device, storage._cdata, storage.nbytes()

    return id_tensor_storage
