"""Operations that PyTorch/XLA cannot lower run on the client's CPU: they fetch, so they wait. Said once per line."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _locator
from ptpathways.frontend.loops import _read_warnings, _reads
from ptpathways.frontend.xla import _trace, _xla

if TYPE_CHECKING:
    import torch


class ClientFallbackWarning(UserWarning):
    """An operation has no XLA form and runs on the client; the line that called it waits for its arguments.

    Given once per line of the user's program. Rewrite the line with operations of known output size (for example
    ``torch.where`` with a default instead of ``nonzero``), or move it out of the loop.
    """


# These are how a value is asked for: ``tensor.item()``, ``if tensor:``. The user means to wait.
_INTENDED = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"})

_OF_NOTHING = frozenset({"aten::_efficientzerotensor"})
"""What the client makes of no tensor, so that nothing is fetched: forward gradients do (``jvp`` of ``x * 2``)."""

_library: torch.library.Library | None = None
_counts: dict[str, int] = {}
_ran: dict[str, int] = {}
_warned: set[tuple[str, int, str]] = set()


def register() -> None:
    """Puts the warning where every such operation passes: torch's CPU fallback fetches its arguments by ``_to_cpu``."""
    global _library
    if _library is None:
        _library = _xla.replace_kernels({"_to_cpu": _to_cpu})


def on_client(operation: torch._ops.OpOverload, *arguments: Any, **named: Any) -> Any:
    """What ``operation`` gives on the CPU, on the device: for cases in which PyTorch/XLA's form is wrong, or fails.

    It fetches the arguments, unless all are empty, so it waits and warns. ``operation`` must not change any of them.

    Raises:
        Whatever the operation raises on the CPU; and as a kernel that fetches does inside a traced function.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    tensors = [item for item in _leaves((arguments, named)) if item.device.type == "xla"]
    values: dict[int, torch.Tensor] = {}
    if any(tensor.numel() for tensor in tensors):
        _trace.refuse_values()
        _warn_once(operation._name)
        values = {id(tensor): value for tensor, value in zip(tensors, _reads.fetch(tensors), strict=True)}

    def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "xla":
            return tensor
        return values[id(tensor)] if values else torch.empty(tensor.shape, dtype=tensor.dtype)

    on_cpu, named_on_cpu = tree_map_only(torch.Tensor, to_cpu, (arguments, named))
    result = operation(*on_cpu, **named_on_cpu)
    device = tensors[0].device if tensors else torch.device("xla")
    return tree_map_only(torch.Tensor, lambda value: value.to(device), result)


def _leaves(tree: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [item for item in tree_leaves(tree) if isinstance(item, torch.Tensor)]


def _to_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    _trace.refuse_values()
    intended = _warn_once(_current_operation())
    began = time.perf_counter()
    values = _reads.fetch(tensors)
    if intended:
        _read_warnings.note(began)
    return values


def client_operations() -> dict[str, int]:
    """How often each operation without an XLA form ran on the client so far; not those that ask for a value."""
    return dict(_ran)


def _warn_once(operation: str) -> bool:
    """Whether the user asks for a value; if not, but for an operation, warns."""
    if operation in _INTENDED:
        return True
    _ran[operation] = _ran.get(operation, 0) + 1
    frame = _locator.user_frame()
    filename, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("<unknown>", 0)
    if (filename, line, operation) in _warned:
        return False
    _warned.add((filename, line, operation))
    warnings.warn_explicit(
        f"{operation} has no XLA form, so it runs on the client: this line waits for its arguments each time",
        ClientFallbackWarning,
        filename,
        line or 1,
    )
    return False


def _current_operation() -> str:
    """The operation whose fallback counter moved since the last time; torch_xla counts before it fetches."""

    moved = "an operation"
    for name in _xla.binding()._get_executed_fallback_ops():
        count = int(_xla.binding()._xla_counter_value(name) or 0)
        if _counts.get(name, 0) != count:
            _counts[name] = count
            moved = moved if name in _OF_NOTHING else name
    return moved
