"""Options of torch's optimizers that are set here, as ``foreach`` and ``capturable``; a ``state_dict`` has the user's.

A checkpoint is loaded elsewhere, too, and on the CPU torch refuses ``capturable``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer

Group = dict[str, Any]

COUNTING = ("capturable", "foreach", "fused")
"""Options with which torch's optimizers count on the client or on the device."""


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
    if optimizer not in _choices:
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


def take_back(optimizer: Optimizer, keys: Sequence[str], only: Callable[[Group], bool] = lambda _: True) -> list[Group]:
    """Gives these options of all groups, or some, the values that the user has given them; the groups changed."""
    changed: list[Group] = []
    for one in _choices.get(optimizer, ()):
        if one.key in keys and one.stands() and one.ours != one.users and only(one.group):
            one.group[one.key] = one.ours = one.users
            changed.append(one.group)
    return changed


def _show_users(optimizer: Optimizer, state: dict[str, Any]) -> None:
    for group, shown in zip(optimizer.param_groups, state["param_groups"], strict=True):
        shown.update({one.key: one.users for one in _choices.get(optimizer, ()) if one.group is group and one.stands()})
