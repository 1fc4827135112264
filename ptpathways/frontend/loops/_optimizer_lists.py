"""``foreach`` for torch's optimizers on devices: on where nobody has decided it, off where tensors share memory.

On is torch's own choice for devices that it knows to gain from it: all parameters of a group in one call. Tracing is a
third faster, and the numbers are the same. Where two parameters share memory, or their gradients or what the optimizer
keeps of them, the second one's would be computed of what was there before the first one's; one by one, both steps are
taken, as in eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ptpathways.frontend.loops._optimizer_options import choose_option
from ptpathways.frontend.slices import _buffers

if TYPE_CHECKING:
    import torch
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
    groups = [
        group
        for group in optimizer.param_groups
        if not (
            "foreach" not in group or group["foreach"] is False or group.get("differentiable") or group.get("fused")
        )
    ]
    if not groups:
        return False
    alone = not any(map(_buffers.share_memory, _of_a_kind(optimizer)))
    changed = False
    for group in groups:
        undecided = group["foreach"] is None and not isinstance(group.get("lr"), torch.Tensor)
        undecided = undecided and not group.get("nesterov")  # lists would add the momentum to the gradients themselves
        if alone and undecided:
            choose_option(optimizer, group, "foreach", not group.get("capturable"))
            changed = True
        elif group["foreach"] and (group.get("capturable") or not alone):  # torch has no capturable lists here
            choose_option(optimizer, group, "foreach", False)
            changed = True
    return changed


def _of_a_kind(optimizer: Optimizer) -> Iterator[list[torch.Tensor]]:
    """The parameters, their gradients, and what the optimizer keeps of them."""
    import torch

    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    yield parameters
    yield [one.grad for one in parameters if one.grad is not None]
    kept = [one for slots in optimizer.state.values() if isinstance(slots, Mapping) for one in slots.values()]
    yield [one for one in kept if isinstance(one, torch.Tensor)]


def is_torchs(optimizer: Optimizer, method: str) -> bool:
    """Whether the method is torch's own, and not that of a subclass elsewhere."""
    function = getattr(type(optimizer), method, None)
    return str(getattr(function, "__module__", "")).startswith(_TORCHS)
