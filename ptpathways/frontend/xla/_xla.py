"""torch_xla's private bindings and its kernels, and nothing else: what they are called is checked here and nowhere
assumed twice."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla import _plain
from ptpathways.sharding import Tiling

if TYPE_CHECKING:
    import torch

SHARD_TARGET = "pathways.shard"
"""What the name of the plugin's custom call begins with that says how a value lies. Where it says so of another number
of devices than there are it is a copy."""


_formers: dict[str, Any] = {}


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


def said_to_lie(tensor: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """A computed copy of ``tensor`` that lies as ``tiling`` says, where it is of as many devices as the computation.

    Every call adds one custom call to the trace. The layout is in the name of its target, because PyTorch/XLA compares
    the targets of custom calls and not their other attributes.
    """
    parts, tiles = (",".join(map(str, numbers)) for numbers in tiling)
    return _custom_call(tensor, f"{SHARD_TARGET}:parts={parts};tiles={tiles}")


def computed_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of ``tensor`` whose buffer is its own, as PyTorch/XLA's clones and products with one are not.

    Raises:
        RuntimeError: PyTorch/XLA has no client yet.
    """
    from torch_xla import runtime

    if runtime.device_type() == "CPU":  # of PyTorch/XLA itself, which only knows XLA's own targets
        return _custom_call(tensor, "Sharding")
    return said_to_lie(tensor, ((1,) * tensor.dim(), (0,)))


def _custom_call(tensor: torch.Tensor, target: str) -> torch.Tensor:
    (made,) = binding()._xla_custom_call([tensor], target, [list(tensor.shape)], [tensor.dtype], False, "", 0, {})
    result: torch.Tensor = made
    return result


def replace_kernels(kernels: Mapping[str, Callable[..., Any]], key: str = "XLA") -> torch.library.Library:
    """Puts functions in torch's table of operations for XLA devices, by name, as long as the result is kept.

    With ``key`` ``"AutogradXLA"`` they are called before autograd records anything, with the user's tensors.
    """
    import torch

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch notes that a kernel replaces another, which is the intention
        for name, kernel in kernels.items():
            library.impl(name, kernel, key, allow_override=True)
    return library


def wrap_kernels(wrappers: Mapping[str, Callable[..., Any]], key: str = "XLA") -> torch.library.Library:
    """As ``replace_kernels``, with functions whose first argument is the kernel that was there, to be called.

    Calls that a wrapper hands on as they are, which it says with ``_plain.hands_on``, go to that kernel by themselves.
    torch gives them a number in place of a tensor that was made of one (``x / 2``), which the kernel does not take.
    """
    import torch

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, wrapper in wrappers.items():
            former = torch.library.get_kernel(f"aten::{name}", key)
            _formers.setdefault(name, former)
            plain = _plain.of_wrapper(wrapper)
            remembered = None if plain is None else _plain.Remembered(f"aten::{name}", key)
            library.impl(name, _around(former, wrapper), key, with_keyset=True, allow_override=True)
            if remembered is not None and plain is not None:
                remembered.hand_on(plain)
    return library


def operator(name: str) -> torch._ops.OpOverload:
    """Torch's operator of a name as in its table: ``"sum.dim_IntList"``."""
    import torch

    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def former(name: str) -> Callable[..., Any]:
    """The kernel that ``wrap_kernels`` found under ``name``; without torch's way to it, which costs microseconds."""
    import torch

    return functools.partial(_formers[name].call_boxed, torch._C.DispatchKeySet(torch._C.DispatchKey.XLA))


def number(value: complex, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor without dimensions, for a kernel to compute with: all equal ones of a trace are one. Those that users
    make have buffers of their own, which takes a hundred microseconds."""
    import torch

    if device.type != "xla":
        return torch.full((), value, dtype=dtype, device=device)
    made: torch.Tensor = former("full")((), value, dtype=dtype, device=device)
    return made


def _around(former: Any, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
        return wrapper(functools.partial(former.call_boxed, keys), *arguments, **named)

    return kernel
