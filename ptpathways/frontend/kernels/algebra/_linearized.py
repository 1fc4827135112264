"""``torch.func.linearize`` of tensors on devices, whose tangents were zero, or ended in an error.

It traces the function with tangents that are not there yet. Those of a device are copied on the way, and the trace
takes the copies for constants.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def take_own_linearize() -> None:
    """Torch's function gets other code: a program may have imported it before there was a device."""
    import torch

    def linearize(func: Callable[..., Any], *primals: Any) -> Any:
        from ptpathways.frontend.kernels.algebra import _linearized

        return _linearized.linearize(func, *primals)

    global _plain
    plain: Any = torch.func.linearize
    if _plain is None:
        _plain = types.FunctionType(plain.__code__, plain.__globals__, "linearize")
        plain.__code__ = linearize.__code__


_plain: Callable[..., Any] | None = None


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """On a device the function is run for each tangent, at copies of ``primals``.

    Raises:
        RuntimeError: tangents of another structure, shape or type than the primals; when they are given.
    """
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    leaves = [item for item in tree_leaves(primals) if isinstance(item, torch.Tensor)]
    if _plain is not None and not any(leaf.device.type == "xla" for leaf in leaves):
        return _plain(func, *primals)
    kept = tree_map_only(torch.Tensor, torch.clone, primals)

    def tangents_of(*tangents: Any) -> Any:
        given = [item for item in tree_leaves(tangents) if isinstance(item, torch.Tensor)]
        for number, (tangent, leaf) in enumerate(zip(given, leaves, strict=False)):
            for what in ("shape", "device", "dtype"):
                one, other = getattr(tangent, what), getattr(leaf, what)
                if one != other:
                    raise RuntimeError(
                        f"tangent:{number} with {what} {one} in flattened pytree doesn't match the {what} {other} of "
                        "the corresponding primal."
                    )
        return torch.func.jvp(func, kept, tangents)[1]

    return func(*primals), tangents_of
