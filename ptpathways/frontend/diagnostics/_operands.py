"""Operands on two slices: refused where the operation is called, with its line and both tensors.

PyTorch/XLA traces such an operation as if both were on one device. What comes of it fails when the trace is submitted,
or in the backward pass, where nothing says which line it was.

So once the program has the devices of two slices, a function mode of torch compares the devices of each function's
arguments. That takes 2 us a call, of which 0.3 us are the comparison. Only where devices differ, a dispatch mode checks
the operations inside one by one, because many functions may take tensors of two slices (``copy_``, lists of gradients).
A program with one slice has no such mode.

Threads: torch has a stack of modes for each thread, so each enters its own. Autograd's threads use the stack of the
thread that called ``backward``.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.base import _frames, _locator, _state, _torch_functions
from ptpathways.frontend.diagnostics import _cpu_operands

if TYPE_CHECKING:
    import torch

_ELEMENTWISE = ("_foreach_", "_fused_", "_amp_foreach_")
"""Operations on lists: the first tensors of all lists meet, then the second ones. Different ones may differ."""
_ANYWHERE = frozenset({"copy_", "_copy_from", "_copy_from_and_resize", "_foreach_copy_", "is_same_size"})
_WRONG_GRADIENT = re.compile(r"Function (\w+) returned an invalid gradient at index (\d+) - expected device xla:(\d+)")
_TORCH_SAYS = "same device"  # where torch itself compares them: recurrent layers, assignments to .grad
_BUT_GOT = re.compile(r"but got xla:(\d+)")

_asked: set[int] = set()  # torch devices of slices that the program has asked for
_here = threading.local()
_classes: Any = None


def asked_for(index: int) -> None:
    """The program has a slice as a torch device. From the second one on this thread's operations are looked at."""
    if index not in _asked:
        _asked.add(index)
    if len(_asked) > 1:
        _enter()


def arrived() -> None:
    """This thread uses devices."""
    if len(_asked) > 1:
        _enter()


def released(index: int) -> None:
    """The torch device stands for nothing any more."""
    _asked.discard(index)
    if len(_asked) < 2:
        _leave()


def left() -> None:
    """The process has left its cluster."""
    _asked.clear()
    _leave()


def _enter() -> None:
    if getattr(_here, "mode", None) is None:
        stack = _stack()
        _here.mode = _modes()[0]()
        # Whoever leaves a mode takes the last one of the stack, and set_default_device() the first one.
        place = 1 if stack and stack[0] is _default_device() else 0
        _set_stack([*stack[:place], _here.mode, *stack[place:]])


def _leave() -> None:
    mode = getattr(_here, "mode", None)
    stack = _stack() if mode is not None else []
    if mode in stack:  # else torch has taken it out for now, to call it
        _set_stack([one for one in stack if one is not mode])
        _here.mode = None


def _stack() -> list[Any]:
    from torch import overrides

    return list(overrides._get_current_function_mode_stack())


def _default_device() -> Any:
    """The mode of ``torch.set_default_device``, if that is in use."""
    import torch

    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _set_stack(modes: Sequence[Any]) -> None:
    from torch import overrides

    for _ in _stack():
        overrides._pop_mode()
    for mode in modes:
        overrides._push_mode(mode)


def _modes() -> Any:
    """The function mode and the dispatch mode; their classes are made late, this room is imported before torch."""
    global _classes
    if _classes is None:
        _classes = _define()
    return _classes


def _define() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    kind, number = torch.Tensor, torch._C.TensorBase.get_device

    class Look(TorchFunctionMode):
        """Looks for tensors of two slices among the arguments of each function; every program with two slices pays."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            function = _torch_functions.meant(function)
            first = -1
            for value in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(value, kind):
                    index = number(value)
                    if index != first and index >= 0:
                        if first >= 0:
                            return refusing(function, args, kwargs or {})
                        first = index
                elif isinstance(value, (list, tuple)):  # a union takes longer
                    for item in value:
                        if isinstance(item, kind):
                            index = number(item)
                            if index != first and index >= 0:
                                if first >= 0:
                                    return refusing(function, args, kwargs or {})
                                first = index
            try:
                return function(*args, **kwargs) if kwargs else function(*args)
            except RuntimeError as error:
                _explain_gradient(error, args)
                raise

    class Refuse(TorchDispatchMode):
        """Refuses an operation whose operands are on two slices."""

        supports_higher_order_operators = True

        def __init__(self, name: str, given: Sequence[torch.Tensor]) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._name = name
            self._given = given

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if isinstance(function, torch._ops.OpOverload) and function.namespace == "aten":
                name = function._schema.name.removeprefix("aten::")
                if name not in _ANYWHERE:
                    for together in _operands(name, [*args, *kwargs.values()]):
                        if pair := _pair(together):
                            # What the user's function was given says more than what torch has made of it.
                            own = None if name.startswith(_ELEMENTWISE) else _pair(self._given)
                            raise core.DifferentSlices(_message(self._name, own or pair))
            return function(*args, **kwargs)

    def refusing(function: Any, args: Any, kwargs: Any) -> Any:
        from ptpathways.frontend.xla import _trace

        if not _state.is_running() or _trace.tracing():  # whose placeholders are on no slice
            return function(*args, **kwargs)
        name, given = _name_of(function), list(_tensors([*args, *kwargs.values()]))
        if kwargs.get("out") is not None and (pair := _pair(given)):  # torch would write, and move, it first
            raise core.DifferentSlices(_message(name, pair))
        with Refuse(name, given):
            try:
                return function(*args, **kwargs)
            except RuntimeError as error:
                _explain_gradient(error, args)
                pair = _pair(given)
                if pair is None or isinstance(error, core.PathwaysError) or _TORCH_SAYS not in str(error):
                    raise
                raise core.DifferentSlices(f"{_message(name, pair)}. (PyTorch said: {error})") from None

    return Look, Refuse


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _operands(name: str, values: Sequence[Any]) -> Iterator[list[torch.Tensor]]:
    """Those that meet in one computation."""
    if not name.startswith(_ELEMENTWISE):
        yield list(_tensors(values))
        return
    lists = [value for value in values if isinstance(value, list | tuple)]
    single = list(_tensors([value for value in values if not isinstance(value, list | tuple)]))
    for place in range(max(map(len, lists), default=0)):
        yield [*single, *_tensors([each[place] for each in lists if place < len(each)])]


def _pair(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The first two that are on two slices."""
    there = [tensor for tensor in tensors if tensor.device.type == "xla"]
    other = next((tensor for tensor in there if tensor.device != there[0].device), None)
    return None if other is None else (there[0], other)


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", function))
    owner = getattr(getattr(function, "__self__", None), "__name__", "")
    if name in ("__get__", "__set__"):
        return f"{owner}.{name}"
    return name[2:-2] if name.startswith("__") else name


def _message(name: str, pair: tuple[torch.Tensor, torch.Tensor]) -> str:
    import torch

    frames = list(_named_in())
    line = _locator.user_source_line()
    one, other = pair
    # A batch goes to its model, as a rule.
    to, moved = (one, other) if not isinstance(other, torch.nn.Parameter) else (other, one)
    return (
        f"{name}() at {line or 'an unknown line'} takes tensors of two slices: {_described(one, frames)}, and "
        f"{_described(other, frames)}. The operands of an operation lie on one slice: move one of them, as with "
        f"{_called(moved, frames) or 'tensor'}.to({_called(to, frames) or 'other'}.device)"
    )


def _named_in() -> Iterator[FrameType]:
    """From the innermost frame of the user's code inwards, then outwards: where a tensor may have a name."""
    inner: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _locator.is_library(frame.f_code.co_filename):
        if not _cpu_operands.is_ours(frame.f_code.co_filename):
            inner.append(frame)
        frame = frame.f_back
    if frame is not None:
        yield frame
    yield from reversed(inner)


def _called(tensor: torch.Tensor, frames: Sequence[FrameType]) -> str:
    """What the code calls it; empty where it has no name."""
    for frame in frames:
        code, shared = frame.f_code, frame.f_globals
        named = {**{name: shared[name] for name in code.co_names if name in shared}, **_frames.variables_of(frame)}
        for name, value in named.items():
            for path, found in _cpu_operands.tensors_in(name, value):
                if found is tensor:
                    return path
    return ""


def _described(tensor: torch.Tensor, frames: Sequence[FrameType]) -> str:
    name = _called(tensor, frames)
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    return f"{f'{name}, ' if name else 'one '}of shape {shape} and {dtype}, on {_slice_at(tensor.device.index or 0)}"


def _slice_at(index: int) -> str:
    try:
        found = _state.runtime().slices.slice_at(index)
    except core.PathwaysError:
        return f"xla:{index} (released)"
    devices = ", ".join(map(str, found.devices))
    return f"slice {found.name} (xla:{index}, device{'s' if len(found.devices) > 1 else ''} {devices})"


def _explain_gradient(error: RuntimeError, args: Sequence[Any]) -> None:
    """Raises DifferentSlices in place of torch's error about a gradient on another slice than its tensor."""
    said = str(error)
    found, got = _WRONG_GRADIENT.search(said), _BUT_GOT.search(said)
    if found is None or got is None:
        return
    name, place = found[1], int(found[2])
    tensor = _input_of(list(_tensors(args)), name, place)
    which = f"input {place} of {name}"
    if tensor is not None:
        which += f", of shape {tuple(tensor.shape)} and {str(tensor.dtype).removeprefix('torch.')}"
    raise core.DifferentSlices(
        f"in the backward pass that begins at {_locator.user_source_line() or 'an unknown line'}, {name} gave a "
        f"gradient on {_slice_at(int(got[1]))} for {which}, on {_slice_at(int(found[3]))}. A gradient lies on the "
        "slice of its tensor: the forward pass has an operation with operands on two slices, or the backward() of an "
        f"autograd.Function must move it with .to(). (PyTorch said: {said})"
    ) from None


def _input_of(outputs: Sequence[torch.Tensor], name: str, place: int) -> Any:
    """Shape and type of an input of the first step of a backward pass that is called so."""
    waiting = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    seen = set(waiting)
    for node in waiting:
        following = node.next_functions
        if node.name().removesuffix("Backward") == name or node.name() == name:
            into, number = following[place] if place < len(following) else (None, 0)
            metadata: Any = getattr(into, "_input_metadata", ()) if into is not None else ()
            return metadata[number] if number < len(metadata) else None
        for into, _ in following:
            if into is not None and into not in seen:
                seen.add(into)
                waiting.append(into)
    return None
