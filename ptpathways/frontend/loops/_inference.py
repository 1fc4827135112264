"""``torch.inference_mode`` on devices.

PyTorch/XLA cannot make a view of an ordinary tensor in that mode ("Cannot set version_counter for inference tensor"),
and every linear layer transposes its weight. So in a process that has devices the mode is what ``torch.no_grad`` is:
the same values, and no gradients.
"""

from __future__ import annotations

from typing import Any

from ptpathways.frontend.base import _state

_registered = False


def register() -> None:
    """Changes what ``torch.inference_mode()`` does while this process has devices."""
    global _registered
    import torch

    if _registered:
        return
    _registered = True
    kind = torch.inference_mode
    enter, leave = kind.__enter__, kind.__exit__

    def __enter__(self: Any) -> None:
        if not self.mode or not _state.is_running():
            enter(self)
            return
        # A context manager may be entered again while it is open, so what was before is kept as a stack.
        before = self.__dict__.setdefault("_grad_enabled_before", [])
        before.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)

    def __exit__(self: Any, *error: Any) -> None:
        before = self.__dict__.get("_grad_enabled_before")
        if before:
            torch.set_grad_enabled(before.pop())
        else:
            leave(self, *error)

    kind.__enter__ = __enter__  # type: ignore[method-assign]
    kind.__exit__ = __exit__  # type: ignore[method-assign]
