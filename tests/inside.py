"""What tests look at inside a program that runs, beyond what its user sees; the one place that knows where it lies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ptpathways.frontend.base import _state
from ptpathways.frontend.base._session import Connection
from ptpathways.frontend.xla import _xla


def connection() -> Connection:
    """Of the program's session: its processes, its transfers, its native part."""
    found = _state.runtime().connection
    assert found is not None, "the program's devices are PyTorch/XLA's own"
    return found


def device_count() -> int:
    """How many devices the program has."""
    return _state.runtime().device_count


def sharding_of(tensor: torch.Tensor) -> str:
    """How PyTorch/XLA would have it lie on its devices."""
    return str(_xla.binding()._get_xla_sharding_spec(tensor))


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether its value is still to be computed."""
    return bool(_xla.binding()._check_tensor_need_materialization([tensor])[0])


def values_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Their values, read by PyTorch/XLA itself."""
    return list(_xla.binding()._xla_get_cpu_tensors(list(tensors)))


def hlo_of(tensors: Sequence[torch.Tensor]) -> str:
    """The text of the module that would compute them."""
    return str(_xla.binding()._get_xla_tensors_hlo(list(tensors)))


def counter(name: str) -> int:
    """PyTorch/XLA's count of that name; 0 when it has counted nothing."""
    return _xla.binding()._xla_counter_value(name) or 0
