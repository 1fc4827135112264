"""Which values of a graph share memory, and what an operation changes in place."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

_RUNNING = {"aten::batch_norm": (3, 5), "aten::instance_norm": (3, 5)}
"""Operations that change running statistics: where the first of them is, and the switch."""
_DROPOUT = frozenset({"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"})
"""Operations that give their argument itself when they have nothing to do, and do not declare it."""

_SHAPING = frozenset(
    f"aten::{name}_"
    for name in ("detach", "requires_grad", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
)
"""Operations that change how a tensor looks at its memory, and not the memory."""


def written_by(node: fx.Node) -> list[fx.Node]:
    """What a node changes in place."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.name in _SHAPING:
        return []
    found: list[fx.Node] = []
    for place, one in enumerate(target._schema.arguments):
        if one.alias_info is not None and one.alias_info.is_write:
            found += _nodes(_argument(node, place, one.name))
    first, switch = _RUNNING.get(target._schema.name, (0, 0))
    if switch and len(node.args) > switch and node.args[switch] is True:
        found += _nodes(node.args[first : first + 2])
    return found


class Aliases:
    """The values of a graph, by the memory that they look at."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        """``nodes``: of the whole graph, in order."""
        self._parents: dict[fx.Node, fx.Node] = {}
        self._members: dict[fx.Node, list[fx.Node]] = {}
        storages: dict[int, fx.Node] = {}
        nodes = list(nodes)
        for node in nodes:
            for other in _looked_at(node):
                self._join(other, node)
            value = node.meta.get("val")
            if isinstance(value, Tensor):
                self._join(storages.setdefault(value.untyped_storage()._cdata, node), node)
        for node in nodes:
            self._members.setdefault(self._root(node), []).append(node)

    def of(self, node: fx.Node) -> Sequence[fx.Node]:
        """All values that share memory with a node's, itself too, in order."""
        return self._members.get(self._root(node), [node])

    def same(self, one: fx.Node, other: fx.Node) -> bool:
        return self._root(one) is self._root(other)

    def _root(self, node: fx.Node) -> fx.Node:
        while (parent := self._parents.get(node, node)) is not node:
            node = parent
        return node

    def _join(self, one: fx.Node, other: fx.Node) -> None:
        first, second = self._root(one), self._root(other)
        if first is not second:
            self._parents[second] = first


def _looked_at(node: fx.Node) -> list[fx.Node]:
    """The arguments whose memory a node's value may share, by what the operation declares."""
    target = node.target
    if target is operator.getitem and isinstance(node.args[0], fx.Node):
        return [node.args[0]] if _looked_at(node.args[0]) else []
    if not isinstance(target, torch._ops.OpOverload):
        return []
    schema = target._schema
    if schema.name in _DROPOUT:
        idle = len(node.args) > 2 and (node.args[2] is False or node.args[1] == 0)
        return _nodes(node.args[0]) if idle else []
    given = {name for one in schema.returns if one.alias_info is not None for name in one.alias_info.before_set}
    return [
        found
        for place, one in enumerate(schema.arguments)
        if one.alias_info is not None and given & set(one.alias_info.before_set)
        for found in _nodes(_argument(node, place, one.name))
    ]


def _argument(node: fx.Node, place: int, name: str) -> Any:
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


def _nodes(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found
