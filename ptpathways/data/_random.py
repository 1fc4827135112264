"""The states of random generators as plain values, so that they can be written to a file and set again."""

from __future__ import annotations

import base64
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_ATTRIBUTES = ("batch_sampler", "sampler", "generator")
_PYTHON_WORDS = 625


class RandomState:
    """The process's generators (torch's for the CPU, Python's, NumPy's if it is loaded) at one moment.

    Cheap to take (some ten microseconds); ``encoded`` makes texts and numbers of it.
    """

    __slots__ = ("numpy", "python", "torch")

    def __init__(self, torch_state: torch.Tensor, python_state: Any, numpy_state: Any) -> None:
        self.torch = torch_state
        self.python = python_state
        self.numpy = numpy_state

    @classmethod
    def now(cls) -> RandomState:
        """The states at this moment."""
        numpy = sys.modules.get("numpy")
        return cls(
            torch.random.get_rng_state(),
            random.getstate(),
            numpy.random.get_state() if numpy is not None else None,
        )

    def set(self) -> None:
        """Makes the process's generators go on from here."""
        torch.random.set_rng_state(self.torch)
        random.setstate(self.python)
        if self.numpy is not None:
            import numpy as np

            np.random.set_state(self.numpy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState):
            return NotImplemented
        return (
            torch.equal(self.torch, other.torch)
            and self.python == other.python
            and _numpy_bytes(self.numpy) == _numpy_bytes(other.numpy)
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and nobody's key

    def encoded(self) -> dict[str, Any]:
        """As texts and numbers; ``decode`` reads it."""
        version, words, gauss = self.python
        numpy = None
        if self.numpy is not None:
            kind, _, position, has_gauss, cached = self.numpy
            numpy = [str(kind), _text(_numpy_bytes(self.numpy)), int(position), int(has_gauss), float(cached)]
        return {
            "torch": encode_generator(self.torch),
            "python": [version, _text(struct.pack(f"<{_PYTHON_WORDS}I", *words)), gauss],
            "numpy": numpy,
        }

    @classmethod
    def decode(cls, state: dict[str, Any]) -> RandomState:
        """What ``encoded`` gave, also after JSON."""
        version, words, gauss = state["python"]
        python = (version, struct.unpack(f"<{_PYTHON_WORDS}I", base64.b64decode(words)), gauss)
        numpy: Any = None
        if state["numpy"] is not None:
            import numpy as np

            kind, keys, position, has_gauss, cached = state["numpy"]
            numpy = (kind, np.frombuffer(base64.b64decode(keys), dtype="<u4"), position, has_gauss, cached)
        return cls(decode_generator(state["torch"]), python, numpy)


def generators_of(loader: Any) -> list[torch.Generator]:
    """The torch generators that a loader and its samplers hold, each once, in a fixed order."""
    found: list[torch.Generator] = []
    for generator in _walk(loader, 3):
        if all(generator is not other for other in found):
            found.append(generator)
    return found


def states_of(generators: Sequence[torch.Generator]) -> list[torch.Tensor]:
    """The state of each, uint8."""
    return [generator.get_state() for generator in generators]


def set_states(generators: Sequence[torch.Generator], states: Sequence[torch.Tensor]) -> None:
    """The inverse of ``states_of``; ValueError when there are not as many."""
    check_states(generators, states)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


def check_states(generators: Sequence[torch.Generator], states: Sequence[Any]) -> None:
    """Raises ValueError when there are not as many."""
    if len(generators) != len(states):
        raise ValueError(
            f"the state is of a loader with {len(states)} random generators of its own (generator=...), "
            f"this one has {len(generators)}; make the loader as it was made when the state was saved"
        )


def encode_generator(state: torch.Tensor) -> str:
    """A generator's state, uint8, as text."""
    return _text(state.numpy().tobytes())


def decode_generator(text: str) -> torch.Tensor:
    """The inverse of ``encode_generator``."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


def _walk(thing: Any, depth: int) -> Iterator[torch.Generator]:
    if isinstance(thing, torch.Generator):
        yield thing
    elif depth > 0 and thing is not None:
        for name in _ATTRIBUTES:
            yield from _walk(getattr(thing, name, None), depth - 1)


def _numpy_bytes(state: Any) -> bytes:
    return b"" if state is None else state[1].astype("<u4").tobytes()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
