"""What a recorded training step did with its values, and what two recordings of it have in common. Pure.

A recording is a list of runs and copies whose arguments are numbered values. *Wiring* says where each argument came
from: an earlier result, a tensor that existed before (state, or an argument of the step), an upload, a number. Two
wirings of the same step are *merged*: what is equal in both stays, and a number that differs must be explained, as the
seed of the random generator or by an optimizer's learning rate. What remains after that can be replayed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ptpathways.frontend.plans import _seeds
from ptpathways.sharding import Tiling


class Uncapturable(Exception):
    """The step does something that a replay cannot do; the text says what, and what to do about it."""

    def __init__(self, text: str, *, passing: bool = False) -> None:
        """``passing``: only some calls may do it, such as the first."""
        super().__init__(text)
        self.passing = passing


class Idle(Uncapturable):
    """A call that computes nothing, as until a buffer of examples is full; others may."""


class Different(Exception):
    """Two recordings are not the same step; the text says in what."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result ``index`` of operation ``op``."""

    op: int
    index: int


@dataclass(frozen=True, slots=True)
class State:
    """The tensor of this name, as it is when the step begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Feed:
    """A tensor among the step's arguments: leaf ``leaf`` of their tree."""

    leaf: int
    alike: tuple[int, ...] = ()
    """Other leaves that had the same bytes in every recording: it is known only as long as they have."""


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar uploaded by PyTorch/XLA: its bits."""

    dtype: str
    bits: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A scalar that follows an optimizer's option, e.g. ``-optimizer.0.lr``, or an argument of one element.

    ``expressions``: all that it may follow. Options that were always equal cannot be told apart, so it is known only as
    long as they stay so.
    """

    dtype: str
    expressions: tuple[str, ...]

    def bits(self, rates: Mapping[str, float]) -> int | None:
        """Its bits where the expressions have these values; None when they differ, or it cannot have the value."""
        values = {rates.get(expression) for expression in self.expressions}
        found = {number_bits(value, self.dtype) for value in values}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Seed:
    """``multiplier * seed + addend`` (mod 2**64), of the device's seed when the step begins."""

    device: int
    multiplier: int
    addend: int
    bits: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Upload:
    """A tensor uploaded in the step. ``leaves``: the arguments of the step that have its bytes."""

    digest: int
    leaves: frozenset[int] = frozenset()

    def feed(self) -> Feed | None:
        """The argument that it is; None when it is none."""
        if not self.leaves:
            return None
        first, *others = sorted(self.leaves)
        return Feed(first, tuple(others))


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that existed before and that no tensor of Python stands for."""

    token: int


Source = Result | State | Feed | Number | Rate | Seed | Upload | Constant


@dataclass(frozen=True, slots=True)
class Type:
    """A tensor's type, and how it lies."""

    dtype: str
    dims: tuple[int, ...]
    """Of the whole tensor."""
    device: int
    """Torch's number."""
    devices: tuple[int, ...]
    """The cluster's numbers, by shard."""
    shard_dims: tuple[int, ...]
    """With padding, where its parts do not divide a dimension."""
    tiling: Tiling | None = None
    """None on a slice of one device."""


@dataclass(frozen=True, slots=True)
class Op:
    """A run of a function, or a copy of its only argument that lies elsewhere, or another way (``function`` -1)."""

    what: str
    identity: int
    function: int
    arguments: tuple[Source, ...]
    argument_types: tuple[Type, ...]
    result_types: tuple[Type, ...]
    argument_tokens: tuple[int, ...] = field(default=(), compare=False)
    """Values that were its arguments when it was recorded."""
    result_tokens: tuple[int, ...] = field(default=(), compare=False)
    donated: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    """The argument that each result is, as it came or laid another way, or -1; empty: not known."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor on a device, among what a call returned."""

    token: int


@dataclass(frozen=True, slots=True)
class Own:
    """An object of the program's own of this name, among what a call returned."""

    name: str


@dataclass(frozen=True, slots=True)
class Alias:
    """Another tensor on the memory of a state, an argument, or the result at that place, among what a call returned."""

    of: State | Feed | int


@dataclass(frozen=True, slots=True)
class Again:
    """The tensor that is the result at an earlier place, once more, among what a call returned."""

    of: int


@dataclass(frozen=True, slots=True)
class Option:
    """A number that Python made of an optimizer's options, among what a call returned."""

    text: str
    compute: Callable[[Mapping[str, float]], float] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Wiring:
    """A step: its operations in order, which of their results replace state, and which are returned."""

    ops: tuple[Op, ...]
    written: Mapping[str, Result]
    returned: tuple[Any, ...]
    """Per leaf of the returned tree: ``Result``, ``State``, ``Feed``, ``Alias``, ``Again``, ``Option``, ``Own``, or
    the leaf itself."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Values of the expressions that a ``Rate`` may name, when it was recorded."""
    free: frozenset[str] = frozenset()
    """Expressions that have been seen to change, so that what depends on them is known."""
    cuts: int = 1


@dataclass(slots=True)
class Observed:
    """Everything that was noted about one call of the step."""

    recording: Mapping[str, Any]
    """What ``native.stop_recording`` gives."""
    before: Mapping[int, Source]
    """Values of tensors that existed before the call: ``State`` or ``Feed``."""
    after: Mapping[str, int]
    """State by name, after the call."""
    returned: Sequence[Any]
    """``Held`` for a tensor on a device; anything else as it is."""
    digests: Mapping[int, int] = field(default_factory=dict)
    """By leaf, of the bytes of the arguments that are CPU tensors of more than one element and uploaded as they are."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Uploads that cannot be told for sure, by digest: why."""
    seeds: Mapping[int, int] = field(default_factory=dict)
    """The torch devices' seeds before the call."""
    rates: Mapping[str, float] = field(default_factory=dict)
    cuts: int = 1
    waits: str = ""
    """The first function of torch that gave Python what is in a tensor on a device, and where; empty if none did."""
    instead: str = ""
    """What to do instead, if that is not what one would advise the user's own code."""


def wire(observed: Observed) -> Wiring:
    """The wiring of one call.

    Raises:
        Uncapturable: it fetches a value, or does something else that cannot be replayed.
    """
    return _Wirer(observed).go()


def _at(line: str) -> str:
    return f", at {line}" if line else ""


class _Wirer:
    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._values = observed.recording["values"]
        self._results: dict[int, Result] = {}
        self._uploads: dict[int, int] = {}
        self._ops: list[Op] = []

    def go(self) -> Wiring:
        for event in self._observed.recording["events"]:
            kind = event["kind"]
            if kind == "run":
                self._run(event)
            elif kind == "copy":
                self._copy(event)
            elif kind == "upload":
                self._uploads[event["value"]] = event["digest"]
            elif kind == "gang":
                raise Uncapturable(
                    f"it runs {event['what']} as replicas, device by device; let the partitioner do that (pw.prepare)"
                )
            elif event["own"] or event["value"] in self._results:
                value = self._values[event["value"]]
                by = "item(), print(), a condition on a tensor, or an operation without an XLA form"
                raise Uncapturable(
                    f"it waits for a value on the client ({value['dtype']}{list(value['dims'])}: "
                    f"{self._observed.waits or by + _at(event['source'])}); "
                    f"{self._observed.instead or 'return the tensor and read it outside'}"
                )
        if self._observed.waits:  # it was sent, and nothing has been computed with it: the client has it still
            raise Uncapturable(
                f"it reads a tensor of the devices on the client, {self._observed.waits}; "
                f"{self._observed.instead or 'give it one of the CPU'}"
            )
        if not self._ops:
            raise Idle("it computes nothing on the devices")
        return Wiring(
            tuple(self._ops),
            self._written(),
            tuple(self._returned(item) for item in self._observed.returned),
            dict(self._observed.rates),
            cuts=self._observed.cuts,
        )

    def _run(self, event: Mapping[str, Any]) -> None:
        self._add(
            event["what"],
            event["arguments"],
            event["results"],
            identity=event["identity"],
            function=event["function"],
            donated=tuple(event["donated"]),
            passed=tuple(event["passed"]),
        )

    def _copy(self, event: Mapping[str, Any]) -> None:
        where = self._values[event["result"]]["device"]
        self._add(f"a copy to xla:{where}", [event["source"]], [event["result"]])

    def _add(
        self,
        what: str,
        arguments: Sequence[int],
        results: Sequence[int],
        identity: int = -1,
        function: int = -1,
        donated: tuple[int, ...] = (),
        passed: tuple[int, ...] = (),
    ) -> None:
        op = Op(
            what,
            identity,
            function,
            tuple(map(self._source, arguments)),
            tuple(map(self._type, arguments)),
            tuple(map(self._type, results)),
            tuple(arguments),
            tuple(results),
            donated,
            passed,
        )
        self._results.update({token: Result(len(self._ops), index) for index, token in enumerate(results)})
        self._ops.append(op)

    def _type(self, token: int) -> Type:
        value = self._values[token]
        return Type(
            value["dtype"], value["dims"], value["device"], value["devices"], value["shard_dims"], value["tiling"]
        )

    def _source(self, token: int) -> Source:
        known = self._results.get(token) or self._observed.before.get(token)
        if known is not None:
            return known
        value = self._values[token]
        bits, dtype, device = value["scalar"], value["dtype"], value["device"]
        if bits is not None:
            if dtype in ("s64", "u64") and device in self._observed.seeds:
                found = _seeds.seed_chain(self._observed.seeds[device]).get(bits & _seeds.MASK)
                if found is not None:
                    return Seed(device, *found, bits=bits)
            return Number(dtype, bits)
        digest = self._uploads.get(token)
        if digest is None:
            return Constant(token)
        if digest in self._observed.refused:
            raise Uncapturable(self._observed.refused[digest])
        return Upload(digest, frozenset(leaf for leaf, of in self._observed.digests.items() if of == digest))

    def _written(self) -> dict[str, Result]:
        before = {known.name: token for token, known in self._observed.before.items() if isinstance(known, State)}
        written = {}
        for name, token in self._observed.after.items():
            result = self._results.get(token)
            if result is not None:
                written[name] = result
            elif before.get(name, token) != token:
                raise Uncapturable(
                    f"it makes {name} another tensor that existed before; copy the values instead (tensor.copy_)"
                )
        return written

    def _returned(self, item: Any) -> Any:
        if not isinstance(item, Held):
            return item
        known = self._results.get(item.token) or self._observed.before.get(item.token)
        if known is None:
            raise Uncapturable(
                "it returns what it has uploaded, or a constant, as it is, and a replay returns what it has computed; "
                "return a copy (clone())"
            )
        if isinstance(known, State):  # it has other values, or is another object, when the call ends
            raise Uncapturable(f"it returns the value that {known.name} had before; return a copy (clone())")
        return known


def merge(first: Wiring, second: Wiring) -> Wiring:
    """What both are, with what may differ explained.

    Raises:
        Different: they are not the same step.
    """
    if [op.identity for op in first.ops] != [op.identity for op in second.ops]:
        names = [", ".join(op.what for op in wiring.ops) for wiring in (first, second)]
        if names[0] == names[1]:
            raise Different("it traced other computations: something that its Python reads differs each time")
        raise Different(f"it ran {names[0]} at first and {names[1]} then")
    if first.written != second.written:
        names = sorted(set(first.written) ^ set(second.written)) or sorted(first.written)
        raise Different(f"it replaced other tensors each time ({', '.join(names[:3])})")
    if first.returned != second.returned:
        raise Different(_returned_otherwise(first.returned, second.returned))
    if first.cuts != second.cuts:
        raise Different(f"it cut the trace {first.cuts} times at first and {second.cuts} times then")
    changed = {name for name, value in second.rates.items() if first.rates.get(name) != value}
    ops = []
    for one, other in zip(first.ops, second.ops, strict=True):
        if (one.argument_types, one.result_types) != (other.argument_types, other.result_types):
            raise Different(f"{one.what} took or gave tensors of other types, on other devices, or lying another way")
        sources = tuple(
            _merge_source(a, b, first, second, one.what) for a, b in zip(one.arguments, other.arguments, strict=True)
        )
        donated = tuple(position for position in one.donated if position in other.donated)
        ops.append(replace(other, arguments=sources, donated=donated))
    return replace(second, ops=tuple(ops), free=first.free | changed)


def _returned_otherwise(first: Sequence[Any], second: Sequence[Any]) -> str:
    """In what two results differ, for messages."""
    if len(first) != len(second):
        return f"it returned {len(first)} values at first and {len(second)} then"
    one, other = next((one, other) for one, other in zip(first, second, strict=True) if one != other)
    then, now = _text_of_returned(one), _text_of_returned(other)
    if then != now:
        return f"it returned {then} at first and {now} then"
    if isinstance(one, Result | Alias):
        return "it returned the tensors that it computes in another order each time"
    return (
        f"it returned another {then.removeprefix('a ')} each time, and a replay cannot make one; return what is in it, "
        "in a list, tuple or dict"
    )


def _text_of_returned(item: Any) -> str:
    if isinstance(item, Result):
        return "a tensor that it computes"
    if isinstance(item, Alias):
        return "a view of a tensor"
    if isinstance(item, State | Feed):
        return _describe(item)
    return item.name if isinstance(item, Own) else repr(item)


def _merge_source(one: Source, other: Source, first: Wiring, second: Wiring, what: str) -> Source:
    if isinstance(one, Upload) and isinstance(other, Upload):
        if one.leaves & other.leaves or one.digest == other.digest:
            return Upload(other.digest, one.leaves & other.leaves)
        raise Different(f"{what} takes a tensor that the step makes on the CPU anew each time; pass it as an argument")
    if isinstance(one, Seed | Number) and isinstance(other, Seed | Number):
        if type(one) is not type(other) or one != other or isinstance(one, Number):
            return _merge_numbers(one, other, first, second, what)
    elif isinstance(one, Rate) and isinstance(other, Number):
        follows = tuple(
            name for name in one.expressions if number_bits(second.rates.get(name), one.dtype) == other.bits
        )
        if follows:
            return Rate(one.dtype, follows)
        raise Different(f"{what} no longer follows {' or '.join(one.expressions[:3])}")
    if one == other:
        return other
    then, now = _describe(one), _describe(other)
    if then == now:
        raise Different(
            f"an argument of {what} was another {then.removeprefix('a ')} each time: an upload, or a part of a tensor "
            "that was computed anew; give it a tensor of its own (clone())"
        )
    raise Different(f"an argument of {what} was {then} at first and {now} then")


def _merge_numbers(one: Seed | Number, other: Seed | Number, first: Wiring, second: Wiring, what: str) -> Source:
    dtype = one.dtype if isinstance(one, Number) else "s64"
    if isinstance(one, Number):
        follows = tuple(
            expression
            for expression, value in first.rates.items()
            if number_bits(value, dtype) == one.bits and number_bits(second.rates.get(expression), dtype) == other.bits
        )
        # One that has changed by less than the number's precision will go on to.
        if follows and (one.bits != other.bits or any(first.rates[name] != second.rates[name] for name in follows)):
            return Rate(dtype, follows)
    if one.bits == other.bits:
        return Number(dtype, other.bits)
    raise Different(
        f"a number that {what} takes was {bits_number(one.bits, dtype)} at first and {bits_number(other.bits, dtype)} "
        "then, which no argument, no optimizer's option and no random seed explains; pass it as a tensor"
    )


def _describe(source: Source) -> str:
    if isinstance(source, State):
        return source.name
    if isinstance(source, Feed):
        return f"argument {source.leaf} of the step"
    if isinstance(source, Number):
        return f"the number {bits_number(source.bits, source.dtype)}"
    return {Result: "an earlier result", Rate: "a learning rate", Seed: "the random seed"}.get(
        type(source), "a value made on the client"
    )


def is_baked(value: float) -> bool:
    """Whether PyTorch/XLA makes such a number a part of the computation instead of an argument."""
    return value in (0.0, 1.0, -1.0)


def number_bits(value: float | None, dtype: str) -> int | None:
    """The bits of ``value`` as an element of ``dtype``; None when it is none, or for types that a rate cannot have."""
    if value is None:
        return None
    if dtype in ("s64", "s32"):
        return int(value) & ((1 << int(dtype[1:])) - 1) if value == int(value) else None
    try:
        if dtype == "f64":
            return int(struct.unpack("<Q", struct.pack("<d", value))[0])
        if dtype == "f16":
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        single = int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return None
    if dtype == "f32":
        return single
    if dtype == "bf16":
        return ((single + 0x7FFF + ((single >> 16) & 1)) >> 16) & 0xFFFF
    return None


def bits_number(bits: int, dtype: str) -> float | int:
    """The number that ``bits`` are, for messages."""
    if dtype == "f64":
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    if dtype == "f32":
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    if dtype == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    if dtype == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    return bits - (1 << 64) if dtype == "s64" and bits >> 63 else bits
