"""The arguments of a captured step, and what else a replay takes for granted when it is called: the modes of torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways.frontend.base import _batch_tree
from ptpathways.frontend.capture.objects import _walk
from ptpathways.frontend.capture.objects._library_variables import Variables
from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.python import _contents, _whose
from ptpathways.frontend.capture.python._contents import Contents, Same
from ptpathways.frontend.capture.recording import _results, _watch
from ptpathways.frontend.capture.recording._argument_tree import Arguments, Batches, Opened
from ptpathways.frontend.slices import _buffers as buffers

if TYPE_CHECKING:
    import torch


class Rules:
    """What has been learnt about the arguments of a step.

    Args:
        home: the file of the step.
    """

    def __init__(self, home: str = "") -> None:
        self.batches = Batches(home)
        """Objects among them that are opened: it matters what is in them, and not which they are."""
        self.state: set[int] = set()
        """Tensors on devices that the step writes, or trains: it matters which they are. Places among the leaves."""
        self.read: set[int] = set()
        """Tensors of the CPU that Python reads: it matters what is in them."""
        self.used: dict[type, set[str]] = {}
        """What is used of objects of installed packages, by their classes (``Calls.used``)."""
        self.variables = Variables()
        """Global variables that functions of installed packages read."""

    def copy(self) -> Rules:
        """What is known now, to look at arguments of which nothing is to be learnt."""
        made = Rules(self.batches.home)
        made.batches.places |= self.batches.places
        made.state |= self.state
        made.read |= self.read
        made.used = {kind: set(names) for kind, names in self.used.items()}
        return made


class Call:
    """The arguments of one call."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], rules: Rules) -> None:
        self.args, self.kwargs = args, kwargs
        self._batches = rules.batches
        self._used = rules.used
        self.arguments = Arguments((args, kwargs), self._batches)
        self.leaves, self.structure = self.arguments.leaves, self.arguments.structure
        self.lying: dict[int, str] = {}
        self.follow(rules)

    def flatten(self) -> Arguments:
        """The arguments as they are now: the function may have changed them."""
        return Arguments((self.args, self.kwargs), self._batches, self.arguments.places)

    def follow(self, rules: Rules) -> None:
        """Looks at the arguments as ``rules`` want."""
        import torch

        leaves = self.leaves
        keys = [leaf_key(leaf) for leaf in leaves]
        self.state = {number: leaves[number] for number in rules.state if number < len(leaves)}
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf and leaf.device.type == "xla":
                self.state[number] = leaf
        for number, leaf in self.state.items():
            keys[number] = (keys[number], Same(leaf))
        for number in rules.read:
            if number < len(leaves) and _batch_tree.is_host_tensor(leaves[number]):
                keys[number] = (keys[number], Contents(_watch.digest(leaves[number])))
        first = {id(leaf): number for number, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, torch.Tensor)}
        alike = tuple(first[id(leaf)] if isinstance(leaf, torch.Tensor) else -1 for leaf in leaves)
        if any(isinstance(leaf, torch.Tensor) and leaf._is_view() for leaf in leaves):
            alike += tuple(buffers.memory_of([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]))
        self.granted = (self.structure, tuple(keys), alike, modes())
        """What a replay takes for granted about them, but for how they lie, which it finds out itself."""

    def tensors(self) -> dict[str, Any]:
        """Those on devices that are no state, by name."""
        import torch

        return {
            f"argument {number}": leaf
            for number, leaf in enumerate(self.leaves)
            if number not in self.state and isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"
        }

    def containers(self) -> set[int]:
        """The lists, dictionaries and opened objects among the arguments, by id."""
        found = [*self.arguments.opened]
        for tree in ((self.args, self.kwargs), *self.arguments.contents):
            found += _results.flatten(tree, ())[2]
        return set(map(id, found))

    def look(self) -> None:
        """Finds out how those lie that are on slices of several devices."""
        ways = {number: _lying(leaf) for number, leaf in enumerate(self.leaves)}
        self.lying = {number: way for number, way in ways.items() if way}

    def walk(self, function: Callable[..., Any]) -> Surroundings:
        """Everything that a call of ``function`` can reach, with the arguments that are state."""
        import torch

        found = _walk.walk(function, (self.args, self.kwargs), self.leaves, self.arguments.opened, self._used)
        names = {id(tensor) for tensor in found.tensors.values()}
        for number, leaf in self.state.items():
            if id(leaf) not in names and isinstance(leaf, torch.Tensor):
                name = f"argument {number}"
                found.tensors[name] = leaf
                if leaf.is_leaf and leaf.requires_grad:
                    found.trainable[name] = found.parameters[name] = leaf
                    if leaf.grad is not None:
                        found.tensors[f"{name}.grad"] = leaf.grad
        return found


def _lying(leaf: Any) -> str | None:
    """How an argument lies on a slice of several devices: a replay is for one way."""
    import torch

    if not isinstance(leaf, torch.Tensor) or leaf.device.type != "xla":
        return None
    try:
        value = buffers.cell_of(leaf).value
    except RuntimeError:  # it is a view
        return None
    if value is None or value.tiling is None:
        return None
    parts, tiles = value.tiling
    return f"cut into {list(parts)}, at {list(tiles)}"


ABSENT = object()


def tensor_key(tensor: torch.Tensor) -> tuple[str, str, tuple[int, ...], str, bool]:
    """What a tensor is, whatever is in it."""
    return "tensor", str(tensor.dtype), tuple(tensor.shape), str(tensor.device), tensor.requires_grad


def leaf_key(leaf: Any) -> Any:
    """What a replay takes for granted about a leaf of the arguments."""
    import torch

    if isinstance(leaf, torch.Tensor):
        key: Any = tensor_key(leaf)
        if type(leaf) is not torch.Tensor:
            key = key, Same(type(leaf))
        attributes = getattr(leaf, "__dict__", None)
        if attributes:
            key = key, Contents(_contents.attributes_key(leaf))
        if leaf.grad_fn is not None:
            key = key, f"made by {leaf.grad_fn.name()}{', which keeps its gradient' * leaf.retains_grad}"
        elif not leaf.requires_grad and leaf.grad is not None:
            key = key, Same(leaf.grad)
        if leaf._is_view():
            key = key, "a view"
        if leaf.device.type == "cpu" and leaf.layout is torch.strided and not (leaf.is_leaf and leaf.is_contiguous()):
            key = key, f"of strides {leaf.stride()}" + ("" if leaf.is_leaf else ", computed")
        if leaf.device.type != "cpu" or (
            leaf.layout is torch.strided and not (leaf.is_complex() and leaf.numel() == 1)
        ):
            return key
        return key, Contents(_watch.digest(leaf.to_dense()))  # PyTorch/XLA makes a constant of it
    if _contents.is_setting(leaf):
        return _contents.setting_key(leaf)
    contents = _contents.contents_of(leaf)
    if contents is None:
        return Same(leaf)
    package = _whose.module_of(type(leaf)).partition(".")[0]
    own = () if package == "numpy" or package in sys.stdlib_module_names else _contents.attributes_key(leaf)
    return type(leaf), Contents((contents, own) if own else contents)


def numbers(leaves: Sequence[Any]) -> dict[str, float]:
    """Arguments that are CPU tensors without dimensions, by name: PyTorch/XLA treats them like numbers."""
    import torch

    return {
        f"argument {number}": leaf.item()
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.dim() == 0 and not leaf.is_complex()
    }


WARNINGS = "which warnings are errors"


def modes() -> tuple[tuple[str, Any], ...]:
    import torch

    distributions: Any = sys.modules.get("torch.distributions.distribution")

    return (
        ("gradient mode", torch.is_grad_enabled()),
        ("inference mode", torch.is_inference_mode_enabled()),
        ("the default device", _default_device()),
        ("deterministic algorithms", torch.are_deterministic_algorithms_enabled()),
        ("the default type", torch.get_default_dtype()),
        (WARNINGS, _contents.error_filters()),
        *((name, _asked(getter)) for name, getter in _switches()),
        ("torch.distributions' check of arguments", distributions and distributions.Distribution._validate_args),
        ("autocast", torch.is_autocast_enabled("xla") and str(torch.get_autocast_dtype("xla"))),
    )


def _default_device() -> str:
    import torch

    try:
        return str(torch.get_default_device())
    except AttributeError:  # torch's, after set_default_device(None)
        return "cpu"


@functools.cache
def _switches() -> tuple[tuple[str, Callable[[], Any]], ...]:
    import torch

    found = [(f"torch's {name.removeprefix('_get_')}", getattr(torch._C, name, None)) for name in _GETTERS]
    if precision := getattr(torch._C, "_get_fp32_precision_getter", None):
        found += [(f"torch's precision of {' '.join(of)}", functools.partial(precision, *of)) for of in _PRECISIONS]
    future = torch.__future__
    found.append(("how torch swaps parameters", future.get_swap_module_params_on_conversion))
    found.append(("how torch overwrites parameters", future.get_overwrite_module_params_on_conversion))
    return tuple((name, getter) for name, getter in found if getter is not None)


_GETTERS = (
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_cudnn_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_deterministic_fill_uninitialized_memory",
    "_get_flash_sdp_enabled",
    "_get_math_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_mkldnn_enabled",
    "_get_nnpack_enabled",
    "_check_sparse_tensor_invariants",
    "_get_blas_preferred_backend",
    "_get_linalg_preferred_backend",
    "_get_qengine",
    "_get_warnAlways",
    "get_num_threads",
)


_PRECISIONS = (("generic", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"), ("mkldnn", "conv"))
"""Of which ``set_float32_matmul_precision`` sets those of products; to ask for its own word makes torch warn."""


def _asked(getter: Callable[[], Any]) -> Any:
    try:
        return getter()
    except RuntimeError:  # old and new names of the switches for tf32 were mixed
        return None


def advice_for(name: str, part: Any) -> str:
    """What to do where a part of a key that is about an argument differs at many calls; empty if that is not known."""
    if not name.startswith("argument ") or not isinstance(part, tuple):
        return ""
    kind = part[0]
    if isinstance(kind, type) and issubclass(kind, np.ndarray):
        return f"{name} is an array of NumPy, whose contents decide: pass torch.from_numpy(...) of it"
    if kind in ("int", "float"):
        advice = "pass torch.tensor(...).to(pw.device()) of it if it is only computed with"
        return f"{name} is a number, whose value decides: {advice}"
    if any(isinstance(one, tuple) and is_tensor_key(one[0]) and isinstance(one[1], Same) for one in (part, *part)):
        return f"the step writes or trains {name}, so each replay is for one tensor: write a copy (clone()) of it"
    return ""


def is_tensor_key(value: Any) -> bool:
    """Whether this is what ``tensor_key`` gives."""
    return isinstance(value, tuple) and len(value) == 5 and value[0] == "tensor"


def text_of(value: Any) -> str:
    """A part of a key for messages."""
    from torch.utils import _pytree as pytree

    if value is ABSENT:
        return "absent"
    if isinstance(value, Opened):
        classes = ", ".join(f"{kind} at {place}" for place, kind, *_ in value.objects)
        return text_of(value.of) + (f" with {classes}" if classes else "")
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, pytree.TreeSpec):
        return repr(pytree.tree_unflatten([...] * value.num_leaves, value)).replace("Ellipsis", "_")
    if isinstance(value, frozenset):
        return f"{len(value)} of them"
    if isinstance(value, tuple) and value:
        return _text_of_pair(value) if len(value) > 1 else f"({text_of(value[0])},)"
    return repr(value)


_WRITTEN = frozenset({"float", "complex", *(f"numpy.{kind.__name__}" for kind in np.sctypeDict.values())})
"""Types of numbers that keys have as texts, for the sign of a zero."""


def _text_of_pair(value: tuple[Any, ...]) -> str:
    first, second = value[:2]
    if is_tensor_key(value):
        return f"{second.removeprefix('torch.')}{list(value[2])} on {value[3]}" + (", trained" if value[4] else "")
    if is_tensor_key(first) or (isinstance(first, tuple) and first and is_tensor_key(first[0])):
        return text_of(first) + (f", {second}" if isinstance(second, str) else "")
    if first == "tuple":
        return f"({', '.join(map(text_of, second))})"
    if isinstance(first, str) and first in _WRITTEN and isinstance(second, str):
        return second
    if first == "the same as":
        return f"the same as {second}"
    if isinstance(second, Contents | Same):
        return "other contents" if isinstance(second, Contents) else "another one"
    if isinstance(first, Same):
        return f"{first}, {second}" if len(value) == 2 else f"{first}: {text_of(second)}"
    return repr(second) if isinstance(first, str) and len(value) == 2 else f"({', '.join(map(text_of, value))})"
