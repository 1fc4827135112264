"""Functions of torch that would move values between slices through the client, or lay them out badly.

Each wrapper looks at devices, and calls torch's own function for everything else; ``docs/design/patches.md`` lists all.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways import core, native
from ptpathways.frontend.base import _identity, _recorded, _state
from ptpathways.frontend.diagnostics import _operands, _threads
from ptpathways.frontend.loops import _optimizer_state, _reads
from ptpathways.frontend.slices import _feeding, _transfer
from ptpathways.frontend.xla import _xla
from ptpathways.sharding import Tiling

if TYPE_CHECKING:
    import torch

_registered = False
_applying = threading.local()


def register() -> None:
    """Makes ``Tensor.to`` and ``Tensor.copy_`` move between slices, and modules move whole. Idempotent."""
    global _registered
    if _registered:
        return
    _registered = True
    import torch

    patched: Any = torch.Tensor
    patched.to, patched.cpu, patched.tolist = _wrapped_to(), _wrapped_read("cpu"), _wrapped_read("tolist")
    patched.copy_ = _wrapped_copy()
    modules: Any = torch.nn.Module
    modules._apply, modules.load_state_dict = _wrapped_apply(), _wrapped_load()


def _on_devices(tensor: Any) -> bool:
    """What ``tensor.is_xla`` says, without modes and subclasses."""
    import torch

    base: Any = torch._C.TensorBase
    return bool(base.is_xla.__get__(tensor))


def _wrapped_to() -> Callable[..., Any]:
    import torch

    base: Any = torch._C.TensorBase
    plain, on_devices = base.to, base.is_xla.__get__
    main = threading.main_thread().ident

    @functools.wraps(plain)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if on_devices(self) and _state.is_running():
            device = kwargs.get("device", args[0] if args else None)
            if isinstance(device, torch.Tensor):
                device = device.device
            if isinstance(device, str | torch.device):
                target = torch.device(device)
                if target.type == "xla" and _xla.index_of(target) != _xla.index_of(self.device):
                    self = _transfer.transfer(self, target)
                elif target.type != "xla":
                    self = _read(self)
        elif _state.is_running():
            if threading.get_ident() != main:
                _threads.arrived()
            if _threads.several() and (uploaded := _upload_at_once(plain, self, args, kwargs)) is not None:
                return uploaded
        try:
            if on_devices(self) or not _state.is_running():
                result = plain(self, *args, **kwargs)
            else:
                result = _feeding.counted(plain, self, *args, **kwargs)
        except RuntimeError as error:
            raise native.translate_of_torch(error) from None
        if kwargs.get("copy") and on_devices(self) and on_devices(result):
            return result.clone()  # PyTorch/XLA's copy has the same buffer
        if not on_devices(result):
            _was_read(self)
        elif not on_devices(self) and _state.is_running():
            _operands.asked_for(result.device.index or 0)  # perhaps by the name of a device
        return result

    return to


def _wrapped_read(name: str) -> Callable[..., Any]:
    """``cpu`` or ``tolist``."""
    import torch

    plain: Any = getattr(torch._C.TensorBase, name)

    @functools.wraps(plain)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = plain(_read(self), *args, **kwargs)
        except RuntimeError as error:
            raise native.translate_of_torch(error) from None
        _was_read(self)
        return result

    return read


def _wrapped_copy() -> Callable[..., Any]:
    import torch

    plain: Any = torch._C.TensorBase.copy_

    @functools.wraps(plain)
    def copy_(self: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        if _on_devices(self) and isinstance(src, torch.Tensor) and _state.is_running():
            if not _on_devices(src):
                src = _uploaded_for(self, src)
            elif _xla.index_of(self.device) != _xla.index_of(src.device):
                src = _transfer.transfer(src, self.device, _layout_of_target(self, src))
        elif isinstance(src, torch.Tensor):
            src = _whole(src)
        try:
            return plain(self, src, *args, **kwargs)
        except RuntimeError as error:
            raise native.translate_of_torch(error) from None

    return copy_


def _wrapped_apply() -> Callable[..., Any]:
    import torch

    plain: Any = torch.nn.Module._apply

    @functools.wraps(plain)
    def _apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _state.is_running() or getattr(_applying, "inside", False):  # it calls itself for each part of a module
            return plain(self, *args, **kwargs)
        places = _identity.places(self)
        before = native.set_upload_layout(_transfer.COPY)  # what a module has is kept; batches are what is divided
        _applying.inside = True
        try:
            return plain(self, *args, **kwargs)
        finally:
            _applying.inside = False
            native.set_upload_layout(before)
            _identity.keep(places)
            _optimizer_state.modules_moved()

    return _apply


def _wrapped_load() -> Callable[..., Any]:
    import torch

    plain: Any = torch.nn.Module.load_state_dict

    @functools.wraps(plain)
    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if not _state.is_running() or not kwargs.get("assign", len(args) > 1 and args[1]):
            return plain(self, state_dict, *args, **kwargs)
        places = _identity.places(self)
        result = plain(self, state_dict, *args, **kwargs)
        if any(_on_devices(place.tensor) for place in (*places, *_identity.places(self))):
            _identity.part_from(self, state_dict.values())
            _identity.keep(places)
        return result

    return load_state_dict


def _was_read(tensor: Any) -> None:
    """As a rule its thread has then done with the device."""
    if _threads.several() and _on_devices(tensor):
        _threads.release([tensor.device.index or 0])


def _whole(tensor: Any) -> Any:
    """On the CPU if it is complex128, of which PyTorch/XLA drops the imaginary parts on the way there."""
    import torch

    if tensor.dtype is not torch.complex128 or not _on_devices(tensor):
        return tensor
    return torch.view_as_complex(torch._C.TensorBase.to(torch.view_as_real(tensor.resolve_conj()), "cpu"))


def _read(tensor: Any) -> Any:
    """What is to be copied to the CPU in place of ``tensor``; a read like any other (``_reads``)."""
    if not _on_devices(tensor) or not _state.is_running():
        return tensor
    _state.refuse_in_fork()
    try:
        _reads.submit_for_copy(tensor)
    except core.ConcurrentUse:
        raise
    except RuntimeError as error:
        if native.NOT_COMPILED in str(error):  # told once: what was to be computed is no longer known after it
            raise
        # whatever else is wrong is told when the value is fetched
    return _whole(tensor)


def _upload_at_once(plain_to: Any, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """What ``tensor.to(...)`` gives where that is an upload and nothing else; None where it is more.

    PyTorch/XLA makes a tensor of zeros first and gives it its value afterwards. When another thread submits the
    device's trace between the two, it stays zero.
    """
    import torch

    where = kwargs.get("device", args[0] if args else None)
    dtype = where.dtype if isinstance(where, torch.Tensor) else None
    place = where.device if isinstance(where, torch.Tensor) else where
    if not isinstance(place, str | torch.device) or torch.device(place).type != "xla" or tensor.device.type != "cpu":
        return None
    if tensor.layout is not torch.strided or (tensor.requires_grad and torch.is_grad_enabled()):
        return None
    if _recorded.is_recorded_here():  # which looks at how arguments are uploaded
        return None
    rest = {name: value for name, value in kwargs.items() if name != "device"}
    on_cpu = plain_to(tensor.detach(), "cpu" if dtype is None else dtype, *args[1:], **{"copy": True, **rest})
    return _feeding.upload_alone(on_cpu, torch.device(place))


def _uploaded_for(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """A CPU tensor on the slice of ``target``, whose place it is to take, lying there as that does."""
    index = target.device.index or 0
    if source.shape != target.shape or source.dim() == 0 or source.requires_grad:
        return source
    if len(_state.runtime().slices.devices_of(index)) == 1:
        return source
    before = native.set_upload_layout(_layout_of_target(target, source) or _transfer.COPY)
    try:
        (uploaded,) = _xla.binding()._xla_tensors_from_aten([source.detach()], [_xla.device_name(index)], None)
    finally:
        native.set_upload_layout(before)
    result: torch.Tensor = uploaded
    return result


def _layout_of_target(target: torch.Tensor, source: torch.Tensor) -> Tiling | None:
    """How ``target``, which is about to be overwritten, lies; None where that is not known."""
    if target.shape != source.shape or _xla.binding()._check_tensor_need_materialization([target])[0]:
        return None
    try:
        return _transfer.value_of(target).tiling
    except (RuntimeError, core.PathwaysError):
        return None
