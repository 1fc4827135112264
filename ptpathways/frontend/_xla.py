"""torch_xla's private bindings and its kernels, and nothing else: what they are called is checked here and nowhere
assumed twice."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def binding() -> Any:
    """The extension module of torch_xla, imported by the first call."""
    import torch_xla

    return torch_xla._XLAC


def device_name(index: int) -> str:
    """What the bindings call torch's device ``index``."""
    return f"xla:{index}"


def index_of(device: torch.device) -> int:
    """The number of one of torch's XLA devices; of ``"xla"`` without a number, that of the current device."""
    if device.index is not None:
        return device.index
    return int(binding()._xla_get_default_device_ordinal())


def replace_kernels(kernels: Mapping[str, Callable[..., Any]]) -> torch.library.Library:
    """Puts functions in torch's table of operations for XLA devices, by name, as long as the result is kept."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch notes that a kernel replaces another, which is the intention
        for name, kernel in kernels.items():
            library.impl(name, kernel, "XLA", allow_override=True)
    return library
