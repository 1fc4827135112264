"""Copies that torch makes of views whose elements do not lie in order.

PyTorch/XLA says of every tensor that it is contiguous. So ``x.t().contiguous()`` and ``x.t().reshape(-1)`` were views,
where torch makes copies, and were written whenever ``x`` was. How the elements would lie is known from what
functionalisation keeps of a view: the operations that lead to it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ALWAYS = {
    "_reshape_alias_ViewMeta",
    "_unsafe_view_ViewMeta",
    "alias_ViewMeta",
    "detach_ViewMeta",
    "detach__ViewMeta",
    "lift_fresh_ViewMeta",
    "squeeze_ViewMeta",
    "squeeze__ViewMeta",
    "squeeze_dim_ViewMeta",
    "squeeze__dim_ViewMeta",
    "squeeze_dims_ViewMeta",
    "squeeze__dims_ViewMeta",
    "unsqueeze_ViewMeta",
    "unsqueeze__ViewMeta",
    "view_ViewMeta",
    "view_dtype_ViewMeta",
}
"""Views of elements in order that are in order themselves."""
_OF_FIRST_DIMENSION = {"select_int_ViewMeta", "split_with_sizes_ViewMeta", "unbind_int_ViewMeta"}
"""The same where what they were given last, but for a place in that dimension, is 0."""

Step = tuple[type, tuple[Any, ...]]


class _Layout:
    """How the elements of a view lie. Shapes are those of the tensor that ``steps`` begin with."""

    def __init__(self, shape: tuple[int, ...], steps: tuple[Step, ...]) -> None:
        import torch

        views = torch._C._functionalization
        chain = [kind(_as_views(arguments)) for kind, arguments in steps]
        self._like: torch.Tensor = views.apply_view_meta_sequence(torch.empty(shape, device="meta"), chain)
        self._divides: dict[tuple[int, ...], bool] = {}

    def is_contiguous(self, memory_format: torch.memory_format) -> bool:
        return self._like.is_contiguous(memory_format=memory_format)

    def has_view(self, shape: Sequence[int]) -> bool:
        """Whether the elements have this shape, too, without a copy. Also of one that they cannot have."""
        key = tuple(shape)
        found = self._divides.get(key)
        if found is None:
            try:
                self._like.view(key)
            except RuntimeError:
                found = self._like.is_contiguous()
            else:
                found = True
            self._divides[key] = found
        return found


_layout = functools.lru_cache(maxsize=4096)(_Layout)


def _as_views(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of an operation that gives a view, and not a copy as for PyTorch/XLA; that is said before the mode."""
    import torch

    views: Any = torch._C._functionalization
    mode = views.InverseReturnMode
    place = next(index for index, item in enumerate(arguments) if isinstance(item, mode)) - 1
    thawed = (list(item) if isinstance(item, tuple) else item for item in arguments[place + 1 :])
    return (*arguments[:place], True, *thawed)


def _steps(values: torch.Tensor) -> Sequence[Any]:
    """The operations that make a view of the tensor that holds its elements; none where it does itself."""
    import torch

    if not torch._is_functional_tensor(values):
        return ()
    steps: Sequence[Any] = torch._C._functionalization.get_view_meta_sequence(values)
    return steps


def _frozen(step: Any) -> Step:
    return type(step), tuple(tuple(item) if isinstance(item, list) else item for item in step.as_tuple())


def _keeps_order(step: Any) -> bool:
    name = type(step).__name__
    if name in _ALWAYS:
        return True
    arguments = step.as_tuple()
    if name == "slice_Tensor_ViewMeta":
        dim, _, _, stride = arguments[-4:]
        return bool(dim == 0 and stride == 1)
    if name == "split_Tensor_ViewMeta":
        return bool(arguments[-1] == 0)
    dim = arguments[-2] if name == "select_int_ViewMeta" else arguments[-1]
    return name in _OF_FIRST_DIMENSION and bool(dim == 0)


def _before(step: Any, shape: list[int]) -> list[int] | None:
    """The shape before a step that only orders dimensions, or nothing; None where it does more."""
    name, arguments = type(step).__name__, step.as_tuple()
    if name in ("alias_ViewMeta", "detach_ViewMeta"):
        return shape
    if name == "t_ViewMeta":
        return shape[::-1]
    if name == "transpose_int_ViewMeta":
        first, second = arguments[-2:]
        shape = list(shape)
        shape[first], shape[second] = shape[second], shape[first]
        return shape
    if name == "permute_ViewMeta":
        order = [dim % len(shape) for dim in arguments[-1]]
        return [shape[order.index(dim)] for dim in range(len(shape))]
    return None


def layout(values: torch.Tensor) -> _Layout | bool:
    """How the elements of ``values`` lie; where that is not known, whether they are taken to lie in order.

    They are where no operation since the tensor that holds them can have changed that.
    """
    steps = _steps(values)
    if not steps:
        return True
    base = values._base
    above = () if base is None else _steps(base)
    if base is None or not all(map(_keeps_order, above)):  # after detach(), for one
        shape, above = list(values.shape), steps
        while above and (before := _before(above[-1], shape)) is not None:
            shape, above = before, above[:-1]
        if not all(map(_keeps_order, above)):
            return False
    else:
        shape = list(base.shape)
    return _layout(tuple(shape), tuple(map(_frozen, steps[len(above) :])))


def _is_contiguous(values: torch.Tensor, memory_format: torch.memory_format) -> bool:
    """As ``Tensor.is_contiguous`` would say of a view of a tensor as torch makes them; always of a tensor itself."""
    import torch

    found = layout(values)
    if found is True and memory_format is not torch.contiguous_format:
        found = _layout(tuple(values.shape), ())
    return found if isinstance(found, bool) else found.is_contiguous(memory_format)


def take_own_copies() -> None:
    """``contiguous`` and ``reshape`` copy what torch would copy.

    The first asks the tensor before it calls any kernel. The second is called by torch's own functions a hundred times
    in a step, for which a kernel in Python would take longer than all else of it.
    """
    import torch

    base: Any = torch._C.TensorBase
    plain_contiguous, plain_reshape = base.contiguous, base.reshape
    on_devices: Any = base.is_xla.__get__

    @functools.wraps(plain_contiguous)
    def contiguous(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_devices(self) and (args or kwargs or _steps(self)):
            wanted = args[0] if args else kwargs.get("memory_format", torch.contiguous_format)
            if not _is_contiguous(self, wanted):
                return self.clone()
        return plain_contiguous(self, *args, **kwargs)

    @functools.wraps(plain_reshape)
    def reshape(self: torch.Tensor, *shape: Any, **named: Any) -> Any:
        if on_devices(self) and not isinstance(found := layout(self), bool):
            wanted = named.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
            self = self if found.has_view(wanted) else self.clone()
        elif on_devices(self) and found is False:
            self = self.clone()
        return plain_reshape(self, *shape, **named)

    @functools.wraps(torch.reshape)
    def reshape_function(input: torch.Tensor, shape: Any) -> Any:
        return reshape(input, shape)

    torch.compiler.allow_in_graph(reshape_function)
    patched: Any = torch
    patched.Tensor.contiguous, patched.Tensor.reshape, patched.reshape = contiguous, reshape, reshape_function


def ravel(kernel: Callable[..., Any], values: torch.Tensor) -> Any:
    """As ``contiguous().view(-1)``."""
    import torch

    return kernel(values if _is_contiguous(values, torch.contiguous_format) else values.clone())


def flatten(kernel: Callable[..., Any], values: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """A copy where no view of that shape is possible."""
    found = layout(values)
    if not isinstance(found, bool):
        import torch

        found = found.has_view(torch.empty(values.shape, device="meta").flatten(start_dim, end_dim).shape)
    return kernel(values if found else values.clone(), start_dim, end_dim)


WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "flatten.using_ints": flatten,
    "ravel": ravel,
}
