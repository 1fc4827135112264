"""What a recorded call does with tensors of the CPU: which it uploads as they are, and which Python computes with.

A replay uploads the arguments of its own call. That is right for an argument that the step uploads as it is. One that
Python reads, or computes with on the CPU, decides what is traced: then its contents are a part of what a replay takes
for granted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptpathways import native
from ptpathways.frontend.base import _locator, _torch_functions
from ptpathways.frontend.capture.objects import _advice
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch

_DESCRIBING = frozenset(
    {
        "size",
        "stride",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "is_contiguous",
        "storage_offset",
        "element_size",
        "is_floating_point",
        "is_complex",
        "get_device",
        "type",
        "__len__",
        "is_pinned",
        "is_shared",
        "is_same_size",
        "is_signed",
        "is_inference",
        "result_type",
        "can_cast",
        "data_ptr",
        "is_tensor",
        "is_storage",
        "is_conj",
        "is_neg",
        "has_names",
        "__hash__",
        "broadcast_shapes",
        "register_hook",
    }
)
"""Functions of torch that look at no element."""
_READING = frozenset(
    {
        *("item", "tolist", "numpy", "cpu", "equal", "allclose", "is_nonzero"),
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__contains__"),
        *("__repr__", "__str__", "__format__", "__reduce_ex__"),
    }
)
"""Functions of torch that give Python what is in a tensor."""


_DRAWING = frozenset(
    {
        *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "bernoulli"),
        *("binomial", "multinomial", "poisson", "uniform", "random", "exponential", "geometric", "cauchy"),
        "log_normal",
    }
)
"""Functions of torch that draw random numbers, without the ``_`` of those in place."""


@dataclass(slots=True)
class Seen:
    """What a call did."""

    raw: set[int] = field(default_factory=set)
    """Arguments that it uploads as they are, by their place among the leaves."""
    derived: dict[int, str] = field(default_factory=dict)
    """Uploads that it has computed out of arguments on the CPU: why they cannot be replayed, by digest."""
    read: dict[int, str] = field(default_factory=dict)
    """Arguments that Python has read: by what, and where."""
    others: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    """Tensors of the CPU from before the call that it has used, which are no arguments, with their digests."""
    draws: str = ""
    """The first function of torch that drew random numbers on the CPU, and where; empty if none did. Code that restores
    the generator's state afterwards leaves no other trace."""
    waits: str = ""
    """The first function that gave Python what is in a tensor on a device, and where; empty if none did."""
    instead: str = ""
    """What to do instead of that, if it is a package that asks."""

    def note_generator(self, generator: str) -> None:
        """One was made whose draws are not seen."""
        self.draws = self.draws or f"of {generator}, made {_where()}"


def observed() -> str:
    """What of torch looks at, or changes, each operation or what it keeps; empty if nothing does."""
    import torch

    if torch.is_anomaly_enabled():
        return "torch.autograd.detect_anomaly is on"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks for saved tensors are on"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a TorchDispatchMode is on"
    if torch._C._len_torch_function_stack() > 0 and any(map(_is_foreign, _function_modes())):
        return "a TorchFunctionMode is on"
    parametrize = sys.modules.get("torch.nn.utils.parametrize")
    return "torch.nn.utils.parametrize.cached is on" if parametrize is not None and parametrize._cache_enabled else ""


def _function_modes() -> Sequence[Any]:
    from torch.overrides import _get_current_function_mode_stack

    modes: Sequence[Any] = _get_current_function_mode_stack()
    return modes


def _is_foreign(mode: Any) -> bool:
    """Whether it is neither of this package nor torch's own for its default device."""
    return not type(mode).__module__.startswith(("ptpathways.", "torch.utils._device"))


def describes(function: Any) -> bool:
    """Whether a function of torch looks at no element."""
    return _name_of(function) in _DESCRIBING


def digest(tensor: torch.Tensor) -> int:
    """Of the elements of a CPU tensor, whatever transforms of ``torch.func`` are under way."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        return native.digest(buffers.dense_bytes(tensor))


_watch_class: Any = None


def watch(leaves: Sequence[Any], seen: Seen) -> Any:
    """A context manager that notes what the code inside does. Its class is made late, because this room is imported
    before torch."""
    global _watch_class
    if _watch_class is None:
        from torch.overrides import TorchFunctionMode

        class Watch(TorchFunctionMode):
            """Sees the functions of torch that the user's code calls."""

            def __init__(self, leaves: Sequence[Any], seen: Seen) -> None:
                super().__init__()
                self._following = _Following(leaves, seen)

            def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return self._following.call(_torch_functions.meant(function), args, kwargs or {})

        _watch_class = Watch
    return _watch_class(leaves, seen)


def _on_cpu(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def _has_a_value_on_devices(value: Any) -> bool:
    """Not one that stands for such a tensor, as where PyTorch/XLA prepares a scan for a new shape."""
    import torch
    from torch._subclasses.fake_tensor import is_fake

    return isinstance(value, torch.Tensor) and value.device.type == "xla" and not is_fake(value)


def _those_on_cpu(values: Any) -> list[torch.Tensor]:
    """The tensors themselves where transforms of ``torch.func`` have wrapped them."""
    import torch
    from torch.utils._pytree import tree_leaves

    functorch: Any = torch._C._functorch
    found = []
    for value in filter(_on_cpu, tree_leaves(values)):
        while functorch.is_functorch_wrapped_tensor(value):
            value = functorch.get_unwrapped(value)
        found.append(value)
    return found


class _Following:
    """Which memory of the CPU comes from which arguments, and what is done with it.

    Args:
        leaves: the arguments.
        seen: where it is noted.
    """

    def __init__(self, leaves: Sequence[Any], seen: Seen) -> None:
        self._seen = seen
        self._leaves = leaves
        self._sources: dict[int, frozenset[int]] = {}  # by storage: the arguments whose elements are in it
        self._own: dict[int, int] = {}  # by storage: the argument that lies in it
        self._made: set[int] = set()  # storages that the call has made
        self._known: set[int] = set()  # storages from before
        self._kept: list[torch.Tensor] = []  # alive, so that addresses stay their own
        for number, leaf in enumerate(leaves):
            if _on_cpu(leaf):
                place = self._place(leaf)
                self._own.setdefault(place, number)
                self._sources[place] = self._sources.get(place, frozenset()) | {number}

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function of torch."""
        given = _those_on_cpu((args, kwargs))
        return self._call_with(given, function, args, kwargs) if given else self._call(function, args, kwargs)

    def _call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Of no tensor of the CPU."""
        from torch.utils._pytree import tree_leaves

        result = function(*args, **kwargs)
        self._note_made(result, frozenset())
        self._note_draw(function, result)
        reads = _name_of(function) in _READING or any(map(_on_cpu, tree_leaves(result)))
        if not self._seen.waits and reads and any(map(_has_a_value_on_devices, tree_leaves((args, kwargs)))):
            self._seen.waits, self._seen.instead = f"{_name_of(function)}() {_where()}", _advice.about_a_wait()
        return result

    def _call_with(self, given: list[torch.Tensor], function: Any, args: Any, kwargs: Any) -> Any:
        """Of such tensors, which are ``given``."""
        import torch
        from torch.utils._pytree import tree_leaves

        name = _name_of(function)
        describing = name in _DESCRIBING
        if not describing:
            for tensor in given:
                self._meet(tensor)
        result = function(*args, **kwargs)
        sources = frozenset[int]().union(*(self._sources.get(self._place(tensor), ()) for tensor in given))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if any(tensor.device.type == "xla" for tensor in made):
            for tensor in given:
                self._upload(tensor, name)
        elif not made and result is not None and not describing:
            for number in sources:
                self._seen.read.setdefault(number, f"{name}() {_where()}")
        self._note_made(result, sources)
        self._note_draw(function, result)
        return result

    def _note_draw(self, function: Any, result: Any) -> None:
        from torch.utils._pytree import tree_leaves

        name = _name_of(function)
        if name.rstrip("_") in _DRAWING and not self._seen.draws and any(map(_on_cpu, tree_leaves(result))):
            self._seen.draws = f"{name}() {_where()}"

    def _place(self, tensor: torch.Tensor) -> int:
        return int(tensor.untyped_storage()._cdata)

    def _note_made(self, result: Any, sources: frozenset[int]) -> None:
        for tensor in _those_on_cpu(result):
            place = self._place(tensor)
            if place in self._own or place in self._known:
                continue
            self._made.add(place)
            self._kept.append(tensor)
            self._sources[place] = self._sources.get(place, frozenset()) | sources

    def _meet(self, tensor: torch.Tensor) -> None:
        """Notes one from before the call that is no argument."""
        place = self._place(tensor)
        if place in self._made or place in self._own or place in self._known:
            return
        self._known.add(place)
        self._kept.append(tensor)
        self._seen.others.append((tensor, digest(tensor)))

    def _upload(self, tensor: torch.Tensor, name: str) -> None:
        place = self._place(tensor)
        sources = sorted(self._sources.get(place, ()))
        number = self._own.get(place)
        if number is not None:
            whole = [source for source in sources if _is_whole(tensor, self._leaves[source])]
            same = [source for source in whole if self._leaves[source] is tensor]
            if whole:
                self._seen.raw.add((same or whole)[0])
                return
        if not sources:
            return
        if tensor.numel() == 1 or all(self._leaves[source].numel() == 1 for source in sources):
            for source in sources:
                self._seen.read.setdefault(source, f"{name}() {_where()}")
            return
        which = f"argument {sources[0]}" if number is None else f"a part of argument {sources[0]}"
        self._seen.derived[digest(tensor)] = (
            f"it computes on the CPU with {which} and uploads the result ({name}() {_where()}); do that on the "
            "device, or before the step"
        )


def _is_whole(tensor: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether a view of an argument has its elements in its order, and nothing else."""
    if tensor is leaf:
        return True
    same = tensor.dtype is leaf.dtype and tensor.numel() == leaf.numel() and tensor.data_ptr() == leaf.data_ptr()
    return same and tensor.is_contiguous() and leaf.is_contiguous()


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", repr(function))
    if name == "__get__":  # an attribute
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        return "size" if attribute not in ("data", "grad", "T", "mT", "H", "mH", "real", "imag") else str(attribute)
    return str(name)


def _where() -> str:
    line = _locator.user_source_line()
    return f"at {line}" if line else "in a library"
