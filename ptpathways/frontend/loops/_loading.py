"""``torch.save`` of tensors on devices, and ``torch.load`` onto devices: ``map_location`` may be one, or name one.

Torch asks for a storage at the new place and makes tensors of it. A tensor of an XLA device has no storage, so the one
that was read stays on the CPU with a note, and each tensor that is made of it is uploaded. Tensors that have one value
in common, such as tied weights in a state dict, have so in the file and where they are loaded.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptpathways import core, native
from ptpathways.frontend.base import _batch_tree, _state
from ptpathways.frontend.slices import _rng, _transfer
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

_PRIORITY = 5
"""Before torch's own, of which some take texts only."""
_TARGET = "_ptpathways_device"
_UPLOADED = "_ptpathways_uploaded"

_registered = False


class _Call(threading.local):
    """The call of ``torch.save`` or ``torch.load`` that this thread is in."""

    fetched: dict[Any, tuple[Any, torch.Tensor]] | None = None
    """What was saved, by where it lies: its storage, which keeps the place its own, and its value on the CPU."""
    old_format = False
    """The file is of the kind whose tensors are made before their values are read."""


_call = _Call()


def register() -> None:
    """Makes ``torch.save`` and ``torch.load`` know the devices. Idempotent."""
    global _registered
    if _registered:
        return
    _registered = True
    import torch
    from torch import _utils, _weights_only_unpickler
    from torch_xla.core import xla_model

    _replace(xla_model, "_maybe_convert_to_cpu", _fetched)
    torch.serialization.register_package(_PRIORITY, _no_tag, _note)
    _replace(torch.Tensor, "_reduce_ex_internal", _reduce)
    _replace(torch.serialization, "_save", _save)
    _replace(torch.serialization, "_load", _load)
    _replace(torch.serialization, "_legacy_load", _load_old_format)
    _replace(_utils, "_restore_device_fake_mode", _finish)
    _replace(_utils, "_get_restore_location", _location)
    _replace(_utils, "_rebuild_device_tensor_from_cpu_tensor", _rebuild)
    _weights_only_unpickler._get_allowed_globals.cache_clear()  # it may have kept the last one


def _replace(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Puts a function there that calls ``wrapper`` with what was there, and with its arguments."""
    plain = getattr(owner, name)

    @functools.wraps(plain)  # files name the function that makes a tensor
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrapper(plain, *args, **kwargs)

    setattr(owner, name, replaced)


def _save(plain: Callable[..., Any], *args: Any) -> None:
    before, _call.fetched = _call.fetched, {}
    try:
        plain(*args)
    finally:
        _call.fetched = before


def _reduce(plain: Callable[..., Any], tensor: torch.Tensor, proto: int) -> Any:
    if _call.fetched is None or tensor.device.type != "xla":
        return plain(tensor, proto)
    storage = tensor.untyped_storage()
    key = (storage._cdata, *_part(tensor))
    if key not in _call.fetched:
        made = plain(tensor, proto)
        _call.fetched[key] = storage, made[1][0]
        return made
    from torch import _utils

    value = _call.fetched[key][1].detach()
    return (
        _utils._rebuild_device_tensor_from_cpu_tensor,
        (value, tensor.dtype, str(tensor.device), tensor.requires_grad),
    )


def _fetched(plain: Callable[..., Any], data: Any, convert: bool = True) -> Any:
    """What ``xm.save`` and accelerate write: each value once, however many tensors have it."""
    import torch

    leaves, make = _batch_tree.flatten_batch(data)
    places: dict[int, Any] = {}
    values: dict[Any, torch.Tensor] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "xla":
            places[number] = (leaf.untyped_storage()._cdata, *_part(leaf))
            values.setdefault(places[number], leaf.detach())
    fetched = dict(zip(values, plain(list(values.values()), convert), strict=True))
    return make([fetched[places[n]].detach() if n in places else leaf for n, leaf in enumerate(leaves)])


def _load(plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return plain(*args, **kwargs)
    finally:
        _say_location(None)  # when torch fails it leaves its own, which pickle and later loads would take for theirs


def _load_old_format(plain: Callable[..., Any], file: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
    _call.old_format = True
    _say_location(map_location)
    try:
        return plain(file, map_location, *args, **kwargs)
    finally:
        _call.old_format = False
        _say_location(None)


def _say_location(location: Any) -> None:
    """Tells torch's functions that make tensors where those go."""
    import torch

    torch.serialization._serialization_tls.map_location = location


def _no_tag(storage: Any) -> None:
    """No storage lies on a device of ours."""


def _note(storage: Any, location: Any) -> Any:
    """The storage, with a note where its tensors go; None if that is no device of ours."""
    if not _state.is_running() or not str(location).startswith("xla"):
        return None
    setattr(storage, _TARGET, _checked(location))
    return storage


def _location(plain: Callable[..., Any], device: Any) -> Any:
    """Where a tensor goes that was saved from a device, and whose value is on the CPU beside that device's name."""
    import torch

    chosen = torch.serialization._serialization_tls.map_location
    if chosen is None or isinstance(chosen, dict | str | torch.device):
        return plain(device)
    nothing: Any = torch.UntypedStorage(0)
    storage = chosen(nothing, str(device))
    return device if storage is None else getattr(storage, _TARGET, storage.device)


def _rebuild(
    plain: Callable[..., Any], value: torch.Tensor, dtype: torch.dtype, device: Any, requires_grad: bool
) -> torch.Tensor:
    """A tensor that was saved from a device."""
    from torch import _utils

    target: Any = _utils._get_restore_location(device)
    if value.device.type != "cpu" or not _state.is_running() or not str(target).startswith("xla"):
        made: torch.Tensor = plain(value, dtype, device, requires_grad)
        return made
    setattr(value.untyped_storage(), _TARGET, _checked(target))
    return _uploaded(value.to(dtype)).requires_grad_(requires_grad)


def _finish(plain: Callable[..., Any], tensor: torch.Tensor) -> torch.Tensor:
    """The last that torch does with a tensor that it has made of a storage."""
    import torch

    made: torch.Tensor = plain(tensor)
    return _uploaded(made) if made.device.type == "cpu" and made.layout is torch.strided else made


def _checked(location: Any) -> torch.device:
    """The device. Raises SliceUnavailable when it is none now, InvalidOption when the file has an old format."""
    import torch

    device = torch.device(location)
    if _xla.index_of(device) not in _rng.in_use():
        raise core.SliceUnavailable(
            f"torch.load: a tensor of the file goes to {device}, where it was saved or where map_location sends it. "
            "That stands for no slice in this process now; give map_location=pw.device(), the device of a slice, or "
            '"cpu"'
        )
    if _call.old_format:
        raise core.InvalidOption(
            f"torch.load: a tensor goes to {device}, and the file has torch's format from before 1.6, in which tensors "
            'are made before their values are read; load it with map_location="cpu", then move the tensors with .to()'
        )
    return device


def _part(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Which part of its storage a tensor is, and as what."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    return tensor.dtype, tensor.storage_offset(), shape, strides, tensor.is_conj(), tensor.is_neg()


def _uploaded(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the device that its storage is to go to; an alias of one made there of the same part before."""
    storage = tensor.untyped_storage()
    device = getattr(storage, _TARGET, None)
    if device is None:
        return tensor
    made: dict[Any, torch.Tensor] = storage.__dict__.setdefault(_UPLOADED, {})
    part = _part(tensor)
    if part in made:
        return made[part].detach().requires_grad_(tensor.requires_grad)
    before = native.set_upload_layout(_transfer.COPY)  # as the tensors of a module that is moved
    try:
        made[part] = tensor.detach().to(device)
    finally:
        native.set_upload_layout(before)
    return made[part].requires_grad_(tensor.requires_grad)
