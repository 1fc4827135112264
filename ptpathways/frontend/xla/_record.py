"""Recording what a PyTorch function does on placeholders, as a list of operations that can be divided and run again.

The operations are those that PyTorch/XLA is given: after autograd, and almost all without changes in place. A tensor
that is changed in place is another value afterwards, so a recording is a graph of values, each made once. Parts of it
can be traced as functions of their own (``play``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptpathways import core
from ptpathways.frontend.base import _locator
from ptpathways.frontend.xla import _dtypes, _trace, _xla
from ptpathways.frontend.xla._trace import TensorSpec

if TYPE_CHECKING:
    import torch

_SKIPPED = frozenset({"aten::_propagate_xla_data"})
"""Notes for PyTorch/XLA itself; nothing is computed."""


@dataclass(frozen=True, slots=True)
class Ref:
    """In the arguments of a step: the value with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One operation."""

    operation: Any
    """A ``torch._ops.OpOverload``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]
    """Numbers of the values that it makes, by leaf of what it returns; None for a leaf that is no tensor."""
    phase: int
    """How often ``Recorder.next_phase`` had been called before."""
    source: str
    """The user's line, if there is one."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the values that it reads."""
        from torch.utils import _pytree

        return tuple(leaf.number for leaf in _pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Ref))

    @property
    def random(self) -> bool:
        """Whether it draws from the random generator."""
        import torch

        return torch.Tag.nondeterministic_seeded in self.operation.tags


@dataclass(slots=True)
class Recording:
    """Values are numbered: first the arguments, then what the steps make."""

    specs: dict[int, TensorSpec] = field(default_factory=dict)
    """Type of each value."""
    arguments: int = 0
    steps: list[RecordedStep] = field(default_factory=list)
    results: tuple[int | None, ...] = ()
    """What the function returned."""


def record(
    call: Callable[[list[torch.Tensor], Callable[[], None]], Sequence[torch.Tensor | None]],
    arguments: Sequence[TensorSpec],
    *,
    name: str,
) -> Recording:
    """Runs ``call(placeholders, next_phase)`` on placeholders of ``arguments`` and records its operations.

    Raises:
        DataDependent: an operation needs values.
        Whatever ``call`` raises.
    """
    import torch

    made = Recording(arguments=len(arguments))
    with _trace.placing():
        placeholders = [_trace.placeholder(spec) for spec in arguments]
        recorder = _make_recorder(made)
        for spec, placeholder in zip(arguments, placeholders, strict=True):
            recorder.admit(placeholder, spec)
        try:
            with (
                _trace.watched(recorder),
                torch.device("xla", 0),
                torch.autograd.set_multithreading_enabled(False),
                recorder,
            ):
                returned = [
                    None if result is None else result.to("xla:0").detach()
                    for result in call(list(placeholders), recorder.next_phase)
                ]
        except RuntimeError as error:
            if "Unexpected execution" in str(error) or "async operation is in flight" in str(error):
                raise _trace.DataDependent(recorder.last_operation, recorder.last_source) from None
            raise
        made.results = tuple(None if result is None else recorder.number_of(result) for result in returned)
    return made


def play(
    recording: Recording, steps: Sequence[RecordedStep], values: Mapping[int, torch.Tensor], wanted: Collection[int]
) -> list[torch.Tensor]:
    """Runs ``steps`` on tensors. ``values``: what exists already, by number; gives the ``wanted`` ones."""
    import torch
    from torch.utils import _pytree

    known = dict(values)

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return known[leaf.number]
        return torch.ops.aten.lift_fresh(leaf.clone()) if isinstance(leaf, torch.Tensor) else leaf

    with torch.no_grad():
        for step in steps:
            args, kwargs = _pytree.tree_map(value, (step.args, step.kwargs))
            for place in _written(step.operation):  # what others may still read
                args = (*args[:place], args[place].clone(), *args[place + 1 :])
            leaves = _pytree.tree_leaves(step.operation(*args, **kwargs))
            known.update(
                (number, leaf) for number, leaf in zip(step.results, leaves, strict=True) if number is not None
            )
    return [known[number] for number in wanted]


def _value_of(tensor: torch.Tensor) -> torch.Tensor:
    """Of a tensor that was made out of host data while it is recorded."""
    binding = _xla.binding()
    binding._set_allow_execution(True)  # it only fetches
    try:
        found: torch.Tensor = binding._xla_get_cpu_tensors([tensor])[0]
    finally:
        binding._set_allow_execution(False)
    return found


def _written(operation: Any) -> list[int]:
    """Positions of arguments that an operation changes; most have none, only fresh tensors are changed in place."""
    arguments = operation._schema.arguments
    if operation._schema.name == "aten::copy":  # PyTorch/XLA copies into the tensor that it is given
        return [0]
    return [place for place, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write]


_recorder_class: Any = None


def _make_recorder(made: Recording) -> Any:
    """The class is made late, because this room is imported before torch."""
    global _recorder_class
    if _recorder_class is None:
        _recorder_class = _define_recorder()
    return _recorder_class(made)


def _define_recorder() -> Any:
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        """Sees operations where PyTorch/XLA gets them."""

        def __init__(self, made: Recording) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.last_operation = "an operation"
            self.last_source = ""
            self._made = made
            self._numbers: dict[int, int] = {}  # by PyTorch/XLA's id
            self._kept: list[torch.Tensor] = []  # alive, so that ids stay unique
            self._phase = 0

        def next_phase(self) -> None:
            self._phase += 1

        def admit(self, tensor: torch.Tensor, spec: TensorSpec) -> int:
            number = len(self._made.specs)
            self._made.specs[number] = spec
            self._numbers[_xla.binding()._xla_get_tensor_id(tensor)] = number
            self._kept.append(tensor)
            return number

        def number_of(self, tensor: torch.Tensor) -> int:
            found = self._numbers.get(_xla.binding()._xla_get_tensor_id(tensor))
            if found is None:
                raise core.CapturedTensor(
                    f"{self.last_operation} at {self.last_source or 'an unknown line'} uses a tensor on "
                    f"{tensor.device} of shape {tuple(tensor.shape)} that is neither a parameter nor a buffer nor part "
                    "of the batch"
                )
            return found

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            self.last_operation = str(function).removesuffix(".default")
            self.last_source = _locator.user_source_line()
            if _trace.needs_values(function, args, kwargs):
                raise _trace.DataDependent(self.last_operation, self.last_source)
            if function is torch.ops.aten.lift_fresh.default and self._is_new(args[0]):
                function, args = torch.ops.aten._to_copy.default, (_value_of(args[0]),)
                kwargs = {"device": torch.device("xla", 0)}
            result = _trace.seeing_writes(function(*args, **kwargs), args, kwargs)
            name = function._schema.name
            if name in _SKIPPED:
                return result
            leaves = _pytree.tree_leaves(result)
            if not any(isinstance(leaf, torch.Tensor) and leaf.device.type == "xla" for leaf in leaves):
                return result  # on the client, with values that are known: a constant
            written = _written(function)
            places = [place for place in written if place < len(args)]
            if function._schema.is_mutable and (len(places) != 1 or len(written) != 1 or result is not args[places[0]]):
                raise core.CapturedTensor(
                    f"{name} at {self.last_source or 'an unknown line'} writes into tensors that exist already (out=, "
                    "or several at once); use the operation that returns its result"
                )
            args, kwargs = _pytree.tree_map(self._reference, (args, kwargs))
            if written:  # from now on the tensor is another value
                self._numbers.pop(_xla.binding()._xla_get_tensor_id(result), None)
            numbers = tuple(self._new(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
            self._made.steps.append(RecordedStep(function, args, kwargs, numbers, self._phase, self.last_source))
            return result

        def _is_new(self, tensor: torch.Tensor) -> bool:
            return tensor.device.type == "xla" and _xla.binding()._xla_get_tensor_id(tensor) not in self._numbers

        def _reference(self, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return Ref(self.number_of(leaf)) if leaf.device.type == "xla" else leaf.detach().clone()

        def _new(self, tensor: torch.Tensor) -> int | None:
            if _xla.binding()._xla_get_tensor_id(tensor) in self._numbers:
                return None  # given back as it was
            return self.admit(tensor, TensorSpec(tuple(tensor.shape), _dtypes.name_of(tensor.dtype)))

    return Recorder
