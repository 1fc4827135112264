"""One way in which a step was captured, for calls of one kind: its recordings, their wiring, and its replay."""

from __future__ import annotations

import operator
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptpathways import native, programs
from ptpathways.frontend.capture import _numbers
from ptpathways.frontend.capture._bound_states import BoundStates, Stale
from ptpathways.frontend.capture._exclusive import Exclusive
from ptpathways.frontend.capture._gradients import Gradients
from ptpathways.frontend.capture._numbers import Numbers
from ptpathways.frontend.capture.objects._reachable import Surroundings
from ptpathways.frontend.capture.python._contents import Same
from ptpathways.frontend.capture.recording import _results, _watch
from ptpathways.frontend.capture.recording._effects import Effects
from ptpathways.frontend.capture.recording._outcome import Audits, Outcome
from ptpathways.frontend.loops import _step
from ptpathways.frontend.plans import _plan, _seeds, _wiring
from ptpathways.frontend.plans._wiring import (
    Again,
    Alias,
    Constant,
    Feed,
    Number,
    Option,
    Own,
    Rate,
    Result,
    Seed,
    State,
    Upload,
    Wiring,
)
from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.slices import _rng, _slice

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.capture.recording._step_arguments import Call


class Variant:
    """Recordings of one kind of call, and, once two of them agree, what replays them."""

    def __init__(self) -> None:
        self.wiring: Wiring | None = None
        self.functions: Sequence[native.Function] = ()
        """The computations of the wiring, once it is built."""
        self.recordings = 0
        """Since two have agreed."""
        self.reason = ""
        self.ready = False
        self.audits = Audits()
        self.renewed: list[tuple[str, torch.Tensor]] = []
        """Tensors by name that a replay writes over, where the function makes new ones."""
        self.used_up: list[tuple[str, torch.Tensor]] = []
        """Gradients by name that a replay takes away, and whose memory it uses for something else."""
        self.cleared: list[torch.Tensor] = []
        """Parameters whose gradients those are."""
        self.moved_ids: frozenset[int] = frozenset()
        """Those of ``renewed`` that stay the same objects, by id."""
        self.made: list[torch.Tensor] = []
        """Those that the call which was recorded last has made."""
        self.exclusive = Exclusive([])
        """The tensors that a replay writes over."""
        self._in_place = self._moved_names = frozenset[str]()
        self._raised: list[torch.Tensor] = []
        """What a call writes in place: autograd counts the versions of it."""
        self.own: dict[str, Any] = {}
        """Objects of the program's own that a replay returns, by name."""
        self.beside: list[tuple[str, torch.Tensor, int]] = []
        """Tensors by name that get the memory of a result, and the place of that: the function makes new ones, so a
        replay does not write into the memory that they had."""
        self.beside_ids: frozenset[int] = frozenset()
        """Those tensors, by id."""
        self._written: Mapping[str, Result] = {}
        self.states = BoundStates()
        self._feeds: dict[Any, int] = {}
        self._returned: dict[Result, int] = {}
        self._surroundings = Surroundings()
        self._flags: list[tuple[bool, bool]] = []
        """Of each of ``renewed`` whether it requires and retains a gradient, which a replay does not change."""
        self._gradients = Gradients()
        self._effects = Effects()
        self.granted: Any = None
        """What it takes for granted about the arguments."""
        self.sharing: frozenset[frozenset[str]] = frozenset()
        """What the calls that were recorded had found of ``_keys.SHARING``."""
        self.parts: dict[str, buffers.Part] = {}
        """Which parts of a memory the arguments among them were."""
        self.given_views: list[int] = []
        """Which of the arguments were views of tensors that others have: another trace may come of such."""
        self.used = 0
        """The number of the last call of its kind."""

    def worth(self) -> tuple[bool, int]:
        """Of two variants the lesser one is forgotten first."""
        return self.ready, self.used

    def add(self, wiring: Wiring, outcome: Outcome) -> bool:
        """Takes one more recording; whether it agrees with the last one, so that ``build`` may follow."""
        last, effects = self.wiring, self._effects
        self.restart(wiring, "")
        self._effects = outcome.effects
        if last is None:
            return False
        try:
            self.wiring = _wiring.merge(last, wiring)
            if effects != outcome.effects:
                raise _left(effects, outcome.effects)
        except _wiring.Different as difference:
            self.wiring = wiring
            self.reason = str(difference)
            return False
        self.recordings = 0
        return True

    def restart(self, wiring: Wiring, reason: str) -> None:
        """Takes a recording as the first one. ``reason``: why those before do not count."""
        self.recordings += 1
        self.wiring, self.reason, self.ready = wiring, reason, False

    def agree(self, wiring: Wiring, outcome: Outcome) -> bool:
        """Takes a recording of a call that could have been replayed; whether it can go on being so without a new
        program.

        Raises:
            Different: a replay would have done something else.
        """
        merged = _wiring.merge(self._wiring, wiring)
        if outcome.effects != self._effects:
            raise _left(self._effects, outcome.effects)
        same = (merged.ops, merged.written, merged.returned) == (
            self._wiring.ops,
            self._wiring.written,
            self._wiring.returned,
        )
        self.wiring = merged
        if same:
            self._settle(outcome)
        return same

    @property
    def _wiring(self) -> Wiring:
        assert self.wiring is not None
        return self.wiring

    def build(self, name: str, outcome: Outcome) -> None:
        """Registers the program and binds the state.

        Raises:
            Uncapturable: it cannot be replayed.
        """
        wiring = self._wiring
        session = _slice.current_session()
        lowered = _plan.lower(wiring, programs.hosts_of(session))
        with native.translated():
            program = session.register_program(
                name,
                lowered.plans,
                lowered.input_ports(),
                lowered.output_ports(),
                functions=outcome.recording["functions"],
            )
        self.functions = outcome.recording["functions"]
        self._feeds = {}
        states: dict[str, int] = {}
        values = outcome.recording["values"]
        inputs = [
            (*self._input(given.source, states), given.donated, values[given.token]["value"])
            for given in lowered.inputs
        ]
        names: dict[Result, list[str]] = {}
        self._written = {name: result for name, result in wiring.written.items() if name not in outcome.effects.beside}
        for state, result in self._written.items():
            names.setdefault(result, []).append(state)
        self._returned = {}
        outputs: list[tuple[list[int], bool, native.DeviceValue]] = []
        for result, _, token in lowered.outputs:
            wanted = result in wiring.returned
            places = [_place(states, state) for state in names.get(result, [])]
            outputs.append((places, wanted, values[token]["value"]))
            if wanted:
                _place(self._returned, result)
        with native.translated():
            self._replay = native.Replay(program, inputs, outputs, states=len(states), feeds=len(self._feeds))
        self.states = BoundStates(self._replay, states, self._written.keys())
        self._shapes = [outcome.shapes[result] for result in self._returned]
        self.numbers = Numbers(wiring, self._feeds)
        self._settle(outcome)

    def _settle(self, outcome: Outcome) -> None:
        """Goes on from what a recorded call has left behind."""
        self._tree = outcome.tree
        self._effects, self._in_place, self._moved_names = outcome.effects, outcome.in_place, outcome.moved
        self.numbers.settle(self._wiring, outcome)
        self._gradients.settle(outcome, self.states.names)
        self._others = outcome.others
        self._extras = dict(outcome.extras)
        self.states.forget()
        self.bind(outcome.surroundings)
        self.states.settle(outcome.ages)
        self.ready = True

    def own_ids(self) -> Collection[int]:
        """Those of ``own``."""
        return set(map(id, self.own.values())) if self.own else ()

    def owners(self) -> Iterator[tuple[int, torch.Tensor]]:
        """The ids of gradients that a replay gives to parameters, and those."""
        return ((id(gradient), parameter) for parameter, gradient in self._gradients.owners() if gradient is not None)

    def held(self) -> Iterator[Any]:
        """What this refers to, as often as it does, of the tensors that other steps may write over; more of others."""
        if not self.ready:
            return
        yield from self.made
        yield from self.states.held()
        yield from self._surroundings.held()
        yield from self._gradients.held()
        for named in (self._states_returned, self._extras):
            yield from named.values()
        yield from self._raised
        yield from (tensor for _, tensor, _ in self.beside)
        for name_and_tensor in (*self.renewed, *self.used_up):
            yield name_and_tensor[1]
        yield from self.exclusive.tensors

    def bind(self, surroundings: Surroundings) -> None:
        """Takes the state from where it is now.

        Raises:
            Stale: a tensor of that name is no longer there.
        """
        tensors = {**self._gradients.kept(surroundings.parameters), **self._extras, **surroundings.tensors}

        renewed = sorted(self._effects.renewed | self._gradients.added)
        self.renewed = [(name, tensors[name]) for name in renewed if name in tensors]
        self.moved_ids = frozenset(id(tensor) for name, tensor in self.renewed if name in self._moved_names)
        self._flags = [_flags_of(tensor) for _, tensor in self.renewed]
        self.used_up = [
            (name, tensors[name])
            for name in sorted(self._gradients.taken)
            if name in self.states and name in tensors and name not in self._written
        ]
        items = [item.of if isinstance(item, Alias) else item for item in self._wiring.returned]
        returned = [item.name for item in items if isinstance(item, State)]
        owned = [item.name for item in items if isinstance(item, Own)]
        wanted = [*self.states.names, *returned, *self._effects.beside]
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise Stale(f"{missing[0]} is no longer there")
        if owned:
            objects = _results.objects(surroundings)
            missing = [name for name in owned if name not in objects]
            if missing:
                raise Stale(f"{missing[0]} is no longer there")
            self.own = {name: objects[name] for name in owned}
        self._surroundings = replace(surroundings, tensors=dict(surroundings.tensors))
        self.numbers.bind(self._surroundings)
        self._surroundings.prepare()  # before it is counted who holds a tensor
        self._states_returned = {name: tensors[name] for name in returned}
        self.beside = [(name, tensors[name], place) for name, place in self._effects.beside.items()]
        self.beside_ids = frozenset(id(tensor) for _, tensor, _ in self.beside)
        self.states.take(tensors, self._effects.renewed)
        self._raised = [tensors[name] for name in sorted(self._in_place & tensors.keys())]
        over = [name for name in self.states.names if name in self._written]
        self.exclusive = Exclusive([*((name, tensors[name]) for name in over), *self.used_up])
        self.states.bind()
        self._gradients.bind(self._surroundings, tensors, self.states.names)
        self.cleared = [parameter for parameter, gradient in self._gradients.owners() if gradient is None]

    def holds(self) -> bool:
        """Whether everything is where ``bind`` found it."""
        return (
            self._surroundings.still_holds()
            and self._gradients.hold()
            and [_flags_of(tensor) for _, tensor in self.renewed] == self._flags
        )

    def others_hold(self) -> bool:
        """Whether what it used of the CPU beside its arguments is as it was."""
        return all(_watch.digest(tensor) == known for tensor, known in self._others)

    def fits(self, call: Call, traced: bool) -> bool:
        """Whether ``run`` would take the state as it is; not where a tensor has come to lie another way. And whether
        the call would be traced alike."""
        if buffers.part_from_bases(call.tensors().values()) != self.given_views:
            return False
        try:
            self.states.follow(traced)
            self._check_sharing(call)
            self._replay.check_states()
        except Stale:
            return False
        except native.NativeError as error:
            if error.code == "FAILED_PRECONDITION":
                return False
            raise native.translate(error) from error
        return True

    def _check_sharing(self, call: Call) -> None:
        """Raises Stale when other arguments and states have a value in common than when it was recorded, or an argument
        has the memory of what the step writes."""
        given = call.tensors()
        alike = frozenset[str]().union(*self.sharing)
        if alike:
            known = {**self._surroundings.tensors, **given}
            named = {name: known[name] for name in alike & known.keys()}
            then = {names.intersection(known) for names in self.sharing}
            if buffers.sharing({**named, **given}, given.keys()) != {names for names in then if len(names) > 1}:
                raise Stale("other tensors share one value than did")
            if self.parts != self.parts_among(given):
                raise Stale("an argument is another part of the memory of a tensor")
        for name, tensor in given.items():
            if name not in alike and buffers.storage_of(tensor) in self.states.memory:
                raise Stale(f"{name} has the memory of what the step writes")

    def parts_among(self, given: Mapping[str, torch.Tensor]) -> dict[str, buffers.Part]:
        """What ``parts`` would be if these were the arguments."""
        alike = frozenset[str]().union(*self.sharing)
        return {name: buffers.part_of(tensor) for name, tensor in given.items() if name in alike}

    def run(self, call: Call, rates: Mapping[str, float], traced: bool) -> Any:
        """One step, submitted; what it returns, whose values come later.

        Args:
            rates: what ``numbers.now`` gives, and the arguments.
            traced: whether operations were traced since the last step, so that any tensor may have been written.

        Raises:
            Stale: nothing has happened; bind or record again.
        """
        import torch

        wiring, leaves = self._wiring, call.leaves
        self.states.follow(traced)
        self._check_sharing(call)
        seeds = buffers.seeds(_rng.in_use())
        feeds = [self._feed(feed, leaves, rates, seeds) for feed in self._feeds]
        try:
            tokens = self._replay.run(feeds)
        except native.NativeError as error:
            if error.code == "FAILED_PRECONDITION":
                raise Stale(str(error)) from error
            raise native.translate(error) from error
        self.states.refresh()
        torch.autograd.graph.increment_version(self._raised)
        buffers.set_seeds({device: _seeds.seed_after(seed, wiring.cuts) for device, seed in seeds.items()})
        _step.count_cut()
        self._effects.apply(self._surroundings)
        self._gradients.leave()
        made = dict(zip(self._returned, buffers.adopt(tokens, self._shapes), strict=True)) if tokens else {}
        from torch.utils import _pytree as pytree

        returned: list[Any] = []
        for item in wiring.returned:
            returned.append(self._result(item, made, leaves, rates, returned))
        self._leave_beside(returned)
        return pytree.tree_unflatten(returned, self._tree)

    def _leave_beside(self, returned: Sequence[Any]) -> None:
        """Lets what the call leaves behind have the memory of what it returns."""
        for name, tensor, place in self.beside:
            tensor.data = returned[place].detach()
            if name in self.states:  # the next call reads it
                self.states.rebind(name, tensor)

    def _result(
        self,
        item: Any,
        made: Mapping[Result, torch.Tensor],
        leaves: Sequence[Any],
        rates: Mapping[str, float],
        before: Sequence[Any],
    ) -> Any:
        if isinstance(item, Result):
            return made[item]
        if isinstance(item, State):
            return self._states_returned[item.name]
        if isinstance(item, Alias):
            of = before[item.of] if isinstance(item.of, int) else self._result(item.of, made, leaves, rates, before)
            return of.detach()
        if isinstance(item, Again):
            return before[item.of]
        if isinstance(item, Feed):
            return leaves[item.leaf]
        if isinstance(item, Own):
            return self.own[item.name]
        if isinstance(item, Option):
            return item.compute(rates)
        return item.of if isinstance(item, Same) else item

    def _feed(self, feed: Any, leaves: Sequence[Any], rates: Mapping[str, float], seeds: Mapping[int, int]) -> Any:
        import numpy as np

        if isinstance(feed, Feed):
            return self._leaf(feed, leaves)
        if isinstance(feed, Rate):
            given = _numbers.encoded(feed, rates)
            if given is None:
                raise Stale(f"{feed.expressions[0]} is not what it was")
            return np.frombuffer(given, np.uint8)
        seed = (feed.multiplier * seeds[feed.device] + feed.addend) & _seeds.MASK
        return np.frombuffer(struct.pack("<Q", seed), np.uint8)

    def _leaf(self, feed: Feed, leaves: Sequence[Any]) -> Any:
        """A value on a device, or the bytes of a tensor of the CPU."""
        import numpy as np

        leaf = leaves[feed.leaf]
        if leaf.device.type != "cpu":
            value = buffers.cell_of(leaf).value
            if value is None:
                raise Stale(f"argument {feed.leaf} of the step was given up")
            return value
        found = buffers.dense_bytes(leaf)
        for other in feed.alike:
            if leaves[other] is not leaf and not np.array_equal(found, buffers.dense_bytes(leaves[other])):
                raise Stale(f"arguments {feed.leaf} and {other} of the step were always equal, and are no longer")
        return found

    def _input(self, source: Any, states: dict[str, int]) -> tuple[str, int]:
        if isinstance(source, State):
            return "state", _place(states, source.name)
        if isinstance(source, Upload):
            source = source.feed() or source
        if isinstance(source, Feed | Rate | Seed):
            return "feed", _place(self._feeds, source)
        assert isinstance(source, Number | Upload | Constant)
        return "constant", 0


_flags_of = operator.attrgetter("requires_grad", "retains_grad")


def _left(first: Effects, then: Effects) -> _wiring.Different:
    return _wiring.Different(f"it left {first.text()} behind at first and {then.text()} then")


def _place(places: dict[Any, int], key: Any) -> int:
    """The number of ``key``, a new one if it has none yet."""
    return places.setdefault(key, len(places))
