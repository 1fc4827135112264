"""Index tensors of different integer types in one place, which PyTorch/XLA concatenates and XLA refuses, and gradients
of embeddings with ``sparse=True``, of which it has no form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Indices = Sequence["torch.Tensor | None"]


def _of_one_type(indices: Indices) -> list[torch.Tensor | None]:
    """Booleans and bytes are masks."""
    import torch

    whole = (torch.int16, torch.int32, torch.int64)
    types = {index.dtype for index in indices if index is not None and index.dtype in whole}
    if len(types) < 2:
        return list(indices)
    return [index.to(torch.int64) if index is not None and index.dtype in whole else index for index in indices]


def index(kernel: Callable[..., Any], values: torch.Tensor, indices: Indices) -> Any:
    return kernel(values, _of_one_type(indices))


def index_put(
    kernel: Callable[..., Any], values: torch.Tensor, indices: Indices, source: torch.Tensor, *rest: Any
) -> Any:
    """
    Raises:
        RuntimeError: the values are of another type.
    """
    if source.dtype != values.dtype:
        raise RuntimeError(
            f"index_put requires the source and destination dtypes match, got {values.dtype} for the destination and "
            f"{source.dtype} for the source; convert the source (.to(tensor.dtype))"
        )
    return kernel(values, _of_one_type(indices), source, *rest)


def embedding_gradient(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    count: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> torch.Tensor:
    """
    Raises:
        NotImplementedError: it is to be sparse.
    """
    import torch

    if sparse:
        raise NotImplementedError(
            "the gradient of an Embedding on a device is dense, got sparse=True; make it with sparse=False, and take "
            "Adam in place of SparseAdam"
        )
    made: torch.Tensor = torch.ops.aten.embedding_dense_backward(
        gradient, indices, count, padding_idx, scale_grad_by_freq
    )
    return made


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"embedding_backward": embedding_gradient}
WRAPPED: dict[str, Callable[..., Any]] = {"index.Tensor": index, "index_put": index_put}
