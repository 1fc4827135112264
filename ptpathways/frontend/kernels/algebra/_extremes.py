"""The largest and the smallest: PyTorch/XLA starts from the largest finite number, not from infinity, names a place
after that of nan, and the first of equals where torch names the last.

``nan`` counts as the largest, and as the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _small

if TYPE_CHECKING:
    import torch

Kernel = Callable[..., Any]


def _unreached(values: torch.Tensor, largest: bool) -> float:
    return float("-inf") if largest else float("inf")


def reduced(largest: bool) -> Kernel:
    """``amax`` or ``amin``: of all dimensions where none is named."""

    def extreme(kernel: Kernel, values: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        import torch

        if values.dim() == 0:
            _small.check_of_scalar(*dim)
            return values.clone()
        dims = list(dim) or list(range(values.dim()))
        found = kernel(values, dims, keepdim)
        if not values.is_floating_point():
            return found
        end = _unreached(values, largest)
        return torch.where((values != end).sum(dims, keepdim) == 0, torch.full_like(found, end), found)

    return extreme


def of_all(largest: bool) -> Kernel:
    """``max`` or ``min`` of all elements."""

    def extreme(values: torch.Tensor) -> Any:
        import torch

        dims = list(range(values.dim()))
        if values.numel() == 0:
            raise RuntimeError(
                f"{'max' if largest else 'min'}() needs at least one element, got shape {tuple(values.shape)}; name a "
                "dimension that has elements"
            )
        return (torch.amax if largest else torch.amin)(values, dims)

    return extreme


def in_dim(largest: bool) -> Kernel:
    """``max`` or ``min`` along a dimension: the values, and where the first of them lies."""

    def extreme(values: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
        import torch

        if values.dtype == torch.bool:
            found, where = extreme(values.to(torch.uint8), dim, keepdim)
            return found.to(torch.bool), where
        if values.dim() == 0:
            _small.check_of_scalar(dim)
            return values.clone(), torch.zeros((), dtype=torch.int64, device=values.device)
        found = (torch.amax if largest else torch.amin)(values, [dim], keepdim=True)
        where = _first(values, found, dim)
        return (found, where) if keepdim else (found.squeeze(dim), where.squeeze(dim))

    return extreme


def index(largest: bool) -> Kernel:
    """``argmax`` or ``argmin``: the first place; of the flattened tensor without ``dim``."""

    def place(values: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        import torch

        if values.dtype == torch.bool:
            values = values.to(torch.uint8)
        if dim is not None and values.dim() == 0:
            _small.check_of_scalar(dim)
        if dim is None or values.dim() == 0:
            flat = values.reshape(-1)
            where = _first(flat, (torch.amax if largest else torch.amin)(flat, [0], keepdim=True), 0)
            return where.reshape([1] * values.dim() if keepdim else [])
        found = (torch.amax if largest else torch.amin)(values, [dim], keepdim=True)
        where = _first(values, found, dim)
        return where if keepdim else where.squeeze(dim)

    return place


def _first(values: torch.Tensor, found: torch.Tensor, dim: int) -> torch.Tensor:
    """Where the first of ``values`` that is ``found``, or nan, lies along ``dim``, which stays with one element."""
    import torch

    here = (values == found) | (values != values)
    return torch.where(here, _places(values, dim), values.shape[dim]).amin([dim], keepdim=True)


def _places(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Each element's place along ``dim``, to be broadcast."""
    import torch

    shape = [1] * values.dim()
    shape[dim] = -1
    return torch.arange(values.shape[dim], device=values.device).reshape(shape)


def running(kernel: Kernel, values: torch.Tensor, dim: int) -> Any:
    """``cummax``: the largest so far, and where the last of them lies; after nan it is nan."""
    import torch

    if values.dim() == 0:
        _small.check_of_scalar(dim)
        return values.clone(), torch.zeros((), dtype=torch.int64, device=values.device)
    if values.numel() == 0:
        return values.clone(), torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    if values.dtype == torch.bool:
        found, where = running(kernel, values.to(torch.uint8), dim)
        return found.to(torch.bool), where
    missing = values != values
    after = missing.to(torch.int64).cumsum(dim) > 0
    lowest = torch.finfo(values.dtype).min if values.is_floating_point() else torch.iinfo(values.dtype).min
    found = kernel(torch.where(missing, torch.full_like(values, lowest), values), dim)[0]
    # PyTorch/XLA begins with the lowest finite number; what equals it so far is all that there was
    if values.is_floating_point():
        reached = (values != float("-inf")).to(torch.int64).cumsum(dim) > 0
        found = torch.where(reached, found, torch.full_like(found, float("-inf")))
    found = torch.where(after, torch.full_like(found, float("nan")) if values.is_floating_point() else found, found)
    record = ((values == found) & ~after) | missing
    places = torch.where(record, _places(values, dim), -1)
    return found, kernel(places, dim)[0]


def running_least(values: torch.Tensor, dim: int) -> Any:
    """``cummin``, as ``cummax`` of the reverse order."""
    import torch

    if values.dtype == torch.bool:
        found, where = torch.cummax(~values, dim)
        return ~found, where
    if not values.is_floating_point():  # negating would overflow
        found, where = torch.cummax(~values, dim)
        return ~found, where
    found, where = torch.cummax(-values, dim)
    return -found, where


REPLACED: dict[str, Kernel] = {"cummin": running_least}
WRAPPED: dict[str, Kernel] = {"cummax": running}
for _name, _largest in (("max", True), ("min", False)):
    REPLACED |= {_name: of_all(_largest), f"{_name}.dim": in_dim(_largest), f"arg{_name}": index(_largest)}
    WRAPPED[f"a{_name}"] = reduced(_largest)
