"""Whether a recorded call's backward pass goes on into a graph that was made before the call.

A replay runs no graph of autograd, and computes with what the former one has saved.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any


class OuterGraphs:
    """Inside, it is noted which tensors' graphs are run.

    Args:
        tensors: that the call begins with, by name.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        import torch

        self._nodes = {
            name: tensor.grad_fn
            for name, tensor in tensors.items()
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None
        }
        self._handles: list[Any] = []
        self._name = ""

    def __enter__(self) -> None:
        self._handles = [
            node.register_prehook(functools.partial(self._note, name)) for name, node in self._nodes.items()
        ]

    def __exit__(self, *unused: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._nodes = [], {}

    def _note(self, name: str, *unused: Any) -> None:
        self._name = self._name or name

    @property
    def reason(self) -> str:
        """Why such a call is not replayed; empty if there was none."""
        if not self._name:
            return ""
        return (
            f"its backward pass goes on into the graph of {self._name}, which was made outside and is another one at "
            "each call; make that tensor in the step, or give it detached (detach())"
        )
