"""What a call of a step has changed besides the values of tensors, and whether a replay can do the same.

Numbers, texts and switches get the values that they had after the traced call. A tensor in the place of another one is
written over, as long as nobody else has the old one. Anything else a replay would not do, so such a step is not
replayed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptpathways.frontend.capture.objects import _advice
from ptpathways.frontend.capture.objects._reachable import Surroundings, of_the_cpu
from ptpathways.frontend.capture.python._contents import attributes_key, contents_of, equal, is_setting, position_of
from ptpathways.frontend.capture.python._places import MISSING, elements, is_mutable, read, size, write
from ptpathways.frontend.plans._wiring import Uncapturable


@dataclass(slots=True)
class Effects:
    """Of one call."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Values that it has left behind, by name, where there were others."""
    renewed: frozenset[str] = frozenset()
    """Tensors of the devices that it has put in the place of others."""
    beside: Mapping[str, int] = field(default_factory=dict)
    """Which of them are on the memory of what it has returned, and the place of that among the leaves."""

    def text(self) -> str:
        """For messages."""
        parts = [f"{name} = {value!r}" for name, value in self.settings.items()]
        parts += [f"{name} (also returned)" if name in self.beside else name for name in sorted(self.renewed)]
        return ", ".join(parts[:3]) or "nothing"

    def apply(self, surroundings: Surroundings) -> None:
        """Leaves the settings behind."""
        for name, value in self.settings.items():
            where, key, _ = surroundings.settings[name]
            write(where, key, value)


def effects(before: Surroundings, after: Surroundings, rates: Mapping[str, float]) -> Effects:
    """What a call has changed that began with ``before``.

    Args:
        rates: what the optimizers' options gave before.

    Raises:
        Uncapturable: it has changed something that a replay would not; says what.
    """
    try:
        return _effects(before, after, rates)
    except Uncapturable as error:
        text = _advice.about_optimizers(str(error), before.optimizers)
        raise Uncapturable(text, passing=error.passing) from None


def _effects(before: Surroundings, after: Surroundings, rates: Mapping[str, float]) -> Effects:
    found = Effects()
    for name, (where, key, value) in before.settings.items():
        now = read(where, key)
        if equal(now, value):
            continue
        if now is MISSING:  # also a key that has another hash now
            raise _passing(f"it takes {name} away, {_ADVICE}")
        if not is_setting(now) or not is_mutable(where):
            raise _replaced(name, value, now)
        found.settings[name] = now
    changed_options = [name for name, value in before.rates().items() if rates.get(name, value) != value]
    if changed_options:
        raise Uncapturable(
            f"it changes {changed_options[0]} itself, which a replay would not; let the scheduler take its step outside"
        )
    found.renewed = frozenset(_renewed(before, after))
    _check_attributes(before, found)
    _check_containers(before)
    fresh = [name for name in after.tensors if name not in before.tensors and not name.endswith(".grad")]
    fresh += [name for name in after.settings if name not in before.settings]
    if fresh:
        kind = before.kinds.get(fresh[0])
        if isinstance(kind, tuple) and kind[0] == "the same as":  # one of the two is another tensor now
            raise _parted(fresh[0], kind[1])
        raise _passing(f"it keeps something new at every call ({fresh[0]}), {_ADVICE}; return it instead")
    return found


def _renewed(before: Surroundings, after: Surroundings) -> list[str]:
    """The tensors of the devices that were put in the place of others.

    Raises:
        Uncapturable: another object was put in the place of one, or a tensor from before, which a replay would not move
            there, written or not.
    """
    names = []
    known = {id(tensor) for tensor in before.tensors.values()}
    for name, value, now in _replacements(before):
        if not (_is_on_device(value) and _is_on_device(now) and name in after.tensors):
            raise _replaced(name, value, now)
        if id(now) in known:
            raise moved(name)
        names.append(name)
    for name, other in before.shared_gradients.items():
        if before.parameters[name.removesuffix(".grad")].grad is not _now(before, other):
            raise _parted(name, other)
    for name, parameter in before.parameters.items():
        if f"{name}.grad" in before.shared_gradients:
            continue
        gradient = before.tensors.get(f"{name}.grad")
        if parameter.grad is not None and parameter.grad is not gradient:
            if id(parameter.grad) in known:
                raise moved(f"{name}.grad")
            names.append(f"{name}.grad")
    return names


def _now(before: Surroundings, name: str) -> Any:
    """The gradient that has the place that it had before, or the tensor of that name."""
    parameter = before.parameters.get(name.removesuffix(".grad")) if name.endswith(".grad") else None
    return before.tensors.get(name) if parameter is None else parameter.grad


def _replacements(before: Surroundings) -> Iterator[tuple[str, Any, Any]]:
    """What was put in the place of what, by name, but for numbers and texts in lists."""
    for where, key, value, name in (*before.links, *before.members):
        now = read(where, key)
        if now is not value:
            yield name, value, now
    for sequence, items, name in before.sequences:
        if size(sequence) != len(items):
            continue
        for place, (now, value) in enumerate(zip(elements(sequence), items, strict=True)):
            if now is not value and not (is_setting(now) and is_setting(value)):
                yield f"{name}[{place}]", value, now


def _check_attributes(before: Surroundings, found: Effects) -> None:
    """Raises Uncapturable when a tensor has other attributes than the one had that it was put in the place of: a replay
    keeps the former one."""
    changed = {id(before.settings[name][0]) for name in found.settings}
    for name, value, now in _replacements(before):
        if type(now) is not type(value):
            raise _replaced(name, value, now)
        if id(vars(value)) in changed or attributes_key(now) != attributes_key(value):
            raise _passing(
                f"it puts a tensor with other attributes in the place of {name}, {_ADVICE}; keep them in an object of "
                "your own"
            )


def _check_containers(before: Surroundings) -> None:
    """Raises Uncapturable when the call has changed what is in one."""
    for sequence, items, name in before.sequences:
        if size(sequence) != len(items):
            raise _passing(f"it changes the length of {name} ({len(items)} -> {size(sequence)}), {_ADVICE}")
    for space, key in before.absent:
        if dict.__contains__(space, key):
            raise _passing(f"it makes {key}, {_ADVICE}; make it before the first call")
    for container, known, name in before.sizes:
        if size(container) != known:
            raise _passing(f"it changes the size of {name} ({known} -> {size(container)}), {_ADVICE}")
    for mapping, keys, name in before.orders:
        if not all(map(operator.is_, elements(mapping), keys)):
            raise _passing(f"it changes the keys of {name}, or their order, {_ADVICE}")
    for tensor, known, name in before.versions:
        if of_the_cpu(tensor) != known:
            raise Uncapturable(f"it writes or trains {name}, a tensor of the CPU, {_ADVICE}; keep it on the device")
    for of, contents, name in before.contents:
        if contents_of(of) != contents:
            raise Uncapturable(f"it changes what is in {name}, {_ADVICE}")
    for of, position, name in before.moving:
        if type(position) is object:
            raise Uncapturable(
                f"it reaches {name}, a {type(of).__qualname__}, and whether that has changed cannot be told; take from "
                "it outside and pass the outcome as an argument"
            )
        if position_of(of) != position:
            raise Uncapturable(
                f"it draws from {name}, and a replay would repeat what it made of that; draw outside and pass the "
                "outcome as an argument"
            )


_ADVICE = "which a replay would not"


def _replaced(name: str, value: Any, now: Any) -> Uncapturable:
    kinds = _kind(value), _kind(now)
    text = f"puts another {type(now).__qualname__} into" if kinds[0] == kinds[1] else "changes"
    import torch

    advice = "put it there outside, or keep a number or a text that says the same"
    if isinstance(now, torch.Tensor | tuple):
        advice = "assign what is in it, or return it" if isinstance(now, tuple) else "return it instead"
    return _passing(f"it {text} {name} ({' -> '.join(dict.fromkeys(kinds))}), {_ADVICE}; {advice}")


def _parted(name: str, other: str) -> Uncapturable:
    return _passing(f"it parts {name} from {other}, which were one tensor, {_ADVICE}; give one a clone()")


def moved(name: str) -> Uncapturable:
    """Of a tensor from before, or its memory, that is to be called ``name`` now."""
    return Uncapturable(f"it makes {name} another tensor that existed before; copy the values instead (tensor.copy_)")


def _passing(text: str) -> Uncapturable:
    """Of what the first calls do, too: they make what is there from then on."""
    return Uncapturable(text, passing=True)


def _kind(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    return repr(value) if is_setting(value) else f"a {type(value).__qualname__}"


def _is_on_device(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == "xla"
