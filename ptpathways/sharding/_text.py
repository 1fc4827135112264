"""Reads the text forms of meshes and shardings."""

from __future__ import annotations

from ptpathways.core import InvalidSharding
from ptpathways.sharding._mesh import Mesh
from ptpathways.sharding._sharding import Sharding


def parse_mesh(text: str) -> Mesh:
    """The mesh of a text like ``data=2,model=4``.

    Raises:
        InvalidSharding: it has another form.
    """
    names, sizes = [], []
    for entry in text.split(","):
        name, equals, size = entry.strip().partition("=")
        if not equals or not size.isdecimal():
            raise InvalidSharding(f"a mesh reads like 'data=2,model=4', got {text!r}")
        names.append(name)
        sizes.append(int(size))
    return Mesh(sizes, names)


def parse_sharding(text: str, mesh: Mesh | None = None) -> Sharding:
    """The sharding of a text like ``data,-`` on ``mesh``, or with its mesh ``data=2,model=4: data,-``; braces or not.

    Raises:
        InvalidSharding: it has another form, or names an axis that the mesh has not.
    """
    inner = text.strip().removeprefix("{").removesuffix("}")
    before, colon, after = inner.partition(":")
    if colon:
        mesh, inner = parse_mesh(before), after
    if mesh is None:
        raise InvalidSharding(f"a sharding with its mesh reads like '{{data=2,model=4: data,-}}', got {text!r}")
    if not inner.strip():
        return Sharding.replicated(mesh)
    entries = [entry.strip() for entry in inner.split(",")]
    return Sharding.from_spec(mesh, [None if entry == "-" else entry.split("+") for entry in entries])
