"""A captured step as a bundle of programs: to compile it for devices that are not here, or to save it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways import core, ir, native, programs
from ptpathways.frontend.capture.python import _code
from ptpathways.frontend.capture.recording._step_arguments import Call, is_tensor_key, numbers, text_of
from ptpathways.frontend.dataflow import _function
from ptpathways.frontend.plans import _plan
from ptpathways.frontend.plans._wiring import Feed, Number, Op, Rate, Result, Seed, Source, State, Type, Upload, Wiring
from ptpathways.frontend.slices import _mesh, _slice
from ptpathways.sharding import Mesh, Sharding, sharding_of

if TYPE_CHECKING:
    from ptpathways.frontend.capture._variant import Variant

_CALLS_MIN = 3
"""Calls of one kind after which most steps are captured."""


def bundle(
    name: str, function: Callable[..., Any], variants: Sequence[Variant], call: Call, why: str, refused: bool
) -> programs.Bundle:
    """A captured call as a program of virtual slices, with the modules of its computations as torch_xla made them.

    What a replay overwrites (parameters, the optimizer's state, gradients) is a donated argument, and the bundle says
    which results such state becomes. Numbers have their values, and seeds those of the recorded call.

    Args:
        name: of the step.
        function: what the step captures.
        variants: of the step, replayed or not.
        call: with example arguments, or without any.
        why: what the step has warned of last; empty if it has not.
        refused: whether that is why it is never captured.

    Raises:
        InvalidProgram: no variant can be replayed, none is meant, or the program cannot say how a tensor lies.
        SliceUnavailable: a slice of the step was released.
    """
    file, line = _code.place_of(function)
    source = _function.short_source(f"{file}:{line}")
    label = f"{name!r} ({source})"
    if refused:
        raise core.InvalidProgram(
            f"step {label} {why}. Only a captured step can be compiled for other devices, or saved"
        )
    found = _choose(variants, call, label, why)
    assert found.wiring is not None
    rates = found.numbers.now() | numbers(call.leaves)
    return _Graph(found.wiring, found.functions, _arranged, _function.ir_name(name), source, rates).go()


def _choose(variants: Sequence[Variant], call: Call, label: str, why: str) -> Variant:
    """The variant that is meant by example arguments; without any, the only one.

    Of several for such arguments (the step changes something else between its calls), the one that was used last.

    Raises:
        InvalidProgram: none can be replayed, or none is meant.
    """
    ready = [variant for variant in variants if variant.ready]
    if not ready:
        raise core.InvalidProgram(
            f"step {label} is not captured yet, so it is not known what it computes: call it until two calls in a row "
            f"have done the same (about {_CALLS_MIN} calls)" + (f". It {why}" if why else "")
        )
    for kind in (_exactly, _loosely):
        fitting = [variant for variant in ready if kind(variant.granted) == kind(call.granted)]
        if fitting:
            return max(fitting, key=lambda variant: variant.used)
    if not call.leaves and len(ready) == 1:
        return ready[0]
    known = "; ".join(sorted({_text(variant.granted) for variant in ready}))
    if not call.leaves:
        raise core.InvalidProgram(
            f"step {label} is captured for several kinds of arguments, so example arguments must say which is meant; "
            f"it is captured for {known}"
        )
    raise core.InvalidProgram(
        f"step {label} must be captured for arguments like the example ones, {_text(call.granted)}, and is captured "
        f"for {known}; call it with such arguments (about {_CALLS_MIN} times) first"
    )


def _exactly(granted: Any) -> Any:
    return granted[:2]


def _loosely(granted: Any) -> Any:
    """The same of tensors on any device, whatever else is known of them but type and shape."""
    structure, leaves = granted[:2]
    return structure, tuple(leaf if (tensor := _tensor_in(leaf)) is None else tensor[1:3] for leaf in leaves)


def _tensor_in(leaf: Any) -> Any:
    """The part of a leaf's key that says which tensor it is; None for another leaf."""
    while isinstance(leaf, tuple) and leaf and not is_tensor_key(leaf):
        leaf = leaf[0]
    return leaf if is_tensor_key(leaf) else None


def _text(granted: Any) -> str:
    """Arguments for messages: ``(float32[8, 4] on cpu, scale=2.0)``."""
    from torch.utils import _pytree as pytree

    structure, leaves = granted[:2]
    shown = [_Shown(text_of(leaf if (tensor := _tensor_in(leaf)) is None else tensor)) for leaf in leaves]
    if isinstance(structure, pytree.TreeSpec):
        args, kwargs = pytree.tree_unflatten(shown, structure)
        return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"
    return f"({', '.join(map(repr, shown))})"


class _Shown(str):
    """A text that is its own ``repr``."""

    __slots__ = ()
    __repr__ = str.__str__


def _arranged(device: int) -> tuple[str, Mesh]:
    """Name and mesh of the slice that is torch's device of that number. Raises SliceUnavailable."""
    slice = _slice.of_device(device)
    return slice.name, _mesh.arrangement(slice)


class _Graph:
    """A wiring as a program.

    Args:
        functions: the registered computations, as the wiring numbers them.
        mesh_of: name and mesh of the slice that is torch's device of a number.
        rates: values of the expressions that numbers follow, as far as they are known.
    """

    def __init__(
        self,
        wiring: Wiring,
        functions: Sequence[native.Function],
        mesh_of: Callable[[int], tuple[str, Mesh]],
        name: str,
        source: str,
        rates: Mapping[str, float],
    ) -> None:
        self._wiring = wiring
        self._functions = functions
        self._mesh_of = mesh_of
        self._name, self._source = name, source
        self._builder = ir.ProgramBuilder(self._name, source)
        self._modules: dict[str, bytes] = {}
        self._rates = rates
        self._numbers: dict[int, Any] = {}
        self._values: dict[Any, ir.Handle] = {}
        self._slices: dict[int, tuple[str, Mesh]] = {}
        self._names = _names(wiring)

    def go(self) -> programs.Bundle:
        kinds = [kind for op in self._wiring.ops for kind in (*op.argument_types, *op.result_types)]
        lowered = _plan.lower(self._wiring, dict.fromkeys((at for kind in kinds for at in kind.devices), 0))
        donated = {
            step["node"]: step["donated"] for plan in lowered.plans for step in plan["steps"] if "donated" in step
        }
        passed = _plan.passed_copies(self._wiring, [made.result for made in lowered.outputs])
        for place, given in enumerate(lowered.inputs):
            slice, kind = self._type(given.kind)
            if (number := _array_of(given.source, kind.dtype, self._rates)) is not None:
                self._numbers[place] = number
            self._values[_plan.input_key(given.source), given.kind] = self._builder.argument(
                kind.dtype,
                kind.shape,
                name=_argument_name(given.source),
                slice=slice,
                sharding=kind.sharding,
                donated=given.donated,
            )
        for number, op in enumerate(self._wiring.ops):
            if Result(number, 0) in passed:
                continue
            arguments = [self._argument(*each) for each in zip(op.arguments, op.argument_types, strict=True)]
            if op.function < 0:
                self._transfer(number, op, arguments[0])
            else:
                self._compute(number, op, arguments, donated[number])
        results = [self._values[passed.get(made.result, made.result)] for made in lowered.outputs]
        program = self._builder.build(results, self._source)
        return programs.Bundle(program, self._modules, self._numbers, self._follows(lowered))

    def _follows(self, lowered: _plan.Lowered) -> dict[int, int]:
        """Of each argument that is state which the step writes: the result that it becomes."""
        places = {made.result: place for place, made in reversed([*enumerate(lowered.outputs)])}
        written = {name: places[result] for name, result in self._wiring.written.items() if result in places}
        return {
            number: written[given.source.name]
            for number, given in enumerate(lowered.inputs)
            if isinstance(given.source, State) and given.source.name in written
        }

    def _argument(self, source: Source, kind: Type) -> ir.Handle:
        return self._values[source if isinstance(source, Result) else (_plan.input_key(source), kind)]

    def _compute(self, number: int, op: Op, arguments: Sequence[ir.Handle], donated: Sequence[int]) -> None:
        registered = self._functions[op.function]
        module = native.annotate_hlo(registered.module, [], [], list(donated))
        digest = ir.digest_of(module)
        self._modules[digest] = module
        (slice, _), *_ = [self._type(kind) for kind in (op.result_types or op.argument_types)]
        function = ir.Function(
            self._name,
            slice,
            tuple(self._type(kind)[1] for kind in op.argument_types),
            tuple(self._type(kind)[1] for kind in op.result_types),
            source=_function.short_source(registered.source) or self._source,
            format=registered.format,
            digest=digest,
            donated=tuple(donated),
        )
        results = [Result(number, index) for index in range(len(op.result_types))]
        names = [self._names.get(result, self._name) for result in results]
        self._values.update(zip(results, self._builder.compute(function, arguments, names=names), strict=True))

    def _transfer(self, number: int, op: Op, argument: ir.Handle) -> None:
        made = Result(number, 0)
        slice, kind = self._type(op.result_types[0])
        if kind.shape != argument.shape:
            raise core.InvalidProgram(
                f"step {self._name} moves a tensor {op.result_types[0].dtype}{list(op.result_types[0].dims)} that the "
                "devices of its slice do not divide evenly, which a saved program cannot say; pad that tensor"
            )
        name = self._names.get(made, "")
        self._values[made] = self._builder.transfer(argument, slice, kind.sharding, name=name)

    def _type(self, kind: Type) -> tuple[str, ir.ValueType]:
        """A tensor's slice, and how it lies there. Parts that are padded count with their padding."""
        if kind.device not in self._slices:
            name, mesh = self._mesh_of(kind.device)
            self._slices[kind.device] = self._builder.slice(_function.ir_name(name), mesh), mesh
        slice, mesh = self._slices[kind.device]
        sharding = Sharding.replicated(mesh) if kind.tiling is None else sharding_of(kind.tiling, mesh)
        if sharding is None:
            raise core.InvalidProgram(
                f"step {self._name} has a tensor {kind.dtype}{list(kind.dims)} that lies on slice {slice} [{mesh}] in "
                "a way that axes of a mesh cannot say; give it a layout with pw.shard"
            )
        shape = [size * sharding.parts(dimension) for dimension, size in enumerate(kind.shard_dims)]
        return slice, ir.ValueType(kind.dtype, tuple(shape), sharding)


def _names(wiring: Wiring) -> dict[Result, str]:
    """What to call results that are kept: by the state that they become, or the place where they are returned."""
    made = {item: f"result{place}" for place, item in enumerate(wiring.returned) if isinstance(item, Result)}
    return made | {result: f"new.{_state_name(name)}" for name, result in wiring.written.items()}


def _array_of(source: Source, dtype: str, rates: Mapping[str, float]) -> Any:
    """A scalar of the wiring as an array without dimensions; None where it is none, or follows what is not known."""
    import numpy as np

    if not isinstance(source, Number | Rate | Seed):
        return None
    bits = source.bits(rates) if isinstance(source, Rate) else source.bits
    kind = np.dtype(programs.numpy_dtype(dtype))
    return None if bits is None else np.array(bits, f"u{kind.itemsize}").view(kind)


def _argument_name(source: Source) -> str:
    if isinstance(source, Upload):
        source = source.feed() or source
    if isinstance(source, State):
        return _state_name(source.name)
    if isinstance(source, Feed):
        return f"argument{source.leaf}"
    return {Seed: "seed", Rate: "rate", Upload: "upload"}.get(type(source), "number")


def _state_name(name: str) -> str:
    """``model['a'].weight`` as ``model.a.weight``, which a program's value may be called."""
    return _function.ir_name(re.sub(r"[^\w\-]+", ".", name).strip(".") or "state")
