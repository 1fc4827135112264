"""Torch tensors and the plugin's buffers: which value a tensor holds, and a tensor for a value."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ptpathways import native
from ptpathways.frontend.diagnostics import _threads
from ptpathways.frontend.slices import _feeding, _rng, _transfer
from ptpathways.frontend.xla import _xla

if TYPE_CHECKING:
    import torch

Part = tuple[tuple[str, str], ...]
"""Steps by which a tensor is made from the one whose memory it is on; empty for that itself."""


def cell_of(tensor: torch.Tensor) -> native.BufferCell:
    """The place of the tensor's value in the plugin.

    PyTorch/XLA tells of no buffer, but looks at it when it is asked for certain other things.
    Raises RuntimeError when the tensor is pending.
    """
    binding = _xla.binding()
    (cell,) = native.asked_cells(lambda: binding._get_tensors_handle([tensor]))
    return cell


def token_of(tensor: torch.Tensor) -> int | None:
    """Names the tensor's value; None when it has none: it is a view that is computed only when somebody looks at it."""
    import torch

    try:
        torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
        return cell_of(tensor).token
    except RuntimeError:
        return None


def storage_of(tensor: torch.Tensor) -> int:
    """The memory that the tensor shares with its views; of a sparse tensor, which has none, the tensor itself."""
    import torch

    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether two of them do, or one stands there twice."""
    return len(set(map(storage_of, tensors))) < len(tensors)


def handles(tensors: Sequence[torch.Tensor]) -> array[int] | None:
    """A number per tensor that changes when PyTorch/XLA gives it another buffer; None when one is pending."""
    try:
        return array("q", _xla.binding()._get_tensors_handle(tensors))
    except RuntimeError:
        return None


def ages(tensors: Iterable[torch.Tensor]) -> list[int]:
    """A number per tensor, which is less the earlier PyTorch/XLA has made it."""
    number = _xla.binding()._xla_get_tensor_id
    return [number(tensor) for tensor in tensors]


def sharing(tensors: Mapping[str, torch.Tensor], given: Set[str]) -> frozenset[frozenset[str]]:
    """Which of the tensors, by name, have one buffer in common, and which have the memory of one of ``given``; none of
    them is pending."""
    found = handles(list(tensors.values()))
    if found is None:
        submit_pending()
        found = handles(list(tensors.values()))
    groups: dict[int, list[str]] = {}
    for name, handle in zip(tensors, found or (), strict=False):
        groups.setdefault(handle, []).append(name)
    alike = list(groups.values())
    if given:
        memory: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            memory.setdefault(storage_of(tensor), []).append(name)
        alike += [names for names in memory.values() if not given.isdisjoint(names)]
    return frozenset(frozenset(names) for names in alike if len(names) > 1)


def memory_of(tensors: Sequence[torch.Tensor]) -> list[tuple[int, Part]]:
    """For each tensor the place of the first one that has the same memory, and, where there are several, which part of
    that it is."""
    first: dict[int, int] = {}
    places = [first.setdefault(storage_of(tensor), place) for place, tensor in enumerate(tensors)]
    shared = {place for number, place in enumerate(places) if number != place}
    return [(place, part_of(tensors[number]) if place in shared else ()) for number, place in enumerate(places)]


_REPEATING = frozenset(f"{name}_ViewMeta" for name in ("as_strided", "expand", "unfold"))
_OF_ALL = frozenset(
    f"{name}_ViewMeta"
    for name in (
        "expand",
        "permute",
        "squeeze",
        "squeeze_dim",
        "t",
        "transpose_int",
        "unsqueeze",
        "view",
        "_unsafe_view",
    )
)
"""Operations whose result leaves no element out."""
_OF_THE_WHOLE = frozenset(f"{name}_ViewMeta" for name in ("alias", "detach", "lift_fresh"))


def part_of(tensor: torch.Tensor) -> Part:
    """How torch's functionalization makes a tensor from the one whose memory it is on."""
    import torch

    if not torch._is_functional_tensor(tensor):
        return ()
    steps: list[Any] = torch._C._functionalization.get_view_meta_sequence(tensor)
    taken = ((type(step).__name__, repr(step.as_tuple())) for step in steps)
    return tuple(step for step in taken if step[0] not in _OF_THE_WHOLE)


def on_one_memory(tensors: Mapping[str, torch.Tensor]) -> tuple[str, str] | None:
    """Two of parameters and gradients, by name, that share memory: the ``.data`` of one was assigned to the other, or
    one gradient is a part of another."""
    known: dict[int, str] = {}
    for name, tensor in tensors.items():
        other = known.setdefault(storage_of(tensor), name)
        if other != name:
            return other, name
    return None


def take_writes(tensors: Iterable[torch.Tensor]) -> None:
    """Lets every tensor that is or has a view see what was written through the other; this may be traced."""
    import torch

    for tensor in tensors:
        if torch._is_functional_tensor(tensor):
            torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]


def count_as_written(tensor: torch.Tensor) -> None:
    """Has torch's functionalization treat a tensor of the devices as one that was written in place; its value stays.

    A view of a tensor that was written is made anew of it when it is used, and one of a tensor that never was is kept,
    so that a trace depends on it. Where the tensor itself is a view, its base is computed anew.
    """
    import torch

    if not torch._is_functional_tensor(tensor):
        return
    torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]  # after set_() it may not have taken its value
    try:
        torch._functionalize_commit_update(tensor)
    except RuntimeError:  # it was set_() to itself, as parametrizations do, and torch would let nobody write it again
        tensor.data = torch._to_functional_tensor(torch._from_functional_tensor(tensor))
        torch._functionalize_commit_update(tensor)


def part_from_bases(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Makes each view of a tensor that nobody has any more a tensor of its own, with the same value; the places of
    those that are still a part of another one. One that may show an element several times stays a view, which nobody
    may write.

    Gradients of linear layers are such views. What is derived from a view after it was written in place, such as its
    ``detach()``, is computed from what torch's functionalization keeps of the base, which a replay does not reach.
    """
    import torch

    left = []
    for place, tensor in enumerate(tensors):
        if not torch._is_functional_tensor(tensor) or torch._is_functional_tensor_base(tensor):
            continue
        if is_alone(tensor) and not _may_repeat(tensor):
            torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
            tensor.data = torch._to_functional_tensor(torch._from_functional_tensor(tensor))
        elif part_of(tensor):
            left.append(place)
    return left


def _may_repeat(tensor: torch.Tensor) -> bool:
    """Whether a view may show an element several times: not if it has as many as there are, and leaves none out."""
    names = {name for name, _ in part_of(tensor)}
    if names.isdisjoint(_REPEATING):
        return False
    return not names <= _OF_ALL or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()


def is_alone(tensor: torch.Tensor) -> bool:
    """Whether nobody has the memory of a view but itself, and its base that nobody else has."""
    import torch

    count = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    if count != 2 or (base := tensor._base) is None or storage_of(base) != storage_of(tensor):
        return bool(count == 1)
    # Of the base: what autograd notes of the view, for both directions, and this function.
    return bool(base._use_count() <= 3 and sys.getrefcount(base) <= 2)  # type: ignore[attr-defined]


_ALONE = 2
"""So many hold the memory of a tensor that has no aliases: it, and the object that watches for them."""


class Aliases:
    """Other tensors on the storages of those whose values replays put in their places: views, ``detach()``.

    Torch's functionalization keeps the value of a view until it is told that the tensor was written. A replay does that
    behind its back, so it is told after each one.
    """

    made: ClassVar[int] = 0
    """How many there have been: until there is another one, captured steps hold the same memory."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        Aliases.made += 1
        self.tensors = tensors
        self._storages = [tensor.untyped_storage() for tensor in tensors]  # alive, so that addresses stay their own
        self.places = array("Q", (storage._cdata for storage in self._storages))
        self.memory = frozenset(self.places)

    def refresh(self) -> None:
        """After the tensors have got other values."""
        if native.are_held(self.places, _ALONE):
            return
        import torch

        for tensor, place in zip(self.tensors, self.places, strict=True):
            if torch._C._storage_Use_Count(place) > _ALONE and torch._is_functional_tensor(tensor):
                one_more = tensor.detach()  # it is behind, so its sync makes the storage take the value over
                torch._functionalize_commit_update(tensor)
                torch._sync(one_more)  # type: ignore[attr-defined,no-untyped-call]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a new tensor for a value is like."""

    empty: torch.Tensor
    """On the CPU, of the same shape."""
    device: str


def shape_of(tensor: torch.Tensor) -> Shape:
    """Of a tensor on a device."""
    import torch

    return Shape(torch.empty(tensor.shape, dtype=tensor.dtype), _xla.device_name(tensor.device.index or 0))


def adopt(tokens: Sequence[int], shapes: Sequence[Shape]) -> list[torch.Tensor]:
    """New tensors for the values that the tokens own."""
    upload = _xla.binding()._xla_tensors_from_aten
    native.adopt_next_uploads(tokens)
    try:
        with _transfer.keep_untouched()():
            return [upload([shape.empty], [shape.device], None)[0] for shape in shapes]
    finally:
        native.adopt_next_uploads([])


def live_tensors(devices: Collection[int]) -> Iterator[torch.Tensor]:
    """Every XLA tensor that something in Python refers to.

    Where several threads compute, those on ``devices`` only: others may have no value for a moment. Tensors that only
    torch still has, such as those that autograd saved, are not given, as one of its threads may be letting them go.
    """
    import torch

    alone = not _threads.several()
    for tensor in native.owning_tensors(torch.Tensor):
        # is_xla and not device: a kernel of ours may be given an undefined tensor, for an argument that is left out,
        # which has none.
        if tensor.is_xla and (alone or tensor.device.index in devices):
            yield tensor


def most_created() -> int:
    """How many tensors PyTorch/XLA has made but for uploads, with those that other threads are uploading.

    When this is what ``least_created`` was before, no operation was traced between the two.
    """
    uploaded = _feeding.uploaded_count()
    return int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0) - uploaded


def least_created() -> int:
    """The same, less all that other threads are uploading."""
    created = int(_xla.binding()._xla_counter_value("CreateXlaTensor") or 0)
    return created - _feeding.begun_count()


def submit_pending() -> None:
    """Submits what was traced so far, without the rest of a cut: the random generators go on where they were.

    What other threads trace on devices of theirs is left to them.
    """
    others = _threads.theirs()
    for device, seed in seeds(index for index in _rng.in_use() if index not in others).items():
        _xla.binding()._xla_sync_live_tensors(_xla.device_name(device), [], True)
        set_seeds({device: seed})


def seeds(devices: Iterable[int]) -> dict[int, int]:
    """The state of each of these torch devices' random generators."""
    ask = _xla.binding()._xla_get_rng_seed
    return {device: int(ask(_xla.device_name(device))) for device in devices}


def set_seeds(seeds: Mapping[int, int]) -> None:
    """Sets what ``seeds`` gives."""
    for device, seed in seeds.items():
        _rng.put(device, seed)


def dense_bytes(tensor: torch.Tensor) -> Any:
    """A CPU tensor's bytes as a NumPy array, row-major; a view of them where it lies so."""
    import torch

    tensor = tensor.detach().rename(None) if tensor.has_names() else tensor.detach()
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
