"""Decompositions and inverses: PyTorch/XLA's are missing some results, or are for matrices that have elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend import _fallback
from ptpathways.frontend._kernels import _small

if TYPE_CHECKING:
    import torch


def inv_ex(
    kernel: Callable[..., Any], matrices: torch.Tensor, *, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverses, and for each 1 where there is none (it is not finite), else 0: int32 of the batch shape."""
    import torch

    if check_errors or matrices.numel() == 0:
        found = _fallback.on_client(torch.ops.aten.linalg_inv_ex.default, matrices, check_errors=check_errors)
        return found[0], found[1]
    inverse = kernel(matrices)[0]
    return inverse, (~torch.isfinite(inverse)).any(-1).any(-1).to(torch.int32)


def slogdet(matrices: torch.Tensor) -> Any:
    """On the client, as ``det`` is: the gradient needs the factors, which PyTorch/XLA does not compute."""
    import torch

    return _fallback.on_client(torch.ops.aten._linalg_slogdet.default, matrices)


def svd(
    kernel: Callable[..., Any],
    matrices: torch.Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> Any:
    """PyTorch/XLA's for one square matrix; of several, or others, its values and vectors are wrong."""
    import torch

    if matrices.numel() > 0 and matrices.dim() == 2 and matrices.shape[0] == matrices.shape[1] and driver is None:
        return kernel(matrices, full_matrices, compute_uv)
    call = torch.ops.aten._linalg_svd.default
    return _fallback.on_client(call, matrices, full_matrices, compute_uv, driver=driver)


REPLACED: dict[str, Callable[..., Any]] = {"_linalg_slogdet": slogdet}
WRAPPED: dict[str, Callable[..., Any]] = {"linalg_inv_ex": inv_ex, "_linalg_svd": svd}
WRAPPED |= {name: _small.or_empty(name) for name in ("_linalg_eigh", "linalg_qr", "triangular_solve")}
