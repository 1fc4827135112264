"""``torch_xla.experimental.scan`` (and so ``nn.GRU``) on any slice.

PyTorch/XLA traces the scanned function on its default device, whichever its tensors are on. It also takes the place of
``nn.GRU`` for tensors on the CPU, which it cannot scan: there a loop does.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ptpathways.frontend.slices import _rng


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
    whole: Any = module.scan

    @functools.wraps(whole)
    def scan_anywhere(fn: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree

        if any(tensor.device.type == "xla" for tensor in _pytree.tree_leaves((init, xs))):
            return whole(fn, init, xs, *args, **kwargs)
        return _loop(fn, init, xs)

    vars(module)["scan"] = scan_anywhere
    vars(importlib.import_module("torch_xla.experimental.gru"))["scan"] = scan_anywhere


def _loop(fn: Any, carry: Any, xs: Any) -> Any:
    """What a scan computes, along the first dimension of ``xs``, with tensors of the CPU."""
    import torch
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(xs)
    made: list[Any] = []
    for place in range(leaves[0].shape[0]):
        carry, y = fn(carry, _pytree.tree_unflatten([leaf[place] for leaf in leaves], structure))
        made.append(y)
    return carry, _pytree.tree_map(lambda *ys: torch.stack(ys), *made)
