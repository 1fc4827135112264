"""From a PyTorch function to an HLO module: the function runs once on placeholders, which have a type and no value.

What cannot be compiled is noticed while it happens, so that the error names the user's line: a value that the function
took from outside, a shape that depends on data, an argument changed in place, a tensor kept after the function ended.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.base import _locator
from ptpathways.frontend.xla import _dtypes, _hlo, _xla

if TYPE_CHECKING:
    import torch

# A constant is copied into the module, which goes to every host.
_CONSTANT_BYTES_MAX = 16 << 20

# The seed that the module's generator starts from while it is traced, so that its parameter can be recognised.
_SEED_MARK = 0x50617468_776179

_lock = threading.RLock()
_active = threading.local()

SEED = -1
"""In ``Lowered.parameters``: this parameter is the run's random seed, an s64 scalar."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and element type (XLA's name, such as ``"f32"``) of a whole tensor."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Lowered:
    """What tracing gave."""

    module: bytes
    """HloModuleProto, without shardings."""
    parameters: tuple[int, ...]
    """The module's parameters: positions among the arguments, or ``SEED``. Unused arguments are none."""
    results: tuple[TensorSpec, ...]


class DataDependent(Exception):
    """A traced function asked for something that only its arguments' values decide. For ``_function`` to catch."""

    def __init__(self, operation: str, source: str) -> None:
        super().__init__(operation, source)
        self.operation = operation
        self.source = source


def lower(
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]],
    arguments: Sequence[TensorSpec],
    *,
    name: str,
    donated: Collection[int] = (),
) -> Lowered:
    """Runs ``call`` on placeholders of ``arguments`` and lowers the tensors it gives.

    ``donated``: positions of arguments whose memory results may take.

    Raises:
        DataDependent: a shape, a branch or an operation without an XLA form needs values.
        CapturedTensor: a tensor came in that is no argument.
        ImpureFunction: an argument was changed in place, or a tensor of the trace outlived it.
        Whatever ``call`` raises.
    """
    import torch

    binding = _xla.binding()
    with placing():
        watch = _make_watch(name)
        placeholders = [placeholder(spec) for spec in arguments]
        handles = binding._get_tensors_handle(placeholders) if placeholders else []
        position_of = {handle: position for position, handle in enumerate(handles)}
        watch.admit(placeholders)
        _active.watch = watch
        try:
            with (
                torch.device("xla", 0),
                torch.autograd.set_multithreading_enabled(False),
                watch,
            ):
                # detach() shows what is returned without having been used to the watch, too.
                results = [result.to("xla:0").detach() for result in call(list(placeholders))]
        except RuntimeError as error:
            if "Unexpected execution" in str(error) or "async operation is in flight" in str(error):
                raise DataDependent(watch.last_operation, watch.last_source) from None
            raise
        finally:
            _active.watch = None
        changed = [i for i, tensor in enumerate(placeholders) if not binding._is_placecholder(tensor)]
        if changed:
            raise core.ImpureFunction(
                f"function {name} changes its argument {changed[0]} in place, which its caller would not see; "
                "return the new value instead (buffers such as those of BatchNorm: pass and return them)"
            )
        lowered = _build(results, position_of, name, donated)
        placeholders.clear()
        results.clear()
    _check_nothing_kept(watch, name)
    return lowered


def tracing() -> bool:
    """Whether this thread is inside ``lower``."""
    return getattr(_active, "watch", None) is not None


def refuse_values() -> None:
    """Called where torch is about to fetch values for an operation without an XLA form; raises when tracing."""
    watch = getattr(_active, "watch", None)
    if watch is not None:
        raise DataDependent(watch.last_operation, watch.last_source)


@contextmanager
def exclusively() -> Iterator[None]:
    """Inside, no other thread traces: for what changes torch's state for a while, such as exporting a module."""
    with _lock:
        yield


@contextmanager
def placing() -> Iterator[None]:
    """Inside, tensors of PyTorch/XLA are placeholders and nothing is computed; one thread at a time."""
    with _lock, _tracing():
        yield


@contextmanager
def watched(watch: Any) -> Iterator[None]:
    """Inside, this thread is ``tracing``. ``watch`` knows the ``last_operation`` and the ``last_source``."""
    _active.watch = watch
    try:
        yield
    finally:
        _active.watch = None


@contextmanager
def _tracing() -> Iterator[None]:
    """Settings of the whole process: numbers become part of the module, and nothing may be computed."""
    binding = _xla.binding()
    numbers, allowed = binding._get_xla_all_numbers_special_scalars(), binding._get_allow_execution()
    seed = binding._xla_get_rng_seed("xla:0")
    binding._set_xla_all_numbers_special_scalars(True)
    binding._set_allow_execution(False)
    binding._xla_set_rng_seed(_SEED_MARK, "xla:0")
    try:
        yield
    finally:
        binding._xla_set_rng_seed(seed, "xla:0")
        binding._set_allow_execution(allowed)
        binding._set_xla_all_numbers_special_scalars(numbers)


def placeholder(spec: TensorSpec) -> torch.Tensor:
    """A tensor with a type and no value. Inside ``placing``."""
    from torch_xla.core import xla_builder

    create: Any = xla_builder.create_placeholder_tensor
    made: torch.Tensor = create(spec.shape, _dtypes.torch_dtype(spec.dtype))
    return made


def _build(
    results: Sequence[torch.Tensor],
    position_of: dict[int, int],
    name: str,
    donated: Collection[int],
) -> Lowered:
    binding = _xla.binding()
    context = binding.lowering.LoweringContext(name)
    context.build(list(results))
    data = context.device_parameter_id_tensor_mapping()
    numbers = sorted(data)
    handles = binding._get_tensors_handle([data[number] for number in numbers]) if numbers else []
    unknown = [number for number, handle in zip(numbers, handles, strict=True) if handle not in position_of]
    binding._set_allow_execution(True)  # what follows only fetches constants that the function itself made
    values = dict(zip(unknown, binding._xla_get_cpu_tensors([data[n] for n in unknown]), strict=True))
    constants: dict[int, _hlo.Constant] = {}
    parameters: list[int] = []
    for number, handle in zip(numbers, handles, strict=True):
        value = values.get(number)
        if value is None:
            parameters.append(position_of[handle])
        elif value.dim() == 0 and _dtypes.name_of(value.dtype) == "s64" and int(value) == _SEED_MARK:
            parameters.append(SEED)
        else:
            constants[number] = _constant(value, name)
    module = _hlo.with_constants(context.hlo(), constants)
    module = _hlo.with_donors(module, [i for i, position in enumerate(parameters) if position in donated])
    types = tuple(TensorSpec(tuple(result.shape), _dtypes.name_of(result.dtype)) for result in results)
    return Lowered(module, tuple(parameters), types)


def _constant(value: torch.Tensor, name: str) -> _hlo.Constant:
    size = value.numel() * value.element_size()
    if size > _CONSTANT_BYTES_MAX:
        raise core.CapturedTensor(
            f"function {name} makes a constant of {size >> 20} MiB out of host data; constants become part of the "
            f"compiled function and may have {_CONSTANT_BYTES_MAX >> 20} MiB: pass it as an argument"
        )
    return _hlo.Constant(_dtypes.name_of(value.dtype), _dtypes.to_numpy(value))


def _check_nothing_kept(watch: Any, name: str) -> None:
    kept = watch.kept()
    if kept:
        gc.collect()  # cycles, such as those of autograd
        kept = watch.kept()
    if kept:
        operation, source = kept[0]
        raise core.ImpureFunction(
            f"function {name} keeps a tensor of its trace after it ended: the result of {operation} at "
            f"{source or 'an unknown line'} is still referenced (a global, an attribute, a list outside). Such a "
            "tensor has no value; return it instead"
        )


def needs_values(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation's result, or its shape, depends on what only the arguments' values decide."""
    import torch

    if function is torch.ops.aten.index.Tensor or function is torch.ops.aten.index_put.default:
        masked = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        return masked and not (function is torch.ops.aten.index_put.default and is_number_at_mask(*args[1:]))
    if torch.Tag.data_dependent_output in function.tags or torch.Tag.dynamic_output_shape in function.tags:
        return function is not torch.ops.aten.index.Tensor
    if function is torch.ops.aten._to_copy.default:
        target = kwargs.get("device")
        return target is not None and torch.device(target).type == "cpu" and args[0].device.type == "xla"
    return False


def is_number_at_mask(
    indices: Sequence[torch.Tensor | None], source: torch.Tensor, accumulate: bool = False, *rest: Any
) -> bool:
    """Whether ``index_put`` writes one number wherever one mask is true: nobody needs to know where that is."""
    import torch

    given = [index for index in indices if index is not None]
    return not accumulate and source.numel() == 1 and len(given) == 1 and given[0].dtype == torch.bool


def seeing_writes(result: Any, args: Any, kwargs: Any) -> Any:
    """``result`` of an operation below a dispatch mode, such that what is written through views of it is seen in it.

    PyTorch/XLA does that for what it computes out of its own tensors. What is made of nothing, or comes from the CPU,
    it would prepare too, were there not a dispatch mode around it.
    """
    import torch
    from torch.utils import _pytree

    def known(leaf: Any) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"

    if any(map(known, _pytree.tree_leaves((args, kwargs)))):
        return result
    wrap: Any = torch._to_functional_tensor
    return _pytree.tree_map(
        lambda leaf: wrap(leaf) if known(leaf) and not torch._is_functional_tensor(leaf) else leaf, result
    )


_watch_class: Any = None


def _make_watch(name: str) -> Any:
    """The dispatch mode; its class is made late, because this room is imported before torch."""
    global _watch_class
    if _watch_class is None:
        _watch_class = _define_watch()
    return _watch_class(name)


def _define_watch() -> Any:
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        """Sees each operation of the trace, and where its tensors come from."""

        def __init__(self, name: str) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.last_operation = "an operation"
            self.last_source = ""
            self._name = name
            self._known: set[int] = set()  # torch_xla's ids
            self._on_host: dict[int, torch.Tensor] = {}  # kept alive, so that ids stay unique
            self._born: list[tuple[weakref.ref[torch.Tensor], str, str]] = []

        def admit(self, tensors: Sequence[torch.Tensor]) -> None:
            self._known.update(map(_xla.binding()._xla_get_tensor_id, tensors))

        def kept(self) -> list[tuple[str, str]]:
            """Operation and line of each tensor that is still alive."""
            self._on_host.clear()
            return [(operation, source) for born, operation, source in self._born if born() is not None]

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            operation = str(function).removesuffix(".default")
            self.last_operation, self.last_source = operation, _locator.user_source_line()
            creates = operation == "aten.lift_fresh"
            for tensor in _pytree.tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and not creates:
                    self._check(tensor)
            if needs_values(function, args, kwargs):
                raise DataDependent(operation, self.last_source)
            result = seeing_writes(function(*args, **kwargs), args, kwargs)
            for tensor in _pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self._add(tensor)
            return result

        def _add(self, tensor: torch.Tensor) -> None:
            if tensor.device.type == "xla":
                self._known.add(_xla.binding()._xla_get_tensor_id(tensor))
                self._born.append((weakref.ref(tensor), self.last_operation, self.last_source))
            else:
                self._on_host[id(tensor)] = tensor

        def _check(self, tensor: torch.Tensor) -> None:
            if tensor.device.type == "xla":
                known = _xla.binding()._xla_get_tensor_id(tensor) in self._known
            else:
                known = id(tensor) in self._on_host
            if not known:
                where = f" at {self.last_source}" if self.last_source else ""
                raise core.CapturedTensor(
                    f"function {self._name} uses a tensor that is not one of its arguments: "
                    f"{self.last_operation}{where} got one of shape {tuple(tensor.shape)}, {tensor.dtype}, on "
                    f"{tensor.device}. Pass it as an argument; a module's parameters and buffers with "
                    "torch.func.functional_call"
                )

    return Watch
