"""The devices' random numbers, as torch expects them of a device type: ``torch.xla.get_rng_state`` and friends.

Activation checkpointing needs it to give a recomputed dropout the same mask.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from typing import TYPE_CHECKING

from ptpathways import core
from ptpathways.frontend.base import _state
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_SEED_MASK = (1 << 63) - 1

_followed: int | None = None
_seeds_with_torch = False
at_cut: dict[int, int] = {}
"""The seed of each device when the trace was cut last, or when it was set, as far as that was seen."""


def put(index: int, seed: int) -> None:
    """Sets a device's seed, as a number."""
    _xla.binding()._xla_set_rng_seed(seed, _xla.device_name(index))
    at_cut[index] = seed


def note_cut() -> None:
    """The trace has been cut, and nothing was drawn since."""
    for index in in_use():
        at_cut[index] = int(_xla.binding()._xla_get_rng_seed(_xla.device_name(index)))


class OnDevice:
    """Context manager: inside, ``index`` is the current device. For torch's own helpers; there is little else to it."""

    def __init__(self, index: int | torch.device | str) -> None:
        self._index = _index(index)
        self._before = ""

    def __enter__(self) -> None:

        self._before = _xla.binding()._xla_get_default_device()
        _xla.binding()._xla_set_default_device(_xla.device_name(self._index))

    def __exit__(self, *unused: object) -> None:

        _xla.binding()._xla_set_default_device(self._before)


def get_rng_state(device: int | torch.device | str | None = None) -> torch.Tensor:
    """The state of a device's generator: one uint8 tensor of 8 bytes, on the CPU."""
    import torch

    seed = int(_xla.binding()._xla_get_rng_seed(_name(device)))
    return torch.frombuffer(bytearray(seed.to_bytes(8, "little")), dtype=torch.uint8)


def set_rng_state(state: torch.Tensor, device: int | torch.device | str | None = None) -> None:
    """Restores what ``get_rng_state`` gave."""

    seed = int.from_bytes(bytes(state.tolist()), "little")
    if device is None:
        _xla.binding()._xla_set_rng_seed(seed, "")
        at_cut.clear()  # it is the current device's
    else:
        put(_index(device), seed)


def manual_seed_all(seed: int) -> None:
    """Seeds every slice that this process uses as a device, and those that it will use."""

    for index in in_use():
        put(index, seed & _SEED_MASK)


def in_use() -> list[int]:
    """Numbers of the torch devices that have a generator of their own now."""
    this = _state.runtime()
    return this.slices.bound() if this.connection is not None else list(range(this.torch_device_count))


def begin(index: int) -> None:
    """Seeds a device that is about to be used, as torch's own generator was seeded."""
    import torch

    put(index, torch.initial_seed() & _SEED_MASK)


def begin_anew(index: int) -> None:
    """What is drawn next begins with the seed that it would have had, as a number and not as what is computed."""
    put(index, int(_xla.binding()._xla_get_rng_seed(_xla.device_name(index))))


def follow_torch() -> None:
    """Gives the devices the seed of torch's own generator, if that is another than the last time: so
    ``torch.manual_seed`` before ``device`` or ``prepare`` decides all."""
    import torch

    global _followed
    with _state.lock:
        seed = torch.initial_seed()
        if seed != _followed:
            _followed = seed
            manual_seed_all(seed)


def keep_apart() -> None:
    """Notes that torch's generator has been set, and that the devices' are not to follow."""
    import torch

    global _followed
    with _state.lock:
        _followed = torch.initial_seed()


def manual_seed(seed: int) -> None:
    """Seeds torch's generator and those of the devices, as ``torch.manual_seed`` does once ``init`` was called.

    Args:
        seed: from -2**63 to 2**64 - 1, as for ``torch.manual_seed``.

    Raises:
        NotInitialized: before ``init``.
        TypeError: ``seed`` is not a whole number.
        ValueError: ``seed`` is outside of that range.
    """
    import torch

    seed = core.whole_number(seed, "a seed")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"a seed is a number from -2**63 to 2**64 - 1, as torch.manual_seed takes it, got {seed}")
    with _state.lock:
        _state.runtime()
        torch.manual_seed(seed)


def seed(value: int) -> None:
    """Seeds every generator that a loop draws from: those of ``random``, NumPy, torch and the devices.

    The same seed gives the same losses whatever the number of hosts and devices, up to rounding, dropout included.
    May be called before ``init``: the devices then take over the seed when they are first used.

    Args:
        value: from 0 to 2**63 - 1; NumPy, which takes 32 bits, gets ``value % 2**32``.

    Raises:
        TypeError: ``value`` is not a whole number.
        ValueError: ``value`` is outside of that range.
    """
    global _followed
    import torch

    value = core.whole_number(value, "a seed")
    if not 0 <= value <= _SEED_MASK:
        raise ValueError(f"a seed is a number from 0 to 2**63 - 1, got {value}")
    random.seed(value)
    if (numpy := sys.modules.get("numpy")) is not None:  # torch imports it where it is installed
        numpy.random.seed(value % 2**32)
    if _state.is_running():
        manual_seed(value)
        return
    with _state.lock:
        torch.manual_seed(value)
        _followed = None


def device_count() -> int:
    return _state.runtime().torch_device_count


def is_available() -> bool:
    return _state.runtime().device_count > 0


def current_device() -> int:

    return int(_xla.binding()._xla_get_default_device_ordinal())


def _seed_devices_with_torch() -> None:
    """Makes ``torch.manual_seed`` seed the devices, too, as it does those of CUDA. Idempotent."""
    import torch

    global _seeds_with_torch
    if _seeds_with_torch:
        return
    _seeds_with_torch = True
    plain = torch.random.manual_seed

    @functools.wraps(plain)
    def manual_seed(seed: int) -> torch.Generator:
        global _followed
        made = plain(seed)
        if _state.is_running() and not _state.is_forked():  # as in the workers of a loader
            with _state.lock:
                _followed = None
                follow_torch()
        return made

    torch.manual_seed = torch.random.manual_seed = manual_seed


def register() -> None:
    """Makes ``torch.xla``, unless somebody did, and ``torch.manual_seed`` one of the devices, too."""
    import torch

    _seed_devices_with_torch()
    if hasattr(torch, "xla"):
        return
    module = types.ModuleType("torch.xla", __doc__)
    functions = (get_rng_state, set_rng_state, manual_seed_all, device_count, is_available, current_device)
    for function in functions:
        setattr(module, function.__name__, function)
    module.device = OnDevice  # type: ignore[attr-defined]
    module._initialized = True  # type: ignore[attr-defined]  # torch.utils.checkpoint saves our state only then
    module.manual_seed = manual_seed_all  # type: ignore[attr-defined]
    torch._register_device_module("xla", module)


def _index(device: int | torch.device | str) -> int:
    if isinstance(device, int):
        return device
    import torch

    return torch.device(device).index or 0


def _name(device: int | torch.device | str | None) -> str:
    return "" if device is None else _xla.device_name(_index(device))
