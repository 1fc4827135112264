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
    trainer: Any = getattr(module, "Trainer", None)
    if trainer is not None and not hasattr(trainer.__init__, "__wrapped__"):
        _refuse_shards(trainer, lambda given: "fsdp" if getattr(given.get("args"), "fsdp", None) else None)


def _asked_of_accelerate(given: Mapping[str, Any]) -> str | None:
    for name in ("fsdp_plugin", "torch_tp_plugin", "parallelism_config"):
        if (value := given.get(name)) is not None and getattr(value, "total_size", None) != 1:
            return name
    asked = os.environ.get("ACCELERATE_USE_FSDP", "")  # `accelerate launch --use_fsdp` sets it
    return "fsdp_plugin" if asked.lower() in ("1", "true", "yes", "on", "y", "t") else None


def _refuse_shards(of: Any, asked: Callable[[Mapping[str, Any]], str | None]) -> None:
    """Has a class refuse to be made where ``asked``, with the arguments by name, returns the name of one."""
    make = of.__init__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            given = signature.bind_partial(self, *arguments, **named).arguments
        except TypeError:  # the class says what is wrong with them
            given = {}
        if (name := asked(given)) is not None:
            raise ValueError(
                f"{of.__name__}({name}=...) would shard parameters over processes, and this process drives all "
                f"devices of its cluster; leave {name} out, and shard the model before it is given to "
                f'{of.__name__}: model = pw.prepare(model, strategy="fsdp") (docs/training.md)'
            )
        make(self, *arguments, **named)

    of.__init__ = init


def _identifying(identify: Any) -> Any:
    @functools.wraps(identify)
    def id_tensor_storage(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "xla":
            return identify(tensor)
        storage = tensor.untyped_storage()
        return tensor.device, storage._cdata, storage.nbytes()

    return id_tensor_storage
