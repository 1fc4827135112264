"""``shard``: how tensors lie on their slice, said of parameters and of activations. Values never change by it.

A custom call in the trace stands for "from here on it lies so". The plugin compiles it to XLA's sharding annotation; on
one device it is a copy. What is said of parameters is remembered, so that ``prepare`` leaves them as they were said to
lie, and torch_xla's own questions about shardings have an answer before anything is computed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ptpathways import core
from ptpathways.frontend.base import _recorded
from ptpathways.frontend.slices import _mesh
from ptpathways.frontend.xla import _trace, _xla
from ptpathways.sharding import Tiling

if TYPE_CHECKING:
    import torch
    from torch import nn

T = TypeVar("T")
Rule: TypeAlias = Callable[[str, "torch.Tensor"], Any]
"""Of a parameter's or buffer's name and itself, how it is to lie: a spec, placements, or None for as it is."""


_ATTRIBUTE = "_pathways_layout"
_REMEMBERED = 4096
"""Of tensors that are no parameters. Activations are said of anew at each step."""

_said: OrderedDict[int, Tiling] = OrderedDict()


def shard(thing: T, spec: Any, mesh: Any = None) -> T:
    """Sets how a tensor, or the tensors of a module, are sharded over their slice. No byte passes the client.

        pw.shard(model.up.weight, ("model", None))     # in place: optimizers, ties and hooks are kept
        pw.shard(model, lambda name, p: ("model", None) if name.endswith("up.weight") else None)
        x = pw.shard(x, ("data", None, "model"))       # an activation; its gradient is sharded likewise

    The partition specs are those of PyTorch/XLA's ``xs.mark_sharding``. Values never change.

    Args:
        thing: a module, whose parameters and buffers are laid out in place; a leaf tensor, likewise; or the result of
            operations, for which a new, equal tensor is returned. Inside a captured step, leaf tensors without
            ``requires_grad`` are treated as results. Inside a function (``function``) it has no effect: the function's
            placements count.
        spec: a partition spec, a tuple with an axis name, a tuple of names or None for each dimension; a list of
            placements of ``torch.distributed.tensor``, one per axis; ``()``: a replica on every device. For a module
            also a rule ``(name, tensor) -> spec`` that returns None to leave the tensor as it is.
        mesh: names the devices of the slice: ``ptpathways.sharding.Mesh`` or torch_xla's ``spmd.Mesh``. Default: the
            slice's own axes.

    Returns:
        ``thing``, or the new tensor, of the same shape and dtype.

    Raises:
        InvalidSharding: an axis does not exist, a dimension is not divided evenly, or a tensor is not on a slice.
            Nothing was changed.
    """
    import torch

    if isinstance(thing, torch.nn.Module):
        _shard_module(thing, spec, mesh)
        return thing
    if not isinstance(thing, torch.Tensor):
        raise core.InvalidSharding(f"shard() takes a tensor or a module, got {type(thing).__name__}")
    given = spec("", thing) if callable(spec) else spec
    if callable(spec) and given is None:
        return thing
    tiling = tiling_of(thing.shape, given, thing.device, mesh, "the tensor")
    if _changes_in_place(thing):
        lay(thing, tiling)
        return thing
    result: Any = laid(thing, tiling)
    return result  # type: ignore[no-any-return]


def tiling_of(shape: Sequence[int], given: Any, device: torch.device, mesh: Any, what: str) -> Tiling:
    """What a spec means for a tensor of that shape on a slice, dimensions divided evenly. Raises InvalidSharding."""
    if device.type != "xla":
        raise core.InvalidSharding(
            f"{what} is on {device}, which is no slice; move it there with .to(slice.device) or pw.prepare()"
        )
    slice = _mesh.slice_of(device)
    if slice is None:
        return _mesh.copies(len(shape), 1)
    grid = _mesh.grid_of(slice, mesh)
    try:
        axes = grid.axes(given, len(shape))
    except core.InvalidSharding as error:
        raise core.InvalidSharding(f"{what} of shape {tuple(shape)}: {error}") from None
    for dimension, names in enumerate(axes):
        parts = grid.parts(names)
        if shape[dimension] % parts:
            raise core.InvalidSharding(
                f"dimension {dimension} of {what} has {shape[dimension]} elements, which "
                f"{' x '.join(f'{name!r} ({grid.sizes[name]})' for name in names)} does not divide into {parts} equal "
                "parts; pad it, or divide another dimension"
            )
    return grid.tiling(axes)


def lay(tensor: torch.Tensor, tiling: Tiling) -> None:
    """Lays a tensor out anew in place; the same Python object has the same values. Nothing where it lies so already."""
    if _says_nothing(tensor, tiling):
        return
    if tensor.is_leaf and _mesh.layout_of_tensor(tensor) == tiling:
        remember(tensor, tiling)
        return
    import torch

    with torch.no_grad():
        anew = _call(tensor.detach(), tiling)
        if tensor.is_leaf:
            tensor.data.copy_(anew)  # what shares its memory sees it, too
        else:
            tensor.data = anew  # the autograd graph is not told, for it is the same value
        if tensor.is_leaf and tensor.grad is not None and tensor.grad.shape == tensor.shape:
            tensor.grad.data.copy_(_call(tensor.grad.detach(), tiling))
    remember(tensor, tiling)


def laid(tensor: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """A new tensor of the same values that lies so, and whose gradient does."""
    if _says_nothing(tensor, tiling):
        return tensor
    result: torch.Tensor = _function().apply(tensor, tiling)
    return result


def remember(tensor: torch.Tensor, tiling: Tiling | None) -> None:
    """Notes how a tensor was said to lie; None: forgets it."""
    import torch

    if isinstance(tensor, torch.nn.Parameter):
        setattr(tensor, _ATTRIBUTE, tiling)
    number = int(_xla.binding()._xla_get_tensor_id(tensor))
    _said.pop(number, None)
    if tiling is not None:
        _said[number] = tiling
        if len(_said) > _REMEMBERED:
            _said.popitem(last=False)


def said_of(tensor: torch.Tensor) -> Tiling | None:
    """How a tensor was said to lie, if anything was."""
    found: Tiling | None = getattr(tensor, _ATTRIBUTE, None)
    if found is None and tensor.device.type == "xla":
        found = _said.get(int(_xla.binding()._xla_get_tensor_id(tensor)))
    if found is None or tensor.device.type != "xla":
        return None
    return found if len(found[0]) == tensor.dim() and len(found[1]) == _mesh.size_of(tensor.device) else None


def _shard_module(module: nn.Module, spec: Any, mesh: Any) -> None:
    chosen = []
    seen: set[int] = set()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        given = spec(name, tensor) if callable(spec) else spec
        if id(tensor) not in seen and not (callable(spec) and given is None):
            seen.add(id(tensor))
            chosen.append((tensor, tiling_of(tensor.shape, given, tensor.device, mesh, name)))
    for tensor, tiling in chosen:
        lay(tensor, tiling)


def _says_nothing(tensor: torch.Tensor, tiling: Tiling) -> bool:
    """Of a scalar, on one device, and in a traced function, whose values lie as its placements say."""
    return len(tiling[1]) == 1 or tensor.dim() == 0 or _trace.tracing()


def _changes_in_place(tensor: torch.Tensor) -> bool:
    import torch

    if not tensor.is_leaf or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return tensor.requires_grad or isinstance(tensor, torch.nn.Parameter) or not _recorded.is_recorded_here()


def _call(tensor: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    if _mesh.slice_of(tensor.device) is None:
        return tensor.clone()
    return _xla.said_to_lie(tensor, tiling)


_function_class: Any = None


def _function() -> Any:
    """The autograd function; made late, because this room is imported before torch."""
    global _function_class
    if _function_class is None:
        import torch

        class Lay(torch.autograd.Function):
            @staticmethod
            def forward(tensor: torch.Tensor, tiling: Tiling) -> torch.Tensor:
                return _call(tensor, tiling)

            @staticmethod
            def setup_context(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
                context.tiling = inputs[1]

            @staticmethod
            def backward(context: Any, *gradients: torch.Tensor) -> Any:
                return Lay.apply(gradients[0], context.tiling), None  # type: ignore[no-untyped-call]

        _function_class = Lay
    return _function_class
