"""What a mesh axis does with a tensor: split one of its dimensions, or hold a copy at each device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ptpathways.core import InvalidSharding


@dataclass(frozen=True, slots=True)
class Shard:
    """The devices along a mesh axis hold equal parts of tensor dimension ``dim`` (negative: from the last)."""

    dim: int

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int):
            raise InvalidSharding(f"Shard takes the number of a tensor's dimension, got {self.dim!r}")


@dataclass(frozen=True, slots=True)
class Replicate:
    """The devices along a mesh axis hold the same."""


Placement: TypeAlias = Shard | Replicate


def as_placement(given: object) -> Placement:
    """A placement of ours out of ours or of ``torch.distributed.tensor``'s, known by its methods.

    Raises:
        InvalidSharding: it is something else, or a partial sum.
    """
    if isinstance(given, Shard | Replicate):
        return given
    kind = type(given).__name__
    if _says(given, "is_partial"):
        raise InvalidSharding(
            f"placements of functions are Shard(dim) or Replicate(), got {given!r}: a value that is still to be summed "
            "over devices cannot leave a function; sum it inside"
        )
    if kind == "Shard" and _says(given, "is_shard"):
        return Shard(given.dim)  # type: ignore[attr-defined]
    if _says(given, "is_replicate"):
        return Replicate()
    raise InvalidSharding(f"a placement is Shard(dim) or Replicate(), got {given!r} of type {kind}")


def _says(given: object, question: str) -> bool:
    method = getattr(given, question, None)
    return bool(callable(method) and method())
