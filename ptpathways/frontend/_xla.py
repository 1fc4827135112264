"""torch_xla's private bindings, and nothing else: what they are called is checked here and nowhere assumed twice."""

from __future__ import annotations

from typing import Any


def binding() -> Any:
    """The extension module of torch_xla, imported by the first call."""
    import torch_xla

    return torch_xla._XLAC


def device_name(index: int) -> str:
    """What the bindings call the ``index``-th device when devices are used one by one; 0 also names the mesh."""
    return f"xla:{index}"
