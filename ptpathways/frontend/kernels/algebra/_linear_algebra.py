"""Decompositions and inverses: PyTorch/XLA's are missing some results, or are for matrices that have elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.calls import _fallback, _small

if TYPE_CHECKING:
    import torch


def inv_ex(
    kernel: Callable[..., Any], matrices: torch.Tensor, *, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverses, and for each 1 where there is none (it is not finite), else 0: int32 of the batch shape.

    Of complex matrices on the client: PyTorch/XLA forgets a conjugate.
    """
    import torch

    if check_errors or matrices.numel() == 0 or matrices.is_complex():
        found = _fallback.on_client(torch.ops.aten.linalg_inv_ex.default, matrices, check_errors=check_errors)
        return found[0], found[1]
    inverse = kernel(matrices)[0]
    return inverse, (~torch.isfinite(inverse)).any(-1).any(-1).to(torch.int32)


def inverse(matrices: torch.Tensor) -> torch.Tensor:
    """Whether there is one is read, as torch does. PyTorch/XLA's of a singular matrix may be of large numbers, which no
    check of them tells from a poor one: where it is in doubt torch's factors on the client decide.

    Raises:
        torch.linalg.LinAlgError: a matrix is singular.
    """
    import torch

    found: torch.Tensor = torch.ops.aten.linalg_inv_ex(matrices)[0]
    if matrices.numel() == 0:
        return found
    with torch.no_grad():
        sizes = [side.detach().abs().sum(-2).amax(-1) for side in (matrices, found)]
        doubtful = ~(sizes[0] * sizes[1] * torch.finfo(matrices.dtype).eps < _DOUBT)
        if doubtful.any():
            torch.linalg.inv(matrices.detach().cpu())
    return found


_DOUBT = 1e-2
"""Of the error that an inverse has at least, as a part of it: the condition times the type's precision."""


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
    """PyTorch/XLA's for one square float32 matrix; of several, or others, its values and vectors are wrong, and it
    stops iterating at the precision of float32."""
    import torch

    square = matrices.dim() == 2 and matrices.shape[0] == matrices.shape[1] > 0
    if square and matrices.dtype == torch.float32 and driver is None:
        return kernel(matrices, full_matrices, compute_uv)
    call = torch.ops.aten._linalg_svd.default
    return _fallback.on_client(call, matrices, full_matrices, compute_uv, driver=driver)


def eigh(kernel: Callable[..., Any], matrices: torch.Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    """As ``svd``, PyTorch/XLA's stops iterating at the precision of float32."""
    import torch

    if matrices.numel() > 0 and matrices.dtype == torch.float32:
        return kernel(matrices, UPLO, compute_v)
    return _fallback.on_client(torch.ops.aten._linalg_eigh.default, matrices, UPLO, compute_v)


def rank_into(overload: str) -> Callable[..., Any]:
    """``matrix_rank`` with ``out``, into which torch does not write where it takes a tensor for a subclass's."""

    def rank(matrices: torch.Tensor, *arguments: Any, out: torch.Tensor, **named: Any) -> torch.Tensor:
        import torch

        found = getattr(torch.ops.aten.linalg_matrix_rank, overload)(matrices, *arguments, **named)
        return out.resize_(found.shape).copy_(found)

    return rank


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "inverse": inverse,
    "linalg_inv": inverse,
    "linalg_matrix_rank.atol_rtol_float_out": rank_into("atol_rtol_float"),
    "linalg_matrix_rank.atol_rtol_tensor_out": rank_into("atol_rtol_tensor"),
    "linalg_matrix_rank.out": rank_into("default"),
    "linalg_matrix_rank.out_tol_tensor": rank_into("tol_tensor"),
}
REPLACED: dict[str, Callable[..., Any]] = {"_linalg_slogdet": slogdet}
WRAPPED: dict[str, Callable[..., Any]] = {"linalg_inv_ex": inv_ex, "_linalg_eigh": eigh, "_linalg_svd": svd}
WRAPPED |= {name: _small.or_empty(name) for name in ("linalg_qr", "triangular_solve")}
