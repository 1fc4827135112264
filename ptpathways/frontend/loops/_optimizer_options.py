"""Options of torch's optimizers that are set here, as ``foreach`` and ``capturable``; a ``state_dict`` has the user's.

A checkpoint is loaded elsewhere, too, and on the CPU torch refuses ``capturable``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer

Group = dict[str, Any]

COUNTING = ("capturable", "foreach", "fused")
"""Options with which torch's optimizers count on the client or on the device."""
COUNTS = frozenset({"step", "mu_product", "eta", "mu"})
"""In the state of torch's optimizers, what follows from the number of steps."""
ON_THE_CLIENT = frozenset({"step", "mu_product"})
"""Those of them that torch keeps there unless they are capturable."""


@dataclass(slots=True)
class _Choice:
    group: Group
    key: str
    users: Any
    ours: Any

    def stands(self) -> bool:
        """Whether the user has changed nothing since."""
        return bool(self.group.get(self.key) == self.ours)


_choices: weakref.WeakKeyDictionary[Optimizer, list[_Choice]] = weakref.WeakKeyDictionary()


def choose_option(optimizer: Optimizer, group: Group, key: str, value: Any) -> None:
    """Sets an option of a group of the optimizer's."""
    if group[key] is value:
        return
    if optimizer not in _choices and "_optimizer_state_dict_post_hooks" in vars(optimizer):  # a wrapper may have none
        optimizer.register_state_dict_post_hook(_show_users)
    groups = list(map(id, optimizer.param_groups))
    known = [one for one in _choices.get(optimizer, ()) if id(one.group) in groups]  # loading a state makes new ones
    made = next((one for one in known if one.group is group and one.key == key), None)
    if made is None:
        made = _Choice(group, key, group[key], value)
        known.append(made)
    elif not made.stands():
        made.users = group[key]
    made.ours = group[key] = value
    _choices[optimizer] = known


def count_on_the_client(optimizers: Sequence[Optimizer], only: Callable[[Group], bool] = lambda _: True) -> None:
    """Takes back that these groups, or all, count on the device: it costs a traced step more time, and each new value
    of an option that it computes with there a compilation; and on the CPU torch refuses it. Waits for the counts."""
    import torch

    for one in [choice for optimizer in optimizers for choice in _choices.get(optimizer, ())]:
        if one.key in COUNTING and one.stands() and only(one.group):
            one.group[one.key] = one.ours = one.users
    for optimizer, group in [(one, group) for one in optimizers for group in filter(only, one.param_groups)]:
        for parameter in group["params"] if not group.get("capturable", True) else ():
            slots: MutableMapping[str, Any] = optimizer.state.get(parameter, {})
            for key in COUNTS & set(slots):
                value = slots[key]
                if isinstance(value, torch.Tensor) and value.device.type == "xla":
                    counted = value.to(torch.get_default_dtype())
                    put(slots, key, counted.cpu() if key in ON_THE_CLIENT else counted.to(parameter.device))


def put(slots: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Another tensor in the place of one, as the same object: somebody may hold it."""
    import torch

    try:
        torch.utils.swap_tensors(slots[key], value)
    except RuntimeError:  # somebody has a weak reference to it
        slots[key] = value


def _show_users(optimizer: Optimizer, state: dict[str, Any]) -> None:
    for group, shown in zip(optimizer.param_groups, state["param_groups"], strict=True):
        shown.update({one.key: one.users for one in _choices.get(optimizer, ()) if one.group is group and one.stands()})
