"""``foreach`` for torch's optimizers on devices: on where nobody has decided it, off where parameters share memory.

On is torch's own choice for devices that it knows to gain from it: all parameters of a group in one call. Tracing is a
third faster, and the numbers are the same. Where two parameters share memory, PyTorch/XLA would compute the second
one's new value of what was there before the first one's; one by one, both steps are taken, as in eager PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptpathways.frontend.loops._optimizer_options import choose_option
from ptpathways.frontend.slices import _buffers

if TYPE_CHECKING:
    from torch.optim import Optimizer

_TORCHS = "torch.optim."


def is_on_devices(optimizer: Optimizer) -> bool:
    """Whether it has parameters on them."""
    return any(one.device.type == "xla" for group in optimizer.param_groups for one in group["params"][:1])


def take_lists(optimizer: Optimizer) -> bool:
    """Sets ``foreach`` in the groups of an optimizer of torch's; whether one was changed.

    To be called before each step, as memory may come to be shared at any time.
    """
    import torch

    if not is_torchs(optimizer, "step"):
        return False
    alone = not _buffers.share_memory([one for group in optimizer.param_groups for one in group["params"]])
    changed = False
    for group in optimizer.param_groups:
        if "foreach" not in group or group.get("differentiable") or group.get("fused"):
            continue
        undecided = group["foreach"] is None and not isinstance(group.get("lr"), torch.Tensor)
        if alone and undecided:
            choose_option(optimizer, group, "foreach", not group.get("capturable"))
            changed = True
        elif group["foreach"] and (group.get("capturable") or not alone):  # torch has no capturable lists here
            choose_option(optimizer, group, "foreach", False)
            changed = True
    return changed


def is_torchs(optimizer: Optimizer, method: str) -> bool:
    """Whether the method is torch's own, and not that of a subclass elsewhere."""
    function = getattr(type(optimizer), method, None)
    return getattr(function, "__module__", "").startswith(_TORCHS)
