"""``torch_xla.experimental.scan`` (and so ``nn.GRU``) on any slice.

PyTorch/XLA traces the scanned function on its default device, whichever its tensors are on. The GRU that it puts in the
place of ``nn.GRU`` refuses packed sequences and cannot scan tensors on the CPU: these are for torch's own.
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
    _take_own_gru(importlib.import_module("torch_xla.experimental.gru").GRU)


def _take_own_gru(scanning: Any) -> None:
    from torch.nn.utils.rnn import PackedSequence

    plain = scanning.forward

    @functools.wraps(plain)
    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence) or input.device.type != "xla":
            return super(scanning, self).forward(input, hx)
        return plain(self, input, hx)

    scanning.forward = forward


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
