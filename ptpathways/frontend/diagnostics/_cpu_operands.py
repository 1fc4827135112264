"""A CPU tensor among device tensors: PyTorch/XLA says only that there was one. Here it is found, and named.

It is looked for when the error is there, in the frames that it passed. So it costs nothing before.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.base import _frames, _locator

if TYPE_CHECKING:
    import torch
    from torch import nn

_PATTERN = re.compile(r"(Expected XLA tensor|is not an XLA tensor)\. Got: torch\.(?:\w+\.)?(\w+)Tensor")
_SEEN = "an operation got tensors of the CPU and of the devices"
_NO_GPU = "Current CUDA Device does not support bfloat16"  # what torch says also where there is no CUDA device
_XLA_AUTOCAST = (
    'torch.autocast("cuda", dtype=torch.bfloat16) needs a GPU of this process; for the devices of the cluster write '
    'torch.autocast("xla", dtype=torch.bfloat16), or torch.autocast(pw.device().type, ...)'
)
_INDUCTOR = "KeyError: 'xla'"  # what torch.compile's default says of a device that it does not know
_NESTED_MAX = 16

_registered = False


_HERE = os.path.join(str(Path(__file__).parents[1]), "")


def register() -> None:
    """Explains such an error when it ends the program."""
    global _registered
    if _registered:
        return
    _registered = True
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, RuntimeError):
            explain(error)
        if _INDUCTOR in str(error) and kind.__name__ == "InductorError":
            error.add_note('torch.compile() of a model on devices needs backend="openxla".')
        before(kind, error, trace)

    sys.excepthook = show


def explain(error: RuntimeError, root: nn.Module | None = None) -> bool:
    """Rewrites the message of PyTorch/XLA's error about a CPU tensor: which one it is, and what to do.

    So it does with that of an autocast for a GPU.

    Args:
        root: the module whose forward pass failed, to name the layer by its path.

    Returns:
        Whether it was such an error, not explained before.
    """
    if str(error).startswith(_NO_GPU):
        error.args = (f"{_XLA_AUTOCAST}. (PyTorch said: {error})",)
        return True
    found = _PATTERN.search(str(error))
    if found is None or _SEEN in str(error):
        return False
    # A kernel of ours is no place that a user knows.
    steps = [step for step in traceback.walk_tb(error.__traceback__) if not is_ours(step[0].f_code.co_filename)]
    frames = [frame for frame, _ in steps]
    where, culprits = _culprits(frames, found[2])
    layer = _layer(frames, root)
    line = _user_line(steps)
    which = "; ".join(culprits) or f"a {found[2]} tensor of the CPU that this line makes"
    error.args = (
        f"{_SEEN}{f' at {line}' if line else ''}{f', in {where}' if where else ''}{f' of {layer}' if layer else ''}: "
        f"{which}. Bring it there with .to(pw.device()), or give its loader to pw.prepare(); a module's own tensor "
        f"belongs in register_buffer() before pw.prepare(). (PyTorch/XLA said: {error})",
    )
    return True


def is_ours(filename: str) -> bool:
    """Whether a file belongs to this room."""
    return filename.startswith(_HERE)


def _culprits(frames: list[FrameType], kind: str) -> tuple[str, list[str]]:
    """The name of the innermost function that holds CPU tensors of a type, and what they are called there."""
    for frame in reversed(frames):
        found = {}
        for name, value in _frames.variables_of(frame).items():
            for path, tensor in tensors_in(name, value):
                if tensor.device.type == "cpu" and tensor.type().endswith(f".{kind}Tensor") and id(tensor) not in found:
                    found[id(tensor)] = f"{path}, of shape {tuple(tensor.shape)} and {tensor.dtype}, is on the CPU"
        if found:
            return f"{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)}()", list(found.values())
    return "", []


def tensors_in(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a local variable: itself, in a list or dict, or a module's own."""
    import torch
    from torch import nn

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value[:_NESTED_MAX]):
            if isinstance(item, torch.Tensor):
                yield f"{name}[{index}]", item
    elif isinstance(value, dict):
        for key, item in list(value.items())[:_NESTED_MAX]:
            if isinstance(item, torch.Tensor):
                yield f"{name}[{key!r}]", item
    elif isinstance(value, nn.Module):
        own = {**value._parameters, **value._buffers, **vars(value)}
        for key, item in own.items():
            if isinstance(item, torch.Tensor):
                yield f"{name}.{key}", item


def _layer(frames: list[FrameType], root: nn.Module | None) -> str:
    """The innermost module whose method failed, by its path in ``root``."""
    from torch import nn

    for frame in reversed(frames):
        module = _frames.variables_of(frame).get("self")
        if isinstance(module, nn.Module):
            path = next((name for name, part in root.named_modules() if part is module), "") if root is not None else ""
            return f"{path} ({type(module).__name__})" if path else type(module).__name__
    return ""


def _user_line(steps: list[tuple[FrameType, int]]) -> str:
    """The innermost line of the user's code that the error passed, or would pass if it went on."""
    for frame, line in reversed(steps):
        if not _locator.is_library(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line}"
    return _locator.user_source_line()
