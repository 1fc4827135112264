"""An exported graph without nested parts: each operation says in which modes it runs."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import fx

from ptpathways import core

Mode: TypeAlias = tuple[str, tuple[Any, ...]]
"""``("grad", (enabled,))`` or ``("autocast", (device type, dtype, enabled, cache))``."""

_DEVICES = ("cpu", "cuda", "xla")
_KEY = "ptpathways_modes"
_NESTED = {"wrap_with_set_grad_enabled": ("grad", 1), "wrap_with_autocast": ("autocast", 4)}
"""Operations that run a part of the graph in another mode: its name here, how many settings come before the part."""
_TRANSPARENT = frozenset({"tag_activation_checkpoint"})
"""Operations that run a part of the graph with notes for a compiler that is not ours."""


@contextlib.contextmanager
def outside_autocast() -> Iterator[Mode | None]:
    """Inside, no autocast is in force; gives the one that was, which is for the model and its loss."""
    found = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if not found:
        yield None
        return
    cache = torch.is_autocast_cache_enabled()
    with contextlib.ExitStack() as stack:
        dtype = torch.get_autocast_dtype(found[0])
        for device in found:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield "autocast", ("cpu", dtype, True, cache)


def in_mode(mode: Mode | None) -> contextlib.AbstractContextManager[Any]:
    """Inside, code runs in the autocast that ``outside_autocast`` gave."""
    if mode is None:
        return contextlib.nullcontext()
    device, dtype, enabled, cache = mode[1]
    return torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache)


def flatten(module: fx.GraphModule) -> None:
    """Puts the operations of nested parts (``no_grad``, ``autocast``, checkpoints) into the graph itself, in place.

    Raises:
        ModelCannotBeCut: a nested part runs conditionally or repeatedly.
    """
    _flatten(module, module, ())
    module.graph.eliminate_dead_code(lambda node: node.op != "get_attr")


def _flatten(owner: fx.GraphModule, part: fx.GraphModule, modes: tuple[Mode, ...]) -> None:
    """Flattens ``part``, whose nodes run in ``modes``."""
    for node in list(part.graph.nodes):
        if modes:
            node.meta[_KEY] = modes
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        name = node.target.name()
        kind, settings = _NESTED.get(name, ("", 0))
        if not kind and name not in _TRANSPARENT:
            raise core.ModelCannotBeCut(
                f"{name} is an operation with a part of its own that runs conditionally or repeatedly, and cannot be "
                "part of a stage; write it with plain operations"
            )
        inner = getattr(part, node.args[settings].target)
        _flatten(owner, inner, (*modes, (kind, tuple(node.args[:settings]))) if kind else modes)
        _inline(part, node, inner, node.args[settings + 1 :])
    part.graph.lint()


def _inline(part: fx.GraphModule, node: fx.Node, inner: fx.GraphModule, operands: Any) -> None:
    """Replaces ``node``, which runs ``inner`` on ``operands``, by the nodes of ``inner``."""
    known: dict[fx.Node, Any] = {}
    given = iter(operands)
    returned: Any = ()
    with part.graph.inserting_before(node):
        for one in inner.graph.nodes:
            if one.op == "placeholder":
                known[one] = next(given)
            elif one.op == "output":
                returned = fx.node.map_arg(one.args[0], known.__getitem__)
            else:
                if one.op == "get_attr":  # what it names belongs to the inner part
                    name = f"{node.name}_{one.target}".replace(".", "_")
                    setattr(part, name, getattr(inner, str(one.target)))
                    known[one] = part.graph.get_attr(name)
                    known[one].meta = dict(one.meta)
                else:
                    known[one] = part.graph.node_copy(one, known.__getitem__)
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(returned[user.args[1]])
            part.graph.erase_node(user)
    if node.users:  # of a part that gives one value
        node.replace_all_uses_with(returned)
    part.graph.erase_node(node)


@contextlib.contextmanager
def modes_of(node: fx.Node, device: torch.device) -> Iterator[None]:
    """Inside, the node's modes are in force. ``device``: takes the place of the device that the user computes on."""
    with contextlib.ExitStack() as stack:
        for kind, settings in node.meta.get(_KEY, ()):
            if kind == "grad":
                stack.enter_context(torch.set_grad_enabled(settings[0]))
            else:
                own, dtype, enabled, cache = settings
                own = device.type if own in ("cpu", "cuda") else own
                stack.enter_context(torch.autocast(own, dtype=dtype, enabled=enabled, cache_enabled=cache))
        yield


def autocasts(node: fx.Node) -> bool:
    """Whether operations choose their own types around a node."""
    casts = [settings[2] for kind, settings in node.meta.get(_KEY, ()) if kind == "autocast"]
    return bool(casts) and bool(casts[-1])
