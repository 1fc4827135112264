"""What to do about what keeps a step from being replayed, where it is an installed package that does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _locator
from ptpathways.frontend.capture.python import _whose

if TYPE_CHECKING:
    import types

_WAITS = {
    "torch.distributions.distribution": (
        "make the distribution with validate_args=False, as torch checks its arguments and values on the client"
    ),
    "torch.nn.modules.transformer": (
        "say whether the mask is causal (is_causal=True, tgt_is_causal=True, or False), into which it looks else"
    ),
    "transformers.masking_utils.find_packed_sequence_indices": (
        "pass attention_mask; without one the model looks for packed sequences in the positions, on the client"
    ),
    "transformers.masking_utils": (
        "load the model with attn_implementation='eager', or pass no attention mask, into which it looks on the client"
    ),
}
"""By module, or function of it, that asks for a value: what avoids it."""
_OTHER_OPTIMIZER = (
    "choose an optimizer that keeps all its state in tensors on the device and asks for none of their values, as those "
    "of torch.optim do"
)


def about_a_wait() -> str:
    """Of which a package's function is the cause; empty if it is the user's own code."""
    frame = _locator.frame_outside()
    if frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if known := _WAITS.get(f"{module}.{frame.f_code.co_name}") or _WAITS.get(module):
            return known
    frame = _locator.user_frame()
    if frame is None or not frame.f_code.co_filename.startswith(_whose.installed()):
        return ""
    name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}()"
    if _is_of_an_optimizer(frame):
        return f"it is {name} that asks: {_OTHER_OPTIMIZER}"
    return (
        f"it is {name} that asks: call what leads there outside the step, or with arguments for which it does not ask "
        "(a mask, for one)"
    )


def _is_of_an_optimizer(frame: types.FrameType | None) -> bool:
    import torch

    while frame is not None and frame.f_code.co_filename.startswith(_whose.installed()):
        if isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
            return True
        frame = frame.f_back
    return False


def about_optimizers(text: str, optimizers: Mapping[str, Any]) -> str:
    """``text`` with other advice, if it is about what is in one of these, by name, that a package has made."""
    for name, optimizer in optimizers.items():
        package = _whose.module_of(type(optimizer))
        if f" {name}." in text and package.partition(".")[0] != "torch" and _whose.is_installed(type(optimizer)):
            kind = f"{package}.{type(optimizer).__qualname__}"
            return f"{text.partition(';')[0]}; if it is {kind}.step() that does so, {_OTHER_OPTIMIZER}"
    return text
