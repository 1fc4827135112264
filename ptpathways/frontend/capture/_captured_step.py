"""Captured training steps: traced a few times, then replayed without any tracing (paper 4.2).

A step is a function that runs forward and backward passes and an optimizer on ``pw.device()``. Its first calls are
traced as usual, and the plugin notes what PyTorch/XLA submits. When two calls have done the same, the third is one
message per host: parameters and optimizer state are read from the tensors' buffers, and the new values are put into
the same buffers, so the tensors stay the objects they are.
"""

from __future__ import annotations

import copy
import difflib
import functools
import operator
import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ptpathways import core, programs
from ptpathways.frontend.base import _recorded, _state
from ptpathways.frontend.capture import _compile_for, _drawn, _keys
from ptpathways.frontend.capture._bound_states import Stale
from ptpathways.frontend.capture._holders import Holders
from ptpathways.frontend.capture._keys import Key
from ptpathways.frontend.capture._kinds import KINDS_WITHOUT_REPLAY, Kinds
from ptpathways.frontend.capture._variant import Variant
from ptpathways.frontend.capture.objects import _advice, _reachable
from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.python import _code
from ptpathways.frontend.capture.recording import _probe, _watch
from ptpathways.frontend.capture.recording._outcome import Outcome
from ptpathways.frontend.capture.recording._recording import Recording
from ptpathways.frontend.capture.recording._step_arguments import (
    WARNINGS,
    Call,
    Rules,
    numbers,
    tensor_key,
)
from ptpathways.frontend.diagnostics import _threads
from ptpathways.frontend.loops import _optimizer_lists, _optimizer_options, _step
from ptpathways.frontend.plans import _seeds
from ptpathways.frontend.plans._wiring import Different, Idle, Uncapturable
from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.slices import _rng

RECORDINGS_MAX = 6
BLOCKED_MAX = 2
"""Calls in a row that did what a replay cannot do: the first ones make the optimizer's state."""
TURNS_MAX = 8
"""Calls in a row that found a value that Python had read to be another one."""

_ASKED_BY_REPLAYS = ("how argument", _keys.SHARING)
"""Parts of a key of which a replay itself finds out whether they still hold."""
_TRACED = "This call was traced and has left behind what it should, but its result is lost"


class CaptureWarning(UserWarning):
    """Warns that a captured step is traced again or cannot be captured, and why. Given once per reason."""


class CapturedStep:
    """A training step that is recorded and then replayed. Made by ``program`` or ``prepare(capture=True)``.

    A call returns what the function returns, with tensors that have no gradient history and whose values may not exist
    yet. It leaves behind what the function would: tensors, gradients, Python numbers and booleans. A function with
    other effects (a list that grows, a counter without end) is traced at every call, and
    ``CaptureWarning`` has the reason. See ``docs/capture.md``.

    Attributes:
        name: name in warnings and errors.
    """

    def __init__(self, function: Callable[..., Any], *, name: str = "", ignore: Collection[str] = ()) -> None:
        """Makes a captured step, as ``program`` does.

        Args:
            ignore: names of Python numbers, strings and booleans, as in its warnings (``self.steps``), that do not
                affect what it computes: guards do not check them, and replays do not change them.
        """
        functools.update_wrapper(self, function, updated=())
        self.name = name or getattr(function, "__name__", "step")
        self._function = function
        self._ignored = frozenset(ignore)
        self._not_met = set(self._ignored)  # names of them that no walk has met
        self._kinds = Kinds()
        self._last: tuple[Key, Variant, Any] | None = None
        self._connection: Any = None  # whose cluster the variants belong to
        self._rules = Rules(_code.file_of(function))
        self._lazy = False
        self._clean = -1
        self._blocked = 0
        self._turns = 0  # calls in a row that could not be replayed because of a value that had changed
        self._checks = False  # whether the call that is recorded could have been replayed
        self._capturable: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers that were changed for it
        self._said: set[str] = set()
        self._why = ""  # what was said last
        self._devices: set[int] = set()  # on which it computes, as far as is known
        self._places: dict[int, tuple[int, ...]] = {}  # the cluster's devices of each, at the last call
        self._holders = Holders(lambda: list(self._kinds.variants.values()))
        self.replays = 0
        """Number of calls that were replayed."""
        self.audits = 0
        """Number of calls that were traced although they could have been replayed, to compare the two."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submits one step and returns at once.

        Raises:
            CaptureMismatch: an audit found that earlier replays did something else than the function does.
            ConcurrentUse: another thread computes on a device of the step.
            NotInitialized: before ``init``.
            Exception: whatever the function raises.
        """
        if _state.runtime().connection is None:
            return self._function(*args, **kwargs)
        with Recording.turn:
            if _recorded.is_recording():
                return self._function(*args, **kwargs)
            if self._connection is not _state.runtime().connection:  # the process has joined another cluster
                self._connection = _state.runtime().connection
                self._forget()
            self._follow_moves()
            _threads.claim(self._devices)
            try:
                if self._lazy:
                    return self._run_lazily(args, kwargs)
                if observed := _watch.observed():
                    self._say(f"is traced while {observed}, which sees nothing of a replay")
                    return self._run_lazily(args, kwargs)
                self._holders.begin()
                drawn, cuts = _drawn.between(), _step.cut_count()
                result = self._step(args, kwargs)
                if drawn:
                    cuts = _step.cut_count() - cuts
                    buffers.set_seeds({device: _seeds.seed_after(seed, cuts) for device, seed in drawn.items()})
                self._holders.end(self._holders.given(result))
                return result
            finally:
                self._holders.close()
                _threads.release(self._devices)

    def compile_for(self, target: str, *args: Any, plugin: str = "", **kwargs: Any) -> programs.CompiledFor:
        """Compiles a captured call for chips that need not be here, as ``ptpathways compile`` does; nothing runs.

        Args:
            target: chip and shape: ``"h200:2x8"`` is 2 hosts of 8 GPUs, ``"v5e:4x4"`` a torus of 16 TPUs.
            args: example arguments, as are ``kwargs``; only their types matter. A method's object is the first one.
                Without any, the step must be captured for one kind of arguments.
            plugin: path of the PJRT plugin that compiles; default: the best that is installed.

        Returns:
            Peak memory per device in bytes, what takes it, and an estimated time of a call in seconds. Computations
            that the compiler refuses are reported there (``verdict``), not raised.

        Raises:
            InvalidProgram: the step is not captured, and why; or not for such arguments.
            InvalidOption: no such target, or one with fewer devices than a slice of the step.
            PluginNotFound: the plugin that compiles for it is not installed.
            CompileFailed: the compiler ended without an answer.
            NotInitialized, SliceUnavailable: before ``init``, or a slice of the step was released.
        """
        return programs.compile_apart(self._bundle(args, kwargs), target, plugin)

    def save(self, path: str | Path, *args: Any, **kwargs: Any) -> Path:
        """Writes a captured call into one file, without values, for ``ptpathways compile`` and ``replay``.

        Args:
            path: the file to write.
            args: as for ``compile_for``, as are ``kwargs``.

        Returns:
            The path of the file.

        Raises:
            InvalidProgram, NotInitialized, SliceUnavailable: as ``compile_for``.
            TypeError: ``path`` is not a path.
        """
        target = core.path_text(path)
        return self._bundle(args, kwargs).save(target)

    def _bundle(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> programs.Bundle:
        with Recording.turn:
            here = self._connection is _state.runtime().connection
            call = Call(args, kwargs, self._rules.copy())
            known = list(self._kinds.variants.values()) if here else []
            why = self._why if here or self._lazy else ""
            return _compile_for.bundle(self.name, self._function, known, call, why, self._lazy)

    def __deepcopy__(self, memo: dict[int, Any]) -> CapturedStep:
        """That of the copied function: of a method, of the copied object. It is captured anew."""
        function = copy.deepcopy(self._function, memo)
        return self if function is self._function else CapturedStep(function, name=self.name, ignore=self._ignored)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled as the function would be."""
        try:
            named = operator.attrgetter(self._function.__qualname__)(sys.modules[self._function.__module__])
        except (AttributeError, KeyError):
            named = None
        make = functools.partial(CapturedStep, name=self.name, ignore=self._ignored)
        return self._function.__qualname__ if named is self else (make, (self._function,))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method of a class: the step of an instance, whose objects are followed as those of its arguments."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        ready = sum(variant.ready for variant in self._kinds.variants.values())
        return f"<captured step {self.name}, {ready} variants, {self.replays} replays>"

    def _step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = Call(args, kwargs, self._rules)
        self._kinds.calls += 1
        self._checks = False
        buffers.take_writes(call.tensors().values())  # a view of another tensor has no value of its own before
        traced = self._submit_pending()
        if variable := self._rules.variables.changed():
            self._forget()
            self._count_turn(f"{variable}, which functions of an installed package use, has changed")
            if self._lazy:
                return self._run_lazily(args, kwargs)
        for key, variant in self._candidates(call):
            if variant.holds():
                moved = traced or self._last is None or variant is not self._last[1]
                self._last = (key, variant, call.granted)
                done, result = self._replay(variant, call, moved)
                if done:
                    return result
                if self._lazy:
                    return self._run_lazily(args, kwargs)
                break
        while True:
            surroundings = call.walk(self._function)
            self._not_met -= surroundings.ignore(self._ignored)
            optimizers = [one for one in surroundings.optimizers.values() if _optimizer_lists.is_on_devices(one)]
            listed = [one for one in optimizers if _optimizer_lists.take_lists(one)]
            changed = [one for one in optimizers if _reachable.make_capturable(one)]
            self._capturable.update(changed)
            if not changed and not listed:
                break
            self._submit_pending(always=True)
        pair = buffers.on_one_memory(surroundings.written_by_training())
        if pair is not None:
            self._give_up(
                f"{pair[0]} and {pair[1]} share memory (they were assigned from one tensor): to write one may be to "
                "write both, which a replay would not do; assign a clone() to each"
            )
            return self._run_lazily(args, kwargs)
        call.look()
        key = _keys.key_of(call, surroundings)
        mismatch = self._mismatch(key, surroundings)
        if mismatch is not None:
            self._run_lazily(args, kwargs)  # what it leaves behind is right
            raise mismatch
        found = self._kinds.variants.get(key)
        if found is not None and found.ready:
            self._holders.meet(found, surroundings)
            try:
                found.bind(surroundings)
            except Stale as reason:
                found.ready = False
                self._turns += 1
                if self._turns > 1:  # in a row
                    self._say(f"is traced when {reason}")
            else:
                self._holders.bound()
                self._last = (key, found, call.granted)
                done, result = self._replay(found, call, traced)
                if done:
                    return result
                if self._lazy:
                    return self._run_lazily(args, kwargs)
        if found is None:
            kinds = self._kinds
            why = kinds.too_many(key, self.replays)
            if why:
                self._give_up(_advice.about_optimizers(why, surroundings.optimizers))
                return self._run_lazily(args, kwargs)
            if kinds.met == KINDS_WITHOUT_REPLAY and not self.replays:
                why = _advice.about_optimizers(kinds.why_so_many(key), surroundings.optimizers)
                self._say(f"has not been replayed yet: {why}")
            kinds.make_room()
            # Of the filters of warnings nothing is said: it could be an error by them, in the place of the call.
            if any(variant.ready for variant in kinds.variants.values()) and kinds.nearest(key)[0] != [WARNINGS]:
                self._say(f"is traced again: {_keys.difference_text(*kinds.nearest(key))}")
            found = kinds.variants[key] = Variant()
        return self._record(found, key, call, surroundings)

    def _turn(self, variant: Variant, why: str) -> None:
        """A variant is no longer what a call does. When that happens at every call, capturing only costs time."""
        variant.ready = False
        self._count_turn(why)

    def _count_turn(self, why: str) -> None:
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._give_up(f"at {TURNS_MAX} calls in a row, {why}")
        else:
            self._say(f"is traced again: {why}")

    def _follow_moves(self) -> None:
        """Recordings say what was done on the devices that slices had; after a move they say nothing."""
        slices = _state.runtime().slices
        bound = slices.bound()
        places = {index: slices.devices_of(index) for index in self._devices if index in bound}
        if any(places.get(index) != devices for index, devices in self._places.items()):
            if self._kinds.variants:
                self._say("is traced again: a slice that it computes on was moved to other devices")
            self._forget()
        self._places = places

    def _forget(self) -> None:
        self._kinds.variants.clear()
        self._holders.clear()
        self._last = None

    def _mismatch(self, key: Key, surroundings: Surroundings) -> core.CaptureMismatch | None:
        """An audit has looked at everything again: what guards had taken for the same must be so. The error if not."""
        if self._last is None or not (self._checks and self._last[1].audits.due()):
            return None
        old, new = _keys.named(self._last[0]), _keys.named(key)
        gradients = {f"{name}.grad" for name in surroundings.parameters}  # of which replays ask those that they use
        differing = (name for name in _keys.differing(old, new) if name not in gradients)
        missed = [name for name in differing if not name.startswith(_ASKED_BY_REPLAYS)]
        if not missed:
            return None
        difference = _keys.difference_text(missed, old, new)
        replays = self._last[1].audits.replays
        self._give_up(f"an audit has found what the checks before replays do not see: {difference}")
        return core.CaptureMismatch(
            f"step {self.name!r} was replayed {replays} times since it was last checked, and meanwhile this had "
            f"changed: {difference}. What those replays computed may be wrong. {_TRACED}; leave the step uncaptured, "
            "or make that an argument"
        )

    def _candidates(self, call: Call) -> list[tuple[Key, Variant]]:
        """The variants that may be replayed without a new look at everything, the likeliest first."""
        if self._last is None:
            return []
        last, variant, known = self._last
        found = [(last, variant)] if known == call.granted and variant.ready else []
        return found + self._kinds.others(variant, call.granted)

    def _replay(self, variant: Variant, call: Call, traced: bool) -> tuple[bool, Any]:
        """Whether it could be replayed, and what that returned."""
        self._checks = False
        variant.used = self._kinds.calls
        rates = variant.numbers.now() | numbers(call.leaves)
        missing = variant.numbers.missing(rates)
        if missing:
            self._say(f"is traced again: {missing} is no number of that kind any more")
            return False, None
        if variant.numbers.has_baked(rates):
            return False, None
        parted = variant.numbers.parted(rates)
        if parted:
            self._say(f"is traced again: {' and '.join(parted[:3])} were always equal, and are no longer")
            return False, None
        changed = variant.numbers.changed(rates)
        if changed:
            name, then = changed
            self._say(f"is traced again: {name} changed ({then} -> {rates[name]})")
            return False, None
        turned = variant.numbers.turned(rates)
        if turned:
            self._turn(variant, turned)
            return False, None
        if not variant.others_hold():
            self._turn(variant, "a tensor of the CPU that it uses was written")
            return False, None
        self._checks = not variant.numbers.coincide(rates)  # from here on the function would do what a replay does
        name = variant.exclusive.shared()
        if name:
            self._say(
                f"is traced when another tensor has been given the value of {name} without a copy, "
                "because a replay would write over it for both; give it a clone()"
            )
            variant.ready = False
            return True, self._run_lazily(call.args, call.kwargs)  # which parts them, and is like no other call
        if self._holders.part(variant):
            traced = self._submit_pending(always=True)
        held = self._holders.held(variant)
        if held:
            self._say(f"is traced {held}")
            self._checks = self._checks and not variant.moved_ids and variant.fits(call, traced)  # else of another kind
            return False, None
        if variant.audits.due() and self._checks:
            self._checks = variant.fits(call, traced)
            return False, None
        if variant.states.loose:
            self._holders.bound()  # it takes the memory again that it has let go
        started = time.perf_counter()
        try:
            result = variant.run(call, rates, traced)
        except Stale:
            self._checks = False
            return False, None
        variant.audits.replays += 1
        variant.audits.seconds += time.perf_counter() - started
        self._clean = buffers.least_created()
        self._holders.leave((tensor for _, tensor in variant.renewed), variant.own_ids(), variant.moved_ids)
        self.replays += 1
        self._turns = self._blocked = 0
        return True, result

    def _record(self, variant: Variant, key: Key, call: Call, surroundings: Surroundings) -> Any:
        """Traces a call, and learns from it. A variant that could have replayed it must do the same: an audit."""
        import torch

        started = time.perf_counter()
        variant.used = self._kinds.calls
        self._devices |= {
            tensor.device.index or 0
            for tensor in (*surroundings.tensors.values(), *call.leaves)
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "xla"
        }
        _threads.claim(self._devices)
        for other in self._kinds.variants.values():  # which are bound again before they run
            other.states.let_go()
        self._holders.record()
        self._rules.variables.begin()
        recording = Recording(self._function, surroundings, call, self._devices)
        try:
            result = recording.run()
            _rng.note_cut()
            variant.given_views = recording.views
            self._learn(variant, key, call, recording, result, started)
            if variant.ready and self._not_met:
                self._say_unknown(min(self._not_met), surroundings.settings)
            return _probe.without(result)
        finally:
            recording.probes.strip()

    def _learn(self, variant: Variant, key: Key, call: Call, recording: Recording, result: Any, started: float) -> None:
        """Learns from a recorded call, and what it returned."""
        self._holders.recorded()
        self._clean = buffers.least_created()
        if recording.draws.moved and not recording.draws.certain:
            self._say(
                f"was traced while random numbers were drawn from {' and '.join(recording.draws.moved)}, by it or by "
                "another thread; if by it, a replay repeats what Python made of them"
            )
        if recording.learn(self._rules):  # all that was known looked at the arguments in another way
            self._kinds.variants.clear()
            self._last = None
            return
        checks = variant.ready and self._checks and not variant.states.moved
        audited = variant.ready and variant.audits.due()
        try:
            outcome, wiring = recording.outcome(result)
            variant.made = outcome.renewed()
            moved = frozenset(id(outcome.surroundings.tensors[name]) for name in outcome.moved)
            self._holders.leave(variant.made, recording.own, moved)
            self._blocked = 0
            self._kinds.changing |= set(outcome.effects.settings)
            altered = self._altered(key, outcome)
            if altered:
                # The next call is of another kind, whatever guards say, and a replay would write into a tensor of
                # another shape.
                self._say(f"is traced when {altered}")
                variant.ready, self._last = False, None
                return
            rebuilt = not variant.agree(wiring, outcome) if variant.ready else variant.add(wiring, outcome)
            if rebuilt:
                variant.build(self.name, outcome)
            if variant.ready and recording.calls.says:
                self._say(f"{recording.calls.says}, and replays do not")
            if variant.ready:
                variant.granted, variant.sharing = call.granted, _keys.named(key)[_keys.SHARING]
                variant.parts = variant.parts_among(call.tensors())
                self._last = (key, variant, call.granted)
        except (Idle, Stale) as reason:
            self._say(f"is traced when {reason}")
            variant.ready = False
        except Uncapturable as reason:
            self._blocked += 1
            variant.ready = False
            if not reason.passing or self._blocked > BLOCKED_MAX:
                since = variant.audits.replays if checks else 0  # when it may have begun to do that
                told = f"; it was replayed {since} times since it was last checked, and may have done so then"
                self._give_up(f"{reason}{told if since else ''}")
        except Different as difference:
            variant.ready = False
            if checks:
                self._give_up(f"an audit has found that replays do something else: {difference}")
                raise core.CaptureMismatch(
                    f"step {self.name!r} was replayed {variant.audits.replays} times since it was last checked, and "
                    f"traced now it did something else: {difference}. What those replays computed may be wrong. "
                    f"{_TRACED}. The step depends on something that captured steps do not see; leave it uncaptured, or "
                    "make that an argument"
                ) from None
            variant.restart(wiring, str(difference))
        else:
            if audited:
                self.audits += 1
                variant.audits.done(time.perf_counter() - started)
            if not variant.ready and variant.recordings >= RECORDINGS_MAX:
                self._give_up(recording.outer.reason or variant.reason)

    def _altered(self, key: Key, outcome: Outcome) -> str:
        """Which tensor, itself or another one in its place, was of another shape, type or device before the call, or
        required a gradient when it does not after it, and what to do; empty if none was."""
        before = _keys.named(key)
        for name, tensor in outcome.surroundings.tensors.items():
            then, now = before.get(name), tensor_key(tensor)
            if not isinstance(then, tuple) or then[:1] != now[:1]:
                continue
            if then[1:4] != now[1:4]:
                kinds = zip(("type", "shape", "device"), then[1:4], now[1:4], strict=True)
                kind = next(what for what, old, new in kinds if old != new)
                return (
                    f"{name} is of another {kind} than what it leaves there; keep one {kind}, or return the tensor and "
                    "pass it to the next call"
                )
            if then[4] != now[4] and name in outcome.effects.renewed:
                return (
                    f"{name} {'has a' if then[4] else 'has no'} gradient history, and what it leaves there "
                    f"{'has one' if now[4] else 'has none'}; keep it without (detach()), or, where spectral_norm or "
                    "weight_norm leaves it, use that of torch.nn.utils.parametrizations"
                )
        retaining = sorted(before[_keys.RETAINING] & outcome.effects.renewed)
        if retaining:
            return f"{retaining[0]} retains its gradient, and what it leaves there does not; keep it without (detach())"
        return ""

    def _say_unknown(self, name: str, settings: Collection[str]) -> None:
        """Of a name to be ignored."""
        known = [one for one in settings if not one.startswith("torch.")]
        near = difflib.get_close_matches(name, known, 3, 0.3) or known[:3]
        self._say(
            f"is to ignore {name!r}, and reaches no number, text or switch of that name; those that it reaches are "
            f"{', '.join(map(repr, near)) or 'none'}" + (", ..." if len(known) > len(near) else "")
        )

    def _run_lazily(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cuts = _step.cut_count()
        result = self._function(*args, **kwargs)
        if _step.cut_count() == cuts:
            _step.step()
        return result

    def _submit_pending(self, always: bool = False) -> bool:
        """Lets what was traced outside the step read the state before the step replaces it; whether there was any."""
        if not always and buffers.most_created() == self._clean:
            return False
        buffers.submit_pending()
        self._clean = buffers.least_created()
        return True

    def _give_up(self, reason: str) -> None:
        self._lazy = True
        self._forget()
        _optimizer_options.count_on_the_client(list(self._capturable))
        self._capturable.clear()
        self._say(f"is not captured, and traced at every call: {reason}")

    def _say(self, text: str) -> None:
        self._why = text
        if text in self._said:
            return
        self._said.add(text)
        warnings.warn_explicit(f"step {self.name!r} {text}", CaptureWarning, *_code.place_of(self._function))
