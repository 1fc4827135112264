"""What replays of captured steps compare natively: dictionaries, and who holds tensors."""

from __future__ import annotations

import collections
from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ptpathways import native

KEY = object()


def _written(mapping: dict[Any, Any]) -> None:
    mapping["a"] = 2


def _moved_to_the_end(mapping: dict[Any, Any]) -> None:
    mapping["a"] = mapping.pop("a")


def _renamed(mapping: dict[Any, Any]) -> None:
    mapping["c"] = mapping.pop("b")


def _another_object_as_key(mapping: dict[Any, Any]) -> None:
    del mapping[KEY]
    mapping[object()] = 3


@pytest.mark.parametrize(
    "change", [_written, _moved_to_the_end, _renamed, _another_object_as_key, dict.clear, lambda of: of.update(d=1)]
)
@pytest.mark.parametrize("kind", [dict, lambda items: collections.defaultdict(int, items)])
def test_a_change_of_a_dictionary_is_seen_and_taking_it_back_is_too(
    kind: Callable[[dict[Any, Any]], dict[Any, Any]], change: Callable[[dict[Any, Any]], object]
) -> None:
    first = {"a": 1, "b": 2, KEY: 3}
    mapping, order = kind(first), tuple(first)
    guards = native.Guards([(mapping, "a", 1, True)], [(mapping, order)], [(mapping, 3)])
    assert guards.hold()
    assert guards.hold()
    change(mapping)
    assert not guards.hold()
    mapping.clear()
    mapping.update(first)
    assert guards.hold()


def test_sizes_are_those_of_any_container() -> None:
    class Counted:
        size = 3

        def __len__(self) -> int:
            return self.size

    of, items = Counted(), [1, 2]
    guards = native.Guards([], sizes=[(of, 3), (items, 2), (vars(Counted), len(vars(Counted)))])
    assert guards.hold()
    items.append(3)
    assert not guards.hold()
    items.pop()
    of.size = 4
    assert not guards.hold()
    of.size = 3
    assert guards.hold()
    Counted.more = 1  # type: ignore[attr-defined]
    assert not guards.hold()


def test_what_has_no_length_says_so() -> None:
    guards = native.Guards([], sizes=[(3, 1)])
    with pytest.raises(TypeError, match="len"):
        guards.hold()
    with pytest.raises(TypeError, match="a guard is about a dictionary"):
        native.Guards([], orders=[([], ())])  # type: ignore[list-item]


def test_every_new_holder_of_a_tensor_is_counted() -> None:
    tensor = torch.zeros(3, requires_grad=True)
    known = {0: tensor}
    names, values, uses, place = (column[0] for column in native.count_holders(known))
    more, view = [tensor, tensor], tensor.detach()
    graph = tensor * 2
    assert [column[0] for column in native.count_holders(known)] == [names + 2, values + 1, uses + 1, place]
    del more, view, graph
    assert [column[0] for column in native.count_holders(known)] == [names, values, uses, place]
    tensor.data = torch.ones(3)
    assert native.count_holders(known)[3] != [place]


def test_memory_is_held_so_often() -> None:
    tensors = [torch.zeros(3) for _ in range(100)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    places = array("Q", (storage._cdata for storage in storages))
    assert native.are_held(places, 2)
    view = tensors[70][:2]
    assert not native.are_held(places, 2)
    del view
    assert native.are_held(places, 2)
    with pytest.raises(TypeError, match="64 bits"):
        native.are_held(array("i", [1]), 2)
