"""Views whose dimensions are changed in place (``part.transpose_(0, 1)``), of which autograd has wrong gradients.

Of a view on a device autograd keeps how it was made, and makes it again for the gradient of what is written in it. Of
what its dimensions are by then it knows nothing: gradients came out transposed, or had no shape that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_TURNED = "_ptpathways_turned"
"""The attribute of such a view that has its version, at which nothing had been written yet."""


def _turns(name: str, shape: Sequence[int], numbers: tuple[Any, ...]) -> bool:
    """Whether such a call changes the dimensions; also of one that is refused."""
    if name == "t_":
        return len(shape) > 1
    if name == "transpose_":
        return len(shape) > 0 and numbers[0] % len(shape) != numbers[1] % len(shape)
    if name.startswith("squeeze_"):
        dims: Any = numbers[0] if numbers else range(len(shape))
        dims = [dims] if isinstance(dims, int) else dims
        return any(shape[dim] == 1 for dim in dims if -len(shape) <= dim < len(shape))
    return True


def turned(name: str) -> Callable[..., Any]:
    """A wrapper of the operation ``name``. What it makes of a view has its gradient, and torch refuses to write in it
    (or, to read it, once what it is a view of was written) where that has gradients: it takes it for a view that a
    function of the user's own has returned, of which it knows as little.

    No call is plain: functionalisation cannot be asked for views within ``torch.func.grad``.
    """

    def wrapper(kernel: Callable[..., Any], values: torch.Tensor, *numbers: Any, **named: Any) -> Any:
        import torch

        if values._base is None or not _turns(name, values.shape, numbers):
            return kernel(values, *numbers, **named)
        if name == "as_strided_":
            raise RuntimeError(
                "as_strided_ of a view would write other elements on these devices than torch's; use as_strided(), or "
                "as_strided_ of a tensor with memory of its own (clone())"
            )
        known = torch._C._autograd
        if getattr(values, _TURNED, None) == values._version:
            known._set_creation_meta(values, known.CreationMeta.DEFAULT)
        made = kernel(values, *numbers, **named)
        if known._get_creation_meta(values) == known.CreationMeta.DEFAULT:
            known._set_creation_meta(values, known.CreationMeta.IN_CUSTOM_FUNCTION)
            setattr(values, _TURNED, values._version)
        return made

    return wrapper


WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    name: turned(name)
    for name in ("as_strided_", "squeeze_", "squeeze_.dim", "squeeze_.dims", "t_", "transpose_", "unsqueeze_")
}
