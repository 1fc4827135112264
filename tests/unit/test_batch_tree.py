"""Batches as trees: what is kept of them, and what comes back."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ptpathways.frontend.base._batch_tree import flatten_batch

torch = pytest.importorskip("torch")


@dataclasses.dataclass
class Pair:
    x: Any
    y: Any


class Encoding(dict[str, Any]):
    """As a tokenizer's, which torch's pytrees take for a leaf."""


MAKES: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.zeros(3),
    "tuple": lambda: (torch.zeros(3), [torch.ones(2), 5]),
    "mapping": lambda: Encoding(ids=torch.zeros(3), more=Encoding(mask=torch.ones(3))),
    "data class": lambda: Pair(torch.zeros(3), {"y": torch.ones(2)}),
}


@pytest.mark.parametrize("name", MAKES)
def test_a_batch_is_made_of_other_leaves_and_nothing_keeps_the_first_ones(name: str) -> None:
    """Batches on devices that only the garbage collector frees would fill them."""
    gc.collect()
    gc.disable()
    try:
        batch = MAKES[name]()
        leaves, make = flatten_batch(batch)
        tensors = [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        made = make([leaf + 1 if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
        assert type(made) is type(batch)
        again, _ = flatten_batch(made)
        for one, other in zip(again, leaves, strict=True):
            assert torch.equal(one, other + 1) if isinstance(one, torch.Tensor) else one == other
        del batch, leaves, make, again, one, other
        assert tensors and not any(tensor() is not None for tensor in tensors)
    finally:
        gc.enable()
