"""What a user says about how arguments and results lie on a slice, applied to the tensors that there are.

A *layout* is a list of placements, one per mesh axis (``[Shard(0), Replicate()]``), or a partition spec, a tuple with
an entry per dimension of the tensor (``("data", None)``). Where several tensors are described, a layout stands for all
of them; a list has one entry per argument or result; a dict has one per name or key; None and ``()`` are a copy on
every device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ptpathways import core
from ptpathways.sharding import Mesh, Sharding


def is_layout(given: Any) -> bool:
    """Whether ``given`` describes one tensor, rather than several."""
    if given is None or given == ():
        return True
    if not isinstance(given, list | tuple) or not given:
        return False
    if all(_is_placement(entry) for entry in given):
        return True
    return isinstance(given, tuple) and all(_is_spec_entry(entry) for entry in given)


def sharding(given: Any, mesh: Mesh, rank: int) -> Sharding:
    """The sharding that a layout says for a tensor of ``rank`` dimensions.

    Raises:
        InvalidSharding: it does not fit the mesh or the rank.
    """
    if not given:
        return Sharding.replicated(mesh)
    if all(_is_placement(entry) for entry in given):
        return Sharding(mesh, given, rank=rank)
    return Sharding.from_spec(mesh, given)


def spread(given: Any, tree: Any, what: str) -> list[Any]:
    """A layout for each leaf of ``tree``, a pytree of tuples, lists and dicts.

    Args:
        given: a layout, or a list or dict of them as deep as it needs to go.
        what: what ``tree`` is, for messages: ``"in_placements of function f"``.

    Raises:
        InvalidSharding: lengths or keys differ.
    """
    if is_layout(given):
        return [given] * _leaf_count(tree)
    if isinstance(given, Mapping) and isinstance(tree, Mapping):
        unknown = [key for key in given if key not in tree]
        if unknown:
            raise core.InvalidSharding(f"{what}: there is no {unknown[0]!r}; there are {', '.join(map(repr, tree))}")
        return [leaf for key in _sorted_like_torch(tree) for leaf in spread(given.get(key), tree[key], what)]
    if isinstance(given, Sequence) and not isinstance(given, str) and isinstance(tree, Sequence):
        if len(given) != len(tree):
            raise core.InvalidSharding(
                f"{what} has {len(given)} entries, and there are {len(tree)}; give one each (None: a copy on every "
                "device), or one layout for all"
            )
        return [leaf for one, part in zip(given, tree, strict=True) for leaf in spread(one, part, what)]
    raise core.InvalidSharding(
        f"{what}: expected placements per mesh axis such as [Shard(0), Replicate()], a spec of axis names such as "
        f"('data', None), None, or a list or dict of these as the values are nested; got {given!r}"
    )


def _is_placement(entry: Any) -> bool:
    return hasattr(entry, "is_shard") or type(entry).__name__ in ("Shard", "Replicate")


def _is_spec_entry(entry: Any) -> bool:
    if isinstance(entry, tuple | list):
        return len(entry) > 0 and all(isinstance(name, str) for name in entry)
    return entry is None or isinstance(entry, str)


def _leaf_count(tree: Any) -> int:
    from torch.utils import _pytree

    return len(_pytree.tree_leaves(tree))


def _sorted_like_torch(tree: Mapping[Any, Any]) -> list[Any]:
    """The keys in the order in which torch's pytrees visit them: as inserted."""
    return list(tree)
