"""``torch_xla.experimental.scan`` (and so ``nn.GRU``) on any slice.

PyTorch/XLA traces the scanned function on its default device, whichever its tensors are on.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ptpathways.frontend import _rng


def register() -> None:
    """Makes scans run on the device of what they scan. Idempotent."""
    module = importlib.import_module("torch_xla.experimental.scan")
    plain: Any = module._scan_impl_flat
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def scan(fn: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        device = next((tensor.device for tensor in (*init, *xs) if tensor.device.type == "xla"), None)
        if device is None:
            return plain(fn, init, xs, *args, **kwargs)
        with _rng.OnDevice(device):
            return plain(fn, init, xs, *args, **kwargs)

    vars(module)["_scan_impl_flat"] = scan
