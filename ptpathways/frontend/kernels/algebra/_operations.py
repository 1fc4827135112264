"""Operations for which PyTorch/XLA has no form, or one that cannot be divided over devices, made of others.

- ``histc`` and ``_grouped_mm``, with shapes that do not depend on the data, for mixture-of-experts layers. Without
  these torch would compute them on the client, or not at all: its CPU kernels lack some types.
- ``all`` and ``any``: torch_xla reduces by a computation of its own, which collectives do not know.
- Weight normalisation, and ``vdot``, which spectral normalisation uses.

Each is called below autograd, with plain XLA tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _refusals, _small
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_library: torch.library.Library | None = None


def register() -> None:
    """Puts the operations in torch's table for XLA devices. Idempotent."""
    global _library
    if _library is not None:
        return
    kernels: dict[str, Callable[..., Any]] = {"histc": histc, "_grouped_mm": grouped_mm, "vdot": vdot}
    for overload in ("", ".dim", ".dims"):
        kernels |= {f"all{overload}": all_true, f"any{overload}": any_true}
    kernels |= {"_weight_norm_interface": weight_norm, "_weight_norm_interface_backward": weight_norm_backward}
    _library = _xla.replace_kernels(kernels)


def all_true(values: torch.Tensor, dim: int | list[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """``torch.all``, over one dimension, several, or all of them (None). Of type bool, or uint8 for uint8."""
    return _as_answer(_count(values == 0, dim, keepdim) == 0, values)


def any_true(values: torch.Tensor, dim: int | list[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """``torch.any``, as ``all_true``."""
    return _as_answer(_count(values != 0, dim, keepdim) != 0, values)


def _count(found: torch.Tensor, dim: int | list[int] | None, keepdim: bool) -> torch.Tensor:
    if dim is None:
        return found.sum(list(range(found.dim())), keepdim=keepdim)
    if found.dim() == 0:
        _small.check_of_scalar(*(dim if isinstance(dim, list | tuple) else [dim]))
        return found.sum([], keepdim=keepdim)
    # Unlike other reductions these go over none where none is named.
    return found.sum(dim, keepdim=keepdim) if dim != [] else found


def _as_answer(answer: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    import torch

    return answer.to(torch.uint8) if values.dtype == torch.uint8 else answer


def histc(values: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """``torch.histc``: how many of ``values`` lie in each of ``bins`` equal parts of [min, max]; integers, too.

    Returns:
        A tensor of shape (bins,) and the type of ``values``.

    Raises:
        ValueError: fewer than one bin, or bounds in the wrong order.
    """
    import torch

    if bins < 1 or max < min:
        raise ValueError(f"histc needs bins of at least 1 and min not above max, got {bins} bins from {min} to {max}")
    flat = values.flatten()
    if flat.numel() == 0:
        return torch.zeros(bins, dtype=values.dtype, device=values.device)
    if not flat.is_floating_point():
        flat = flat.to(torch.int64)
    low: torch.Tensor | float = min
    high: torch.Tensor | float = max
    width: torch.Tensor | float = max - min
    if flat.is_floating_point():  # rounded as the values are, as torch does
        bounds = torch.tensor([min, max], dtype=flat.dtype)
        low, high, width = *bounds.tolist(), float(bounds[1] - bounds[0])
    if min == max:  # as torch: the range of the data, and one to either side where that is a single value
        low, high = flat.min(), flat.max()
        same = (low == high).to(flat.dtype)
        low, high = low - same, high + same
        width = high.float() - low if _precision.is_short(flat.dtype) else high - low
    inside = (flat >= low) & (flat <= high)
    if _precision.is_short(flat.dtype):  # torch rounds after each operation, XLA after the last one
        rounded = _rounding(flat.dtype)
        scaled = rounded(rounded(flat.float() - low) * float(torch.tensor(bins, dtype=flat.dtype)))
        place = rounded(scaled / (rounded(width) if isinstance(width, torch.Tensor) else width)).floor()
    else:
        place = torch.div((flat - low) * bins, width, rounding_mode="floor")
    place = torch.where(inside, place.clamp(0, bins - 1), torch.zeros_like(place)).to(torch.int64)  # the last is closed
    counts = torch.zeros(bins, dtype=torch.int64, device=values.device)  # 16-bit floats would stop at 256, or 2,048
    return counts.scatter_add(0, place, inside.to(torch.int64)).to(values.dtype)


def _rounding(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """What leaves of a float32 the digits that a type of 16 bits has, as Veltkamp splits numbers."""
    import torch

    factor = 2.0 ** (16 if dtype == torch.bfloat16 else 13) + 1

    def rounded(values: torch.Tensor) -> torch.Tensor:
        large = values * factor
        return large - (large - values)

    return rounded


def grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``torch._grouped_mm``: a matrix product per group, where ``offs`` (groups,) says where each group ends.

    The groups' sizes are data, so every row meets every group's matrix, and those of other groups count as zero: one
    matrix product of as many times the work as there are groups. Rows of no group give zero.

    Args:
        left, right: (rows, k) and (groups, k, columns), rows grouped; (rows, k) and (k, columns), k grouped;
            (groups, rows, k) and (k, columns), columns grouped; or (groups, rows, k) and (groups, k, columns).

    Returns:
        (rows, columns) where rows or columns are grouped, else (groups, rows, columns).

    Raises:
        ValueError: ``offs`` is missing, or there where nothing is grouped; or a ``bias``, which torch has no use for.
    """
    import torch

    grouped = left.dim() == 2 or right.dim() == 2
    if grouped != (offs is not None) or bias is not None:
        raise ValueError(
            "grouped_mm needs offs exactly when one of the matrices has two dimensions, and no bias; got "
            f"{tuple(left.shape)} and {tuple(right.shape)} {'without' if offs is None else 'with'} offs"
        )
    if offs is None:
        product = torch.bmm(left, right)
    elif left.dim() == 2 and right.dim() == 3:
        product = _rows_grouped(left, right, offs)
    elif left.dim() == 3:
        product = torch.transpose_copy(_rows_grouped(right.transpose(0, 1), left.transpose(1, 2), offs), 0, 1)
    else:
        mine = _members(offs, left.shape[1]).to(left.dtype)  # (k, groups)
        apart = left.unsqueeze(0) * mine.transpose(0, 1).unsqueeze(1)  # (groups, rows, k)
        product = torch.mm(apart.reshape(-1, left.shape[1]), right).reshape(-1, left.shape[0], right.shape[1])
    return product if out_dtype is None else product.to(out_dtype)


def _rows_grouped(left: torch.Tensor, right: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    import torch

    groups, inner, columns = right.shape
    mine = _members(offs, left.shape[0]).to(left.dtype)  # (rows, groups)
    apart = (mine.unsqueeze(2) * left.unsqueeze(1)).reshape(-1, groups * inner)
    return torch.mm(apart, right.reshape(groups * inner, columns))


def _members(offs: torch.Tensor, count: int) -> torch.Tensor:
    """Which of ``count`` things are in which group: bool of shape (count, groups)."""
    import torch

    index = torch.arange(count, dtype=offs.dtype, device=offs.device).unsqueeze(1)
    ends = offs.unsqueeze(0)
    starts = torch.cat([torch.zeros_like(offs[:1]), offs[:-1]]).unsqueeze(0)
    return (index >= starts) & (index < ends)


def _sum_but(v: torch.Tensor, dim: int) -> torch.Tensor:
    """Over all dimensions but ``dim``, as a norm is taken."""
    others = [index for index in range(v.dim()) if index != dim % v.dim()]
    return v.sum(others, keepdim=True) if others else v  # torch would take none for all


def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """``v * (g / norm)`` and the norm, of ``v`` over all dimensions but ``dim``, in g's shape."""
    norm = _sum_but(v.square(), dim).sqrt()
    return v * (g / norm), norm


def weight_norm_backward(
    gradient: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norm: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of ``v`` and ``g``."""
    along = _sum_but(gradient * v, dim)  # in the direction of v, times its norm
    return (g / norm) * (gradient - v * (along / (norm * norm))), along / norm


def vdot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``torch.vdot`` of two vectors.

    Raises:
        RuntimeError: of two types.
    """
    _refusals.one_type("vdot", a, b)
    return (a.conj() * b).sum()
