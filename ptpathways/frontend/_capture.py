"""Captured training steps: traced a few times, then replayed without any tracing (paper 4.2).

A step is a function that runs forward and backward passes and an optimizer on ``pw.device()``. Its first calls are
traced as usual, and the plugin notes what PyTorch/XLA submits. When two calls have done the same, the third is one
message per host: parameters and optimizer state are read from the tensors' buffers, and the new values are put into
the same buffers, so the tensors stay the objects they are.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptpathways import native
from ptpathways.frontend import _capture_buffers as buffers
from ptpathways.frontend import _capture_state, _capture_walk, _capture_wiring, _rng, _state, _step
from ptpathways.frontend._capture_draws import Draws
from ptpathways.frontend._capture_state import Same, Surroundings
from ptpathways.frontend._capture_variant import Outcome, Stale, Variant
from ptpathways.frontend._capture_wiring import Feed, Held, Observed, Result, Source, State, Uncapturable

VARIANTS_MAX = 8
RECORDINGS_MAX = 6
GROWTHS_MAX = 2

Key = tuple[tuple[str, Any], ...]
"""What a replay takes for granted, each with what to call it."""


class CaptureWarning(UserWarning):
    """A captured step is traced again, or cannot be captured; the message says why. Given once per reason."""


class CapturedStep:
    """A training step that is replayed. Made by ``program``; see ``docs/capture.md``.

    A call returns what the function returns, with tensors whose values come later and that have no gradient history.
    What the Python of the function does besides (counting, printing, appending to lists) happens only in calls that
    are traced.
    """

    def __init__(self, function: Callable[..., Any], *, name: str = "") -> None:
        functools.update_wrapper(self, function, updated=())
        self.name = name or getattr(function, "__name__", "step")
        self._function = function
        self._variants: dict[Key, Variant] = {}
        self._last: tuple[Key, Variant, Any] | None = None
        self._connection: Any = None  # whose cluster the variants belong to
        self._own: set[str] = set()  # settings that the step itself changes
        self._lazy = False
        self._clean = -1
        self._growths = 0
        self._said: set[str] = set()
        self._lock = threading.RLock()
        self.replays = 0
        """Calls that were replayed."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step, submitted; returns at once. Raises what the function raises."""
        if _Recording.active or _state.runtime().connection is None:
            return self._function(*args, **kwargs)
        with self._lock:
            if self._connection is not _state.runtime().connection:  # the process has joined another cluster
                self._connection = _state.runtime().connection
                self._variants.clear()
                self._last = None
            if self._lazy:
                return self._run_lazily(args, kwargs)
            return self._step(args, kwargs)

    def __repr__(self) -> str:
        ready = sum(variant.ready for variant in self._variants.values())
        return f"<captured step {self.name}, {ready} variants, {self.replays} replays>"

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = _Call(args, kwargs)
        leaves = call.leaves
        traced = self._submit_pending()
        if self._last is not None:
            key, variant, known = self._last
            if known == call.granted and variant.ready and variant.holds():
                done, result = self._replay(variant, variant.rates() | _numbers(leaves), leaves, traced)
                if done:
                    return result
        while True:
            surroundings = _capture_walk.walk(self._function, args, kwargs)
            changed = [_capture_state.make_capturable(optimizer) for optimizer in surroundings.optimizers]
            if not any(changed):
                break
            self._submit_pending(always=True)
        call.look()
        key = self._key(call, surroundings)
        found = self._variants.get(key)
        if found is not None and found.ready:
            try:
                found.bind(surroundings)
            except Stale:
                found.ready = False
            else:
                self._last = (key, found, call.granted)
                done, result = self._replay(found, found.rates() | _numbers(leaves), leaves, traced)
                if done:
                    return result
        if found is None:
            if len(self._variants) >= VARIANTS_MAX:
                self._give_up(
                    f"it was traced for {VARIANTS_MAX} kinds of calls already; the last one differed in "
                    + self._difference(key)
                )
                return self._run_lazily(args, kwargs)
            if any(variant.ready for variant in self._variants.values()):
                self._say(f"is traced again: {self._difference(key)}")
            found = self._variants[key] = Variant()
        return self._record(found, key, call, surroundings)

    def _replay(
        self, variant: Variant, rates: Mapping[str, float], leaves: Sequence[Any], traced: bool
    ) -> tuple[bool, Any]:
        """Whether it could be replayed, and what that returned."""
        if variant.has_baked(rates):
            return False, None
        parted = variant.parted(rates)
        if parted:
            self._say(f"is traced again: {' and '.join(parted[:3])} were always equal, and are no longer")
            return False, None
        changed = variant.changed_rates(rates)
        if changed:
            assert variant.wiring is not None
            first = changed[0]
            self._say(f"is traced again: {first} changed ({variant.wiring.rates.get(first)} -> {rates[first]})")
            return False, None
        try:
            result = variant.run(leaves, rates, traced)
        except Stale:
            return False, None
        self._clean = buffers.created_count()
        self.replays += 1
        return True, result

    def _record(self, variant: Variant, key: Key, call: _Call, surroundings: Surroundings) -> Any:
        recording = _Recording(self._function, surroundings, call)
        with _Recording.turn:
            result = recording.run()
        self._clean = buffers.created_count()
        changed = surroundings.changed_settings()
        if recording.draws.moved and not recording.draws.certain:
            self._say(
                f"was traced while random numbers were drawn from {' and '.join(recording.draws.moved)}, by it or by "
                "another thread; if by it, a replay repeats what Python made of them"
            )
        try:
            outcome, wiring = recording.outcome(result)
            self._check_settled(surroundings, outcome.surroundings)
            changed = (changed | surroundings.changed_kinds(outcome.surroundings)) - self._own
            if changed:
                self._own |= changed  # its own counters; what it makes of them would show as differing numbers
                del self._variants[key]
                key = self._key(call, surroundings)
                variant = self._variants.setdefault(key, variant)
            if variant.add(wiring):
                variant.build(self.name, outcome)
                self._last = (key, variant, call.granted)
        except Uncapturable as reason:
            self._give_up(str(reason))
        else:
            if not variant.ready and variant.recordings >= RECORDINGS_MAX:
                self._give_up(variant.reason)
        return result

    def _check_settled(self, before: Surroundings, after: Surroundings) -> None:
        """Raises Uncapturable when calls go on to make tensors that stay: an optimizer's first step does, once."""
        fresh = [name for name in after.tensors if name not in before.tensors and not name.endswith(".grad")]
        self._growths += bool(fresh)
        if self._growths > GROWTHS_MAX:
            raise Uncapturable(
                f"it keeps a new tensor at every call ({fresh[0]}), which a replay would not; return it instead"
            )

    def _run_lazily(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cuts = _step.cut_count()
        result = self._function(*args, **kwargs)
        if _step.cut_count() == cuts:
            _step.step()
        return result

    def _submit_pending(self, always: bool = False) -> bool:
        """Lets what was traced outside the step read the state before the step replaces it; whether there was any."""
        if not always and buffers.created_count() == self._clean:
            return False
        buffers.submit_pending()
        self._clean = buffers.created_count()
        return True

    def _key(self, call: _Call, surroundings: Surroundings) -> Key:
        structure, leaves, modes = call.granted
        parts: list[tuple[str, Any]] = [("the structure of the arguments", structure)]
        for number, leaf in enumerate(leaves):
            if f"argument {number}" not in surroundings.kinds:  # else the walk has looked into it
                parts.append((f"argument {number}", leaf))
        parts += modes
        parts += [(f"how argument {number} lies", way) for number, way in call.lying.items()]
        for name, (_, _, value) in surroundings.settings.items():
            if name not in self._own:
                parts.append((name, _capture_state.setting_key(value)))
        parts += [(name or "the function", kind) for name, kind in surroundings.kinds.items() if name not in self._own]
        for name, tensor in surroundings.tensors.items():
            if not name.endswith(".grad"):
                parts.append((name, _leaf_key(tensor)))
        parts.append(("which parameters have gradients", surroundings.with_gradient()))
        return tuple(parts)

    def _difference(self, key: Key) -> str:
        """In what ``key`` differs from the known one that is most like it."""
        new = dict(key)
        best: list[str] | None = None
        for known in self._variants:
            old = dict(known)
            names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
            texts = [f"{name} ({_text(old.get(name, _ABSENT))} -> {_text(new.get(name, _ABSENT))})" for name in names]
            if best is None or len(texts) < len(best):
                best = texts
        assert best is not None
        return ", ".join(best[:3]) + (f" and {len(best) - 3} more" if len(best) > 3 else "")

    def _give_up(self, reason: str) -> None:
        self._lazy = True
        self._last = None
        self._variants.clear()
        self._say(f"is not captured, and traced at every call: {reason}")

    def _say(self, text: str) -> None:
        if text in self._said:
            return
        self._said.add(text)
        code = getattr(self._function, "__code__", None)
        where = (code.co_filename, code.co_firstlineno) if code is not None else ("<unknown>", 1)
        warnings.warn_explicit(f"step {self.name!r} {text}", CaptureWarning, *where)


class _Call:
    """The arguments of one call."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        from torch.utils import _pytree as pytree

        self.args, self.kwargs = args, kwargs
        self.leaves, structure = pytree.tree_flatten((args, kwargs))
        self.granted = (structure, tuple(map(_leaf_key, self.leaves)), _modes())
        """What a replay takes for granted about them, but for how they lie, which it finds out itself."""
        self.lying: dict[int, str] = {}

    def look(self) -> None:
        """Finds out how those lie that are on slices of several devices."""
        ways = {number: _lying(leaf) for number, leaf in enumerate(self.leaves)}
        self.lying = {number: way for number, way in ways.items() if way}


class _Recording:
    """One traced call of a step, and everything that has to be noted before and after it."""

    active = False
    turn = threading.Lock()
    """Recordings of several threads take turns."""

    def __init__(self, function: Callable[..., Any], surroundings: Surroundings, call: _Call) -> None:
        self._function = function
        self._surroundings = surroundings
        self._args, self._kwargs, self._leaves = call.args, call.kwargs, call.leaves
        self.draws = Draws()

    def run(self) -> Any:
        """Calls the function and submits all of it."""
        import torch
        from torch.utils import _pytree as pytree

        buffers.submit_pending()
        self._before_ids = {id(tensor): tensor for tensor in buffers.live_tensors()}
        self._before: dict[int, Source] = {}
        self._noted: set[int] = set()
        self._digests: dict[int, int] = {}
        for number, leaf in enumerate(self._leaves):
            if isinstance(leaf, torch.Tensor):
                if leaf.device.type == "xla":
                    self._note(leaf, Feed(number))
                elif leaf.device.type == "cpu" and leaf.layout is torch.strided and leaf.numel() > 1:
                    self._digests[number] = native.digest(buffers.dense_bytes(leaf))
        for name, tensor in self._surroundings.tensors.items():
            self._note(tensor, State(name))
        known = {id(tensor) for tensor in self._surroundings.tensors.values()} | {id(leaf) for leaf in self._leaves}
        self._extras = {
            f"the tensor {_text(_leaf_key(tensor))} at {identity:#x}": tensor
            for identity, tensor in self._before_ids.items()
            if identity not in known
        }
        for name, tensor in self._extras.items():
            self._note(tensor, State(name))
        self._found = self._surroundings.with_gradient()
        self._required = self._surroundings.required()
        self._seeds = buffers.seeds(_rng.in_use())
        self._rates = self._surroundings.rates() | _numbers(self._leaves)
        cuts = _step.cut_count()
        native.start_recording()
        _Recording.active = True
        try:
            with self.draws:
                result = self._function(*self._args, **self._kwargs)
            for leaf in pytree.tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "xla":
                    torch._sync(leaf)  # type: ignore[attr-defined,no-untyped-call]  # a view of something written
            if _step.cut_count() == cuts:
                _step.submit()
            else:
                buffers.submit_pending()
        finally:
            _Recording.active = False
            self._recording = native.stop_recording()
        self._cuts = _step.cut_count() - cuts
        return result

    def _note(self, tensor: Any, source: Source) -> None:
        token = _token(tensor)
        if token is not None:
            self._before.setdefault(token, source)
            self._noted.add(id(tensor))

    def outcome(self, result: Any) -> tuple[Outcome, _capture_wiring.Wiring]:
        """What has to be known of the call.

        Raises:
            Uncapturable: it cannot be replayed.
        """
        import torch
        from torch.utils import _pytree as pytree

        if self.draws.moved and self.draws.certain:
            raise Uncapturable(
                f"it draws from {' and '.join(self.draws.moved)}, and a replay would repeat what Python made of that; "
                "draw outside and pass the outcome as an argument, or draw on the device"
            )
        returned, tree = pytree.tree_flatten(result)
        after = _capture_walk.walk(self._function, self._args, self._kwargs)
        names: dict[str, int] = {}
        extras = {}
        for name, tensor in after.tensors.items():
            token = _token(tensor)
            if token is None:
                raise Uncapturable(f"{name} is a view of a tensor that it writes; use the tensor itself")
            names[name] = token
        for name, tensor in self._extras.items():
            token = _token(tensor) if id(tensor) in self._noted else None
            if token is not None:
                extras[name] = tensor
                names[name] = token
        items: list[Any] = []
        name_of = {id(tensor): name for name, tensor in after.tensors.items()}
        for item in returned:
            if not isinstance(item, torch.Tensor):
                items.append(item)
            elif id(item) in name_of:
                items.append(State(name_of[id(item)]))
            elif item.device.type == "xla" and (token := _token(item)) is not None:
                items.append(Held(token))
            else:
                raise Uncapturable(f"it returns a tensor on {item.device}; return the one on the device")
        wiring = _capture_wiring.wire(
            Observed(
                self._recording,
                self._before,
                names,
                items,
                self._digests,
                self._seeds,
                self._rates,
                self._cuts,
            )
        )
        self._check_own_slices(wiring, [*after.tensors.values(), *self._leaves, *returned])
        self._check_nothing_kept(wiring, after, returned)
        used = {source.name for op in wiring.ops for source in op.arguments if isinstance(source, State)}
        extras = {name: tensor for name, tensor in extras.items() if name in used or name in wiring.written}
        shapes = {
            where: buffers.shape_of(item)
            for where, item in zip(wiring.returned, returned, strict=True)
            if isinstance(where, Result)
        }
        gone = {
            name: t for name, t in self._surroundings.tensors.items() if name.endswith(".grad") and name not in names
        }
        return Outcome(self._recording, after, extras, gone, tree, self._found, self._required, shapes), wiring

    def _check_own_slices(self, wiring: _capture_wiring.Wiring, known: Sequence[Any]) -> None:
        """Raises Uncapturable when something was computed on a slice that the step has nothing to do with."""
        import torch

        own = {leaf.device.index for leaf in known if isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"}
        own |= {tensor.device.index for tensor in self._surroundings.tensors.values() if tensor.device.type == "xla"}
        for op in wiring.ops:
            if op.function < 0 and op.argument_types[0].device in own:
                own.add(op.result_types[0].device)
            used = {kind.device for kind in (*op.argument_types, *op.result_types)}
            if op.function >= 0 and used - own:
                raise Uncapturable(
                    f"{op.what} ran on xla:{min(used - own)} meanwhile, where the step has no tensor: it is another "
                    "thread's, or of a tensor that the step is not given and does not return"
                )

    def _check_nothing_kept(self, wiring: _capture_wiring.Wiring, after: Surroundings, returned: Sequence[Any]) -> None:
        """Raises Uncapturable when Python keeps a tensor that the call made, and nothing says where it would be."""
        import gc

        import torch

        known = {id(tensor) for tensor in [*after.tensors.values(), *returned]} | set(self._before_ids)
        known |= {id(item._base) for item in returned if isinstance(item, torch.Tensor)}  # a view keeps its base
        if not any(id(tensor) not in known for tensor in buffers.live_tensors()):
            return
        gc.collect()  # a cycle is no fault
        for tensor in buffers.live_tensors():
            if id(tensor) not in known and _leaf_key(tensor)[0] == "tensor" and not self._is_upload(tensor):
                raise Uncapturable(
                    f"it keeps a tensor {_text(_leaf_key(tensor))} that it does not return, which a replay would not "
                    "renew; return it"
                )

    def _is_upload(self, tensor: Any) -> bool:
        """Whether a tensor was not computed by the call, but for instance by a thread that loads the next batch."""
        token = _token(tensor)
        events = self._recording["events"]
        made = {result for event in events if event["kind"] == "run" for result in event["results"]}
        made |= {event["result"] for event in events if event["kind"] == "copy"}
        return token not in made


def is_recording() -> bool:
    """Whether a call of a captured step is being recorded: nothing else may be submitted now."""
    return _Recording.active


def _token(tensor: Any) -> int | None:
    """Names the tensor's value; None when it has none: it is a view that is computed only when somebody looks at it."""
    import torch

    try:
        torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
        return buffers.cell_of(tensor).token
    except RuntimeError:
        return None


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


_ABSENT = object()


def _leaf_key(leaf: Any) -> Any:
    """What a replay takes for granted about a leaf of the arguments."""
    import torch

    if isinstance(leaf, torch.Tensor):
        return "tensor", str(leaf.dtype), tuple(leaf.shape), str(leaf.device), leaf.requires_grad
    return _capture_state.setting_key(leaf) if _capture_state.is_setting(leaf) else Same(leaf)


def _numbers(leaves: Sequence[Any]) -> dict[str, float]:
    """Arguments that are CPU tensors of one element, by name: PyTorch/XLA treats them like numbers of the program."""
    import torch

    return {
        f"argument {number}": leaf.item()
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.numel() == 1 and not leaf.is_complex()
    }


def _modes() -> tuple[tuple[str, Any], ...]:
    import torch

    return (
        ("gradient mode", torch.is_grad_enabled()),
        ("the default type", torch.get_default_dtype()),
        ("autocast", torch.is_autocast_enabled("xla") and str(torch.get_autocast_dtype("xla"))),
    )


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, tuple) and len(value) == 5 and value[0] == "tensor":
        return f"{value[1].removeprefix('torch.')}{list(value[2])} on {value[3]}" + (", trained" if value[4] else "")
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Same):
        return f"{value[0]}, written {value[1]} times"
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]} {value[1]}" if value[0] == "the same as" else repr(value[1])
    if isinstance(value, type):
        return value.__qualname__
    return f"{len(value)} of them" if isinstance(value, frozenset) else repr(value)
