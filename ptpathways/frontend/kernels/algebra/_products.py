"""Products of matrices that are added to something: PyTorch/XLA's are for factors of one, and real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


def _added(values: torch.Tensor, product: torch.Tensor, beta: complex, alpha: complex) -> torch.Tensor:
    """Where ``beta`` is zero, nan and infinity in ``values`` do not matter. Integers are multiplied by integers."""
    if not product.is_floating_point() and not product.is_complex():
        beta, alpha = int(beta.real), int(alpha.real)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (values if beta == 1 else values * beta)


def added_to(product: str) -> Callable[..., Any]:
    """``addmm`` (of ``mm``) or ``baddbmm`` (of ``bmm``)."""

    @hands_on(Plain.UNIT_FACTORS)
    def kernel_for(
        kernel: Callable[..., Any],
        values: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        *,
        beta: complex = 1,
        alpha: complex = 1,
    ) -> Any:
        if beta == 1 and alpha == 1:
            return kernel(values, left, right)
        import torch

        return _added(values, getattr(torch, product)(left, right), beta, alpha)

    return kernel_for


def addmv(
    values: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    """In the type of the matrix, whatever that of ``values`` is."""
    import torch

    return _added(values.to(matrix.dtype), torch.mv(matrix, vector), beta, alpha)


def addbmm(
    values: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> torch.Tensor:
    import torch

    return _added(values, torch.bmm(left, right).sum(0), beta, alpha)


REPLACED: dict[str, Callable[..., Any]] = {"addmv": addmv, "addbmm": addbmm}
WRAPPED: dict[str, Callable[..., Any]] = {"addmm": added_to("mm"), "baddbmm": added_to("bmm")}
