"""Copies that torch makes of views whose elements do not lie in order.

PyTorch/XLA says of every tensor that it is contiguous. So ``x.t().contiguous()`` and ``x.t().reshape(-1)`` were views,
where torch makes copies, and were written whenever ``x`` was. How the elements would lie is known from what
functionalisation keeps of a view: the operations that lead to it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.xla._plain import Plain, hands_on, of_wrapper

if TYPE_CHECKING:
    import torch

_SAME = {"alias", "detach", "detach_", "lift_fresh"}
_OF_ANOTHER_TYPE = {"view_as_complex", "view_as_real", "view_dtype"}
_IN_ORDER = {
    "_reshape_alias",
    "_unsafe_view",
    "squeeze",
    "squeeze_",
    "squeeze_dim",
    "squeeze__dim",
    "squeeze_dims",
    "squeeze__dims",
    "unsqueeze",
    "unsqueeze_",
    "view",
}
"""Operations that leave elements in their order: their result's shape says all."""
_NUMBERS = {
    "diagonal": 3,
    "select_int": 2,
    "slice_Tensor": 4,
    "split_Tensor": 2,
    "transpose_": 2,
    "transpose_int": 2,
    "unbind_int": 1,
    "unfold": 3,
}
"""How many numbers say what an operation does.

``as_tuple`` is asked of no other operation: torch 2.9 makes it of references to lists that it has let go by then.
"""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Layout:
    """How the elements of a view lie: its shape, and by dimension how far the next element is."""

    shape: Shape
    strides: Shape

    def is_contiguous(self, memory_format: torch.memory_format) -> bool:
        return _is_contiguous_as(self, memory_format)

    def has_view(self, shape: Sequence[int]) -> bool:
        """Whether the elements have this shape, too, without a copy. Also of one that they cannot have."""
        return _has_view(self, tuple(shape))

    def like(self) -> torch.Tensor:
        import torch

        return torch.empty_strided(self.shape, self.strides, device="meta")


@functools.lru_cache(maxsize=4096)
def _is_contiguous_as(layout: _Layout, memory_format: torch.memory_format) -> bool:
    return layout.like().is_contiguous(memory_format=memory_format)


@functools.lru_cache(maxsize=4096)
def _has_view(layout: _Layout, shape: Shape) -> bool:
    like = layout.like()
    try:
        like.view(shape)
    except RuntimeError:
        return like.is_contiguous()
    return True


@functools.lru_cache(maxsize=4096)
def _in_order(shape: Shape) -> _Layout:
    import torch

    return _Layout(shape, torch.empty(shape, device="meta").stride())


@functools.lru_cache(maxsize=4096)
def _after(layout: _Layout, name: str, numbers: tuple[Any, ...], shape: Shape) -> _Layout | None:
    """What an operation makes of a layout, given the shape it makes; None where that is not known."""
    strides, dims = list(layout.strides), len(layout.shape)
    if name in _IN_ORDER:
        try:
            return _Layout(shape, layout.like().view(shape).stride())
        except RuntimeError:  # torch would have refused it
            return None
    if name in ("t", "t_"):
        strides.reverse()
    elif name in ("transpose_int", "transpose_"):
        first, second = numbers
        strides[first], strides[second] = strides[second], strides[first]
    elif name == "permute":
        strides = [strides[dim] for dim in numbers]
    elif name == "expand":
        added = len(shape) - dims
        strides = [0] * added + [
            stride if size == wanted else 0
            for size, wanted, stride in zip(layout.shape, shape[added:], strides, strict=True)
        ]
    elif name == "slice_Tensor":
        strides[numbers[0]] *= numbers[3]
    elif name in ("select_int", "unbind_int"):
        del strides[numbers[0]]
    elif name in ("diagonal", "unfold"):
        return _Layout(shape, getattr(layout.like(), name)(*numbers).stride())
    elif name not in ("split_Tensor", "split_with_sizes"):
        return None
    return _Layout(shape, tuple(strides))


def _steps(values: torch.Tensor) -> Sequence[Any]:
    """The operations that make a view of the tensor that holds its elements; none where it does itself."""
    import torch

    if not torch._is_functional_tensor(values):
        return ()
    steps: Sequence[Any] = torch._C._functionalization.get_view_meta_sequence(values)
    return steps


def is_view(values: torch.Tensor) -> bool:
    """Whether another tensor holds its elements."""
    return bool(_steps(values))


def shares_memory(values: torch.Tensor) -> bool:
    """Whether it is a view, or others are views of it."""
    import torch

    if not torch._is_functional_tensor(values):
        return False
    return is_view(values) or torch._C._storage_Use_Count(values.untyped_storage()._cdata) > 1


def were_written(tensors: Iterable[torch.Tensor]) -> None:
    """Tells torch's functionalization that a kernel has written tensors, so that what shares their memory follows."""
    import torch

    for tensor in tensors:
        if torch._is_functional_tensor(tensor):
            torch._functionalize_commit_update(tensor)
            torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]


def _name(step: Any) -> str:
    return type(step).__name__.removesuffix("_ViewMeta")


def _shape_after(step: Any, shape: Sequence[int]) -> Shape:
    import torch

    views = torch._C._functionalization
    return tuple(views.apply_view_meta_sequence(torch.empty(tuple(shape), device="meta"), [step]).shape)


def _numbers(step: Any, dims: int) -> tuple[Any, ...]:
    """What says what an operation does with a tensor of that many dimensions, but for the shape it makes."""
    name = _name(step)
    if name == "permute":  # what it makes of dimensions that can be told apart
        return tuple(size - 2 for size in _shape_after(step, range(2, dims + 2)))
    count = _NUMBERS.get(name, 0)
    return tuple(step.as_tuple()[-count:]) if count else ()


def _keeps_order(step: Any) -> bool:
    """Whether elements in order are in order after a step, whatever their shape."""
    name = _name(step)
    numbers = _numbers(step, 0) if name in _NUMBERS else ()
    if name == "slice_Tensor":
        return bool(numbers[0] == 0 and numbers[3] == 1)
    if name == "split_Tensor":
        return bool(numbers[1] == 0)
    return name in _SAME or name in _IN_ORDER or (name in ("select_int", "unbind_int") and numbers[0] == 0)


def _shape_before(step: Any, shape: list[int]) -> list[int] | None:
    """The shape before a step that only orders dimensions, or nothing; None where it does more."""
    name = _name(step)
    if name in _SAME:
        return shape
    if name in ("t", "t_"):
        return shape[::-1]
    if name in ("transpose_int", "permute"):
        numbers = _numbers(step, len(shape))
        order = list(range(len(shape)))
        if name == "permute":
            order = list(numbers)
        else:
            first, second = numbers
            order[first], order[second] = order[second], order[first]
        return [shape[order.index(dim)] for dim in range(len(shape))]
    return None


def _holder(values: torch.Tensor) -> torch.Tensor | None:
    """Of what autograd takes a tensor for a view, if that still holds its elements: it may have memory of its own since
    (``.data = ...``)."""
    base = values._base
    same = base is not None and base.untyped_storage()._cdata == values.untyped_storage()._cdata
    return base if same else None


def layout(values: torch.Tensor) -> _Layout | bool:
    """How the elements of ``values`` lie; where that is not known, whether they are taken to lie in order.

    They are where no operation since the tensor that holds them can have changed that.
    """
    steps = _steps(values)
    names = set(map(_name, steps))
    if names <= _SAME | _IN_ORDER | _OF_ANOTHER_TYPE:
        return True
    if names & _OF_ANOTHER_TYPE:
        return False
    base = _holder(values)
    above = () if base is None else _steps(base)
    if base is None or not all(map(_keeps_order, above)):  # after detach(), for one
        shape, above = list(values.shape), steps
        while above and (before := _shape_before(above[-1], shape)) is not None:
            shape, above = before, above[:-1]
        if not all(map(_keeps_order, above)):
            return False
    else:
        shape = list(base.shape)
    found: _Layout | None = _in_order(tuple(shape))
    steps = [step for step in steps[len(above) :] if _name(step) not in _SAME]
    for place, step in enumerate(steps):
        if found is None:
            return False
        made = tuple(values.shape) if place == len(steps) - 1 else _shape_after(step, found.shape)
        found = _after(found, _name(step), _numbers(step, len(found.shape)), made)
    return False if found is None else found


def may_repeat(values: torch.Tensor) -> bool:
    """Whether there is an operation among those that lead to a view which can show elements several times."""
    return not {"as_strided", "expand", "unfold"}.isdisjoint(map(_name, _steps(values)))


def repeats(values: torch.Tensor) -> bool:
    """Whether a view shows elements several times (``expand``), or may do so (``unfold``, ``as_strided``)."""
    names = set(map(_name, _steps(values)))
    return is_expanded(values) if "expand" in names else not names.isdisjoint(("as_strided", "unfold"))


def is_expanded(values: torch.Tensor) -> bool:
    """Whether a view shows elements several times after ``expand``."""
    if values.numel() < 2 or "expand" not in map(_name, _steps(values)):
        return False
    found = layout(values)
    return not isinstance(found, _Layout) or any(
        stride == 0 and size > 1 for size, stride in zip(found.shape, found.strides, strict=True)
    )


def check_shown_once(name: str, values: torch.Tensor) -> None:
    """Of a tensor that an operation is to write.

    Raises:
        RuntimeError: it shows elements several times, which torch refuses; functionalisation would add up what is
            written to each.
    """
    if is_expanded(values):
        raise RuntimeError(
            f"unsupported operation: {name.partition('.')[0]} would write into a view that shows elements several "
            f"times, got expand() to {tuple(values.shape)}. Please clone() the tensor before performing the operation."
        )
    steps = _steps(values)
    if steps and _name(steps[-1]) == "unfold":
        dimension, size, step = _numbers(steps[-1], values.dim() - 1)
        if size > step and values.shape[dimension] > 1:
            raise RuntimeError(
                f"windows that share elements cannot be written in place, got unfold(..., size={size}, step={step}); "
                "write a clone() of them, or the tensor that they are of"
            )


@hands_on(Plain.NO_VIEW)
def filled(kernel: Callable[..., Any], values: torch.Tensor, *rest: Any) -> Any:
    """In place, of a view that may show elements several times (``expand``): each is written once.

    Functionalisation adds up what is written to elements that a view shows.
    """
    found = layout(values)
    once = values
    for dim, stride in enumerate(found.strides if isinstance(found, _Layout) else ()):
        if stride == 0 and values.shape[dim] > 1:
            once = once.narrow(dim, 0, 1)
    made = kernel(once, *rest)
    return made if once is values else values


def filled_by_tensor(kernel: Callable[..., Any], values: torch.Tensor, number: torch.Tensor) -> Any:
    """Of a number on the device, for which PyTorch/XLA waits, and refuses what does not fit: it is converted here.

    Raises:
        RuntimeError: it is no number.
    """
    if number.dim() > 0:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {number.dim()} dimensions."
        )
    if number.device != values.device:
        return filled(kernel, values, number)

    def copied(once: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        return once.copy_(number)

    return filled(copied, values, number)


def _is_contiguous(values: torch.Tensor, memory_format: torch.memory_format) -> bool:
    """As ``Tensor.is_contiguous`` would say of a view of a tensor as torch makes them; always of a tensor itself."""
    import torch

    found = layout(values)
    if found is True and memory_format is not torch.contiguous_format:
        found = _in_order(tuple(values.shape))
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
    torch.jit._builtins._register_builtin(reshape_function, "aten::reshape")  # torch scripts its own forward gradients
    patched: Any = torch
    patched.Tensor.contiguous, patched.Tensor.reshape, patched.reshape = contiguous, reshape, reshape_function


def refuse_unknown_memory() -> None:
    """``allow_mutation_on_saved_tensors`` tells tensors apart by their addresses, which they do not have on devices."""
    import torch

    graph: Any = torch.autograd.graph

    def refusing(plain: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        @functools.wraps(plain)
        def asked(tensor: torch.Tensor) -> Any:
            if tensor.device.type == "xla":
                raise NotImplementedError(
                    "allow_mutation_on_saved_tensors() needs the addresses of tensors, which a device's tensors do not "
                    "have; write a clone() in place of what autograd keeps"
                )
            return plain(tensor)

        return asked

    graph._get_tid, graph._get_sid = refusing(graph._get_tid), refusing(graph._get_sid)


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


def as_strided(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """Of a view it is of the memory that the view is part of, of which PyTorch/XLA knows nothing.

    Raises:
        NotImplementedError: of a view, where that memory is that of no tensor that is known.
        RuntimeError: the memory has fewer elements.
    """
    import torch

    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 in size and storage_offset:  # of nothing, which lies anywhere; PyTorch/XLA looks for it in the memory
        storage_offset = 0
    if _in_memory_order(values):
        _check_inside(values, size, last + (storage_offset or 0))
        return kernel(values, size, stride, storage_offset)
    base = _holder(values)
    if storage_offset is not None and base is not None and _in_memory_order(base):
        _check_inside(base, size, last + storage_offset)
        return kernel(base, size, stride, storage_offset)
    if storage_offset is None and _is_contiguous(values, torch.contiguous_format) and last < values.numel():
        return kernel(values, size, stride, 0)
    raise NotImplementedError(
        "as_strided of a view needs the view's place in memory, which a device's tensors do not have; take it of the "
        "tensor that this is a view of, or of a clone()"
    )


def _check_inside(holder: torch.Tensor, size: Sequence[int], last: int) -> None:
    if 0 not in size and last >= holder.numel():
        raise RuntimeError(
            f"as_strided: its last element would be number {last} of the {holder.numel()} that the memory has "
            "(size, stride, storage_offset)"
        )


def _in_memory_order(values: torch.Tensor) -> bool:
    """Whether a tensor has all of its memory, in order."""
    return all(_name(step) in _SAME or _name(step) in _IN_ORDER for step in _steps(values))


@hands_on(Plain.NO_VIEW)
def filled_diagonal(kernel: Callable[..., Any], values: torch.Tensor, number: complex, wrap: bool = False) -> Any:
    """PyTorch/XLA counts elements as if they lay in order, which those of a view need not."""
    if values.dim() < 2 or not is_view(values) or (values.dim() > 2 and len(set(values.shape)) > 1):
        return kernel(values, number, wrap)
    period = values.shape[1] + 1
    for start in range(0, values.shape[0] if wrap and values.dim() == 2 else 1, period):
        diagonal = values[start : start + values.shape[1]] if values.dim() == 2 else values
        while diagonal.dim() > 1:
            diagonal = diagonal.diagonal(0, 0, 1)
        diagonal.fill_(number)
    return values


VIEWS = (
    *("_conj", "_neg_view", "_reshape_alias", "alias", "as_strided", "detach", "diagonal", "expand", "permute"),
    *("select.int", "slice.Tensor", "split.Tensor", "split_with_sizes", "squeeze", "squeeze.dim", "squeeze.dims", "t"),
    *("transpose.int", "unbind.int", "unfold", "unsqueeze", "view", "view.dtype", "view_as_complex", "view_as_real"),
)
"""Operations that make views of their first argument."""


def of_what_is_there(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """``wrapper`` of one of ``VIEWS``, for a tensor whose memory was written by way of another one.

    Functionalisation makes a view of what a tensor held when it was last looked at, and again when the view is. In the
    meantime the first one is traced, and waits to be computed. A step that has taken the buffer it reads for its own
    results (``w.add_(1)`` of ``held = w.detach()``) fails then, and with it all that is computed together.

    Above autograd, which looks at a view's sizes again after it was made, where the tensor's own are those of the value
    that is replaced here (``x.view_as(x)``).
    """
    import torch

    def current(kernel: Callable[..., Any], values: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if torch._is_functional_tensor(values):
            torch._sync(values)  # type: ignore[attr-defined,no-untyped-call]
        return wrapper(kernel, values, *arguments, **named)

    plain = of_wrapper(wrapper)
    return current if plain is None else hands_on(plain | Plain.UP_TO_DATE)(current)


def resized(kernel: Callable[..., Any], values: torch.Tensor, size: Sequence[int], **named: Any) -> Any:
    """Of a tensor that gets smaller, ``numel()`` too, which functionalisation forgets.

    Raises:
        NotImplementedError: a tensor that was made smaller, or is a view, is to grow: functionalisation takes it for a
            part of its memory then, and of memory that is no longer there.
    """
    import torch

    if math.prod(size) > values.numel() and any(_name(step) in ("as_strided", "resize_") for step in _steps(values)):
        raise NotImplementedError(
            f"resize_ on a device cannot make a tensor larger that was made smaller before (from {values.numel()} to "
            f"{math.prod(size)} elements); make a new tensor, or keep the large one and take parts of it (x[:n])"
        )
    result = kernel(values, size, **named)
    if math.prod(values.shape) != values.numel():
        torch._functionalize_replace(values, torch._from_functional_tensor(values))
    return result


def placed(kernel: Callable[..., Any], values: torch.Tensor, source: torch.Tensor) -> Any:
    """Of ``set_``, which leaves memory that nobody can write any more: of tensors in one memory, their own.

    Raises:
        NotImplementedError: to another part of the memory that the tensor is in.
    """
    import torch

    if not (torch._is_functional_tensor(values) and torch._is_functional_tensor(source)):
        return kernel(values, source)
    if not torch._C._is_alias_of(values, source):  # type: ignore[attr-defined]
        return kernel(values, source)
    if _place(values) == _place(source) and values.shape == source.shape:
        return values
    raise NotImplementedError(
        "set_() to another part of the memory that a tensor is in is not known on devices: assign that part to .data, "
        "or make a new tensor"
    )


def _place(values: torch.Tensor) -> list[tuple[Any, ...]]:
    """Where in its memory a view lies; equal for tensors that have the same elements."""
    return [(name, *step.as_tuple()) for step in _steps(values) if (name := _name(step)) != "detach"]


@hands_on(Plain.NONEMPTY)
def strided_copy(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """Nothing of nothing, as the gates of an empty batch in an LSTM, whose offset PyTorch/XLA finds in no memory."""
    return kernel(values, size, stride, 0 if values.numel() == 0 else storage_offset)


WRAPPED: dict[str, Callable[..., Any]] = dict.fromkeys(("as_strided", "as_strided_copy"), strided_copy)
WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "as_strided": as_strided,
    "fill_diagonal_": filled_diagonal,
    "flatten.using_ints": flatten,
    "ravel": ravel,
}
WRAPPED_FUNCTIONALIZATION: dict[str, Callable[..., Any]] = {
    "fill_.Scalar": filled,
    "fill_.Tensor": filled_by_tensor,
    "resize_": resized,
    "set_.source_Tensor": placed,
    "zero_": filled,
}
