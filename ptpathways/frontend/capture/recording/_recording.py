"""One traced call of a captured step: its arguments, and everything that is noted before and after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ptpathways import native
from ptpathways.frontend.base import _batch_tree, _recorded
from ptpathways.frontend.capture.objects import _calls
from ptpathways.frontend.capture.objects._reachable import Surroundings, Watched
from ptpathways.frontend.capture.objects._walk_mentioned import attribute_names
from ptpathways.frontend.capture.python import _contents, _whose
from ptpathways.frontend.capture.recording import _probe, _results, _watch
from ptpathways.frontend.capture.recording._argument_tree import Arguments
from ptpathways.frontend.capture.recording._cpu_draws import Draws, unseen
from ptpathways.frontend.capture.recording._effects import Effects, effects, moved
from ptpathways.frontend.capture.recording._outcome import Outcome
from ptpathways.frontend.capture.recording._outer_graphs import OuterGraphs
from ptpathways.frontend.capture.recording._step_arguments import (
    WARNINGS,
    Call,
    Rules,
    modes,
    numbers,
    tensor_key,
    text_of,
)
from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.loops import _compile, _step
from ptpathways.frontend.plans import _wiring
from ptpathways.frontend.plans._wiring import Alias, Feed, Observed, Result, Source, State, Uncapturable
from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.slices import _rng


class Recording:
    """One traced call of a step, and everything that has to be noted before and after it."""

    turn = threading.RLock()
    """Calls of captured steps take turns, whatever their threads: a recording notes all that the process submits."""

    def __init__(
        self, function: Callable[..., Any], surroundings: Surroundings, call: Call, devices: Collection[int]
    ) -> None:
        self._function = function
        self._surroundings = surroundings
        self._call = call
        self._devices = devices
        self._args, self._kwargs, self._leaves = call.args, call.kwargs, call.leaves
        self.draws = Draws()
        self.seen = _watch.Seen()
        self.probes = _probe.Log()
        self.own: dict[int, str] = {}
        """The names of the program's own objects that it could reach after the call, by id."""
        self.calls = _calls.Calls(surroundings, function)
        arguments = {f"argument {number}": leaf for number, leaf in enumerate(call.leaves)}
        self.outer = OuterGraphs(arguments | surroundings.tensors)

    def run(self) -> Any:
        """Calls the function and submits all of it."""
        import torch

        self._before_ids = {id(tensor): tensor for tensor in buffers.live_tensors(self._devices)}
        buffers.part_from_bases(self._surroundings.tensors.values())  # as replays leave them
        self.views = buffers.part_from_bases(self._call.tensors().values())
        given = self._call.tensors().values()
        for tensor in (*self._surroundings.tensors.values(), *given):
            if not _views.is_view(tensor):
                buffers.count_as_written(tensor)
        buffers.take_writes((*self._before_ids.values(), *given))  # else views would be computed with the step
        buffers.submit_pending()
        self._before: dict[int, Source] = {}
        self._noted: set[int] = set()
        self._digests: dict[int, int] = {}
        self._versions: dict[int, int] = {}
        for number, leaf in enumerate(self._leaves):
            if isinstance(leaf, torch.Tensor) and number not in self._call.state:
                if leaf.device.type == "xla":
                    self._note(leaf, Feed(number))
                elif _batch_tree.is_host_tensor(leaf):
                    self._versions[number] = leaf._version
                    if leaf.dim() > 0:  # others are numbers to PyTorch/XLA
                        self._digests[number] = _watch.digest(leaf)
        self._sharing: dict[int, list[str]] = {}
        for name, tensor in self._surroundings.tensors.items():
            token = self._note(tensor, State(name))
            if token is not None:
                self._sharing.setdefault(token, []).append(name)
        known = {id(tensor) for tensor in self._surroundings.tensors.values()} | {id(leaf) for leaf in self._leaves}
        self._extras = {
            f"the tensor {text_of(tensor_key(tensor))} at {identity:#x}": tensor
            for identity, tensor in self._before_ids.items()
            if identity not in known
        }
        self._alias_of: dict[str, str] = {}
        for name, tensor in self._extras.items():
            token = self._note(tensor, State(name))
            if token in self._sharing:
                self._alias_of[name] = self._sharing[token][0]
        self._found = self._surroundings.with_gradient()
        self._required = self._surroundings.required()
        states = {id(tensor): tensor for tensor in self._surroundings.tensors.values()} | self._before_ids
        self._began = [
            (tensor, 0 if tensor.is_inference() else tensor._version, buffers.storage_of(tensor))
            for tensor in states.values()
        ]
        self._memory = frozenset(place for _, _, place in self._began)
        named = self._surroundings.tensors
        self._ages = dict(zip(named, buffers.ages(named.values()), strict=True))
        self._seeds = buffers.seeds(_rng.in_use())
        self._rates = self._surroundings.rates() | numbers(self._leaves)
        cuts = _step.cut_count()
        native.start_recording()
        try:
            with _recorded.recording():
                result = self._call_watched(cuts)
        finally:
            self._recording = native.stop_recording()
        self._cuts = _step.cut_count() - cuts
        return result

    def _call_watched(self, cuts: int) -> Any:
        """Calls the function and submits what it has traced, if it has not cut the trace itself since ``cuts``."""
        import torch

        with (
            _compile.as_written(),
            self.draws,
            unseen(self.seen.note_generator),
            _watch.watch(self._leaves, self.seen),
            _probe.probing(self._surroundings, self.probes, _whose.homes(self._function)),
            torch.autograd.set_multithreading_enabled(False),
            self.outer,
            self.calls,
        ):
            result = self._function(*self._args, **self._kwargs)
        self._modes = modes()
        # As autograd has been told; writes without a version, such as batch normalisation's, it does not miss.
        began = [one for one in self._began if not one[0].is_inference()]
        self._written = {id(tensor) for tensor, version, _ in began if tensor._version != version}
        self._moved = {id(tensor) for tensor, _, place in self._began if buffers.storage_of(tensor) != place}
        for leaf in _results.flatten(result)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "xla":
                torch._sync(leaf)  # type: ignore[attr-defined,no-untyped-call]  # a view of something written
        if _step.cut_count() == cuts:
            _step.submit()
        else:
            buffers.submit_pending()
        return result

    def _note(self, tensor: Any, source: Source) -> int | None:
        token = buffers.token_of(tensor)
        if token is not None:
            self._before.setdefault(token, source)
            self._noted.add(id(tensor))
        return token

    def outcome(self, result: Any) -> tuple[Outcome, _wiring.Wiring]:
        """What has to be known of the call.

        Raises:
            Uncapturable: it cannot be replayed.
        """
        self._check_repeatable()
        after, found, repeating = self._left_behind()
        self._check_arguments()
        self._check_gradients(after)
        # Of another memory (``p.data = ...``): whoever has the former one keeps its values, and a replay writes there.
        moved = frozenset(name for name, tensor in after.tensors.items() if id(tensor) in self._moved)
        found.renewed |= moved
        left = {name: after.tensors[name] for name in sorted(found.renewed & after.tensors.keys())}
        self._check_memory(left)
        _results.check_parts(left, repeating)
        names, extras = self._values(after)
        gone = {
            name: tensor
            for name, tensor in self._surroundings.tensors.items()
            if name.endswith(".grad") and name not in names
        }
        self.own = {id(thing): name for name, thing in reversed(_results.objects(after).items())}
        returned, tree, containers = _results.flatten(result, self.own)
        items = self._classify(returned, containers, after, found, moved, gone)
        kept_extras: set[str] = set()
        for item in items:
            state = item.of if isinstance(item, Alias) else item
            if not isinstance(state, State) or state.name in after.tensors:
                continue
            if state.name in gone:  # it is written, too, not just used up
                token = buffers.token_of(gone[state.name])
                if token is not None:
                    names[state.name] = token
            else:
                kept_extras.add(state.name)
        wiring = self._wire(names, items)
        self._check_history(wiring, after, returned, left)
        self._check_sharing(names)
        self._check_own_slices(wiring, [*after.tensors.values(), *self._leaves, *returned])
        self._check_nothing_kept(wiring, after, returned)
        used = {source.name for op in wiring.ops for source in op.arguments if isinstance(source, State)}
        extras = {name: tensor for name, tensor in extras.items() if name in used or name in wiring.written}
        extras |= {name: self._extras[name] for name in kept_extras}
        shapes = {
            where: buffers.shape_of(item)
            for where, item in zip(wiring.returned, returned, strict=True)
            if isinstance(where, Result)
        }
        states = {**after.tensors, **extras, **gone}
        made = Outcome(
            self._recording,
            after,
            extras,
            gone,
            frozenset(name for name, tensor in states.items() if id(tensor) in self._written),
            moved,
            returned,
            tree,
            self._found,
            self._required,
            shapes,
            found,
            self.probes,
            self.seen.others,
            self._ages,
        )
        return made, wiring

    def _left_behind(self) -> tuple[Surroundings, Effects, Collection[str]]:
        """What can be reached after the call, what the call has changed of that, and which tensors repeat elements."""
        after = self._call.walk(self._function)
        after.ignore(self._surroundings.ignored)
        repeating = {name for name, tensor in after.tensors.items() if _views.repeats(tensor)}
        buffers.part_from_bases(after.tensors.values())  # before somebody else gets views of them
        found = effects(self._surroundings, after, self._rates)
        for name in found.settings:  # a replay begins with what this call began with
            after.settings[name] = self._surroundings.settings[name]
        began = {id(one.of): one for one in self._surroundings.sequences}
        after.sequences = [_as_it_began(one, began.get(id(one.of), one), found) for one in after.sequences]
        return after, found, repeating

    def _values(self, after: Surroundings) -> tuple[dict[str, int], dict[str, Any]]:
        """The tokens of values after the call, by name, and the further tensors among them."""
        names: dict[str, int] = {}
        extras = {}
        for name, tensor in after.tensors.items():
            token = buffers.token_of(tensor)
            if token is None:
                raise Uncapturable(f"{name} is a view of a tensor that it writes; use the tensor itself")
            names[name] = token
        for name, tensor in self._extras.items():
            noted = buffers.token_of(tensor) if id(tensor) in self._noted else None
            # One that is an alias of the state, such as from state_dict(), follows what a replay does to that.
            if noted is not None and (name not in self._alias_of or names.get(self._alias_of[name]) != noted):
                extras[name] = tensor
                names[name] = noted
        return names, extras

    def _classify(
        self,
        returned: Sequence[Any],
        containers: Sequence[Any],
        after: Surroundings,
        found: Effects,
        moved: Collection[str],
        gone: Mapping[str, Any],
    ) -> list[Any]:
        """What each leaf of the result is, for the wiring; notes in ``found`` what shares memory with one."""
        noted = {name: tensor for name, tensor in self._extras.items() if id(tensor) in self._noted}
        known = _results.Known(
            {**after.tensors, **noted, **gone},
            found.renewed | {f"{name}.grad" for name in after.with_gradient() - self._found},
            moved,
            self._leaves,
            self._call.containers(),
            self.own,
            self._memory,
        )
        items, found.beside = _results.classify(returned, containers, known)
        for name in found.beside:
            former = self._surroundings.tensors.get(name)
            if former is not None and id(former) in self._written:  # so is what the last call has returned
                raise Uncapturable(f"it writes {name} in place, and returns what it puts there then, {_results.OWN}")
        return items

    def _wire(self, names: Mapping[str, int], items: Sequence[Any]) -> _wiring.Wiring:
        return _wiring.wire(
            Observed(
                self._recording,
                self._before,
                names,
                items,
                {number: value for number, value in self._digests.items() if number in self.seen.raw},
                self._refused_uploads(),
                self._seeds,
                self._rates | self.probes.values,
                self._cuts,
                self.seen.waits,
                self.seen.instead,
            )
        )

    def _check_repeatable(self) -> None:
        """Raises Uncapturable when the call has drawn, left another mode behind, or run something unknown."""
        if self.draws.moved and self.draws.certain:
            raise Uncapturable(
                f"it draws from {' and '.join(self.draws.moved)}, and a replay would repeat what Python made of that; "
                "draw outside and pass the outcome as an argument, or draw on the device"
            )
        if self.seen.draws:
            raise Uncapturable(
                f"it draws random numbers on the CPU ({self.seen.draws}), and a replay would repeat what Python made "
                "of them; draw them on the device, or outside and pass them as an argument"
            )
        if self._modes != self._call.granted[3]:
            before, now = dict(self._call.granted[3]), dict(self._modes)
            changed = next(name for name, value in now.items() if before[name] != value)
            raise Uncapturable(
                f"it changes {changed}, and a replay would not ({before[changed]} -> {now[changed]})",
                passing=changed == WARNINGS,  # an import may have added a filter
            )
        if self.calls.unknown or self._surroundings.unknown:
            raise Uncapturable(self.calls.unknown or self._surroundings.unknown)

    def _check_gradients(self, after: Surroundings) -> None:
        """Raises Uncapturable when a new gradient is a tensor that something else has, too."""
        for name in sorted(after.with_gradient() - self._found):
            if f"{name}.grad" not in after.tensors:
                raise Uncapturable(
                    f"it leaves the gradient of {name} in another place as well, and a replay would not make both one "
                    "tensor; keep a copy (clone())",
                    passing=True,  # where gradients are there already, nothing is made
                )

    def _check_history(
        self, wiring: _wiring.Wiring, after: Surroundings, returned: Sequence[Any], left: Mapping[str, Any]
    ) -> None:
        """Raises Uncapturable when a result, or what it leaves behind, has a backward pass that is still to come."""
        trained = any(name.endswith(".grad") or name in after.parameters for name in wiring.written)
        if not trained and _results.has_live_graph(returned):
            raise Uncapturable(
                "it returns a tensor whose backward pass is still to come, and what a replay returns has no history; "
                "call backward() in the step, or return it detached (detach())"
            )
        for name, tensor in left.items():
            if _results.has_own_gradient(tensor):
                raise Uncapturable(
                    f"it leaves {name} behind, which has or retains a gradient (retain_grad()), and a replay would not "
                    "renew that; keep detach() of it, and copies of its gradient",
                    passing=True,  # a call with a flag may do so
                )
            if tensor.grad_fn is not None and _results.keeps_values(tensor):
                raise Uncapturable(
                    f"it leaves {name} behind, whose backward pass is still to come, and a replay does not change its "
                    "history; call backward() in the step, or keep it detached (detach())"
                )

    def learn(self, rules: Rules) -> bool:
        """Adds to ``rules`` what this call has shown; whether there was anything."""
        import torch

        written = {
            number
            for number, leaf in enumerate(self._leaves)
            if isinstance(leaf, torch.Tensor)
            and leaf.device.type == "xla"
            and number not in self._call.state
            and buffers.token_of(leaf) not in self._before
        }
        before = len(rules.state), len(rules.read)
        rules.state |= written
        rules.read |= set(self.seen.read)
        known = set[str]().union(*rules.used.values())
        for kind, names in self.calls.used.items():
            rules.used.setdefault(kind, set()).update(names)
        if (moved := rules.variables.learn(self.calls.variables)) and not self.calls.unknown:
            self.calls.unknown = (
                f"a function of an installed package draws from what is in {moved}, and a replay would repeat what it "
                "made of that"
            )
        fresh = set[str]().union(*rules.used.values()) - known
        looked = any(not fresh.isdisjoint(attribute_names(of)) for of in self._surroundings.libraries)
        looked = looked or (bool(fresh) and bool(self.calls.unknown))  # which may be a method that one of them names
        return looked or (len(rules.state), len(rules.read)) != before

    def _check_arguments(self) -> None:
        """Raises Uncapturable when the call has written an argument on the CPU, or changed what it was given."""
        import torch

        after = self._call.flatten()
        if after.structure != self._call.structure:
            raise Uncapturable(f"it changes its arguments: it {_changed(self._call.arguments, after)}; copy them first")
        for number, (now, given) in enumerate(zip(after.leaves, self._leaves, strict=True)):
            if now is not given and not (_contents.is_setting(now) and _contents.equal(now, given)):
                sent = isinstance(now, torch.Tensor) and isinstance(given, torch.Tensor) and now.device != given.device
                advice = "; send the batch before the step (batch.to(device) changes some batches themselves)"
                name = _attribute(self._call.arguments, after, given, now) or f"argument {number}"
                raise Uncapturable(
                    f"it puts something else in the place of {name}, which a replay would not{advice * sent}"
                )
        for number, version in self._versions.items():
            if self._leaves[number]._version != version:
                raise Uncapturable(f"it writes argument {number}, a tensor of the CPU, which a replay would not")

    def _refused_uploads(self) -> dict[int, str]:
        """Uploads that are not what they seem, by digest: why."""
        refused = dict(self.seen.derived)
        raw = {self._digests[number] for number in self.seen.raw if number in self._digests}
        for number, value in self._digests.items():
            if number not in self.seen.raw and value not in raw:  # else it is the other one that it uploads
                refused.setdefault(
                    value,
                    f"it uploads what argument {number} contains, in a way that is not seen here; use x.to(device)",
                )
        return refused

    def _check_memory(self, left: Mapping[str, Any]) -> None:
        """Raises Uncapturable when what was left behind lies in memory that another tensor had before: whoever has that
        one sees what is written to this one from then on."""
        began = {id(tensor): place for tensor, _, place in self._began}
        # Memory that nobody from before has any more may be somebody else's new one.
        kept = {place for identity, place in began.items() if identity not in self._moved}
        for name, tensor in left.items():
            place = buffers.storage_of(tensor)
            if place in kept and began.get(id(self._surroundings.tensors.get(name))) != place:
                raise moved(name)

    def _check_sharing(self, after: Mapping[str, int]) -> None:
        """Raises Uncapturable when tensors that had one value in common do not any more."""
        for names in self._sharing.values():
            kept = [name for name in names if name in after]
            if len({after[name] for name in kept}) > 1:
                raise Uncapturable(
                    f"{kept[0]} and {kept[1]} were one value before, and it changed only one of them; copy one of them "
                    "(clone())",
                    passing=True,  # they are two from then on
                )

    def _check_own_slices(self, wiring: _wiring.Wiring, known: Sequence[Any]) -> None:
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

    def _check_nothing_kept(self, wiring: _wiring.Wiring, after: Surroundings, returned: Sequence[Any]) -> None:
        """Raises Uncapturable when Python keeps a tensor that the call made, and nothing says where it would be."""
        import gc

        import torch

        known = {id(tensor) for tensor in [*after.tensors.values(), *returned]} | set(self._before_ids)
        known |= {id(item._base) for item in returned if isinstance(item, torch.Tensor)}  # a view keeps its base
        if not any(id(tensor) not in known for tensor in buffers.live_tensors(self._devices)):
            return
        gc.collect()  # a cycle is no fault
        for tensor in buffers.live_tensors(self._devices):
            if id(tensor) not in known and not self._is_upload(tensor):
                raise Uncapturable(
                    f"it keeps a tensor {text_of(tensor_key(tensor))} that it does not return, which a replay would "
                    "not renew; return it, itself or in a tuple, list, dict or another class that "
                    "torch.utils._pytree knows"
                )

    def _is_upload(self, tensor: Any) -> bool:
        """Whether a tensor was not computed by the call, but for instance by a thread that loads the next batch."""
        token = buffers.token_of(tensor)
        events = self._recording["events"]
        made = {result for event in events if event["kind"] == "run" for result in event["results"]}
        made |= {event["result"] for event in events if event["kind"] == "copy"}
        return token not in made


def _as_it_began(after: Watched, before: Watched, found: Effects) -> Watched:
    """What a replay must find in a list: what the call began with, but the tensors that it has put there."""
    pairs = enumerate(zip(before.contents, after.contents, strict=True))
    items = (new if f"{after.name}[{place}]" in found.renewed else old for place, (old, new) in pairs)
    return Watched(after.of, tuple(items), after.name)


def _attribute(before: Arguments, after: Arguments, given: Any, now: Any) -> str:
    """The attribute of an object among the arguments in which ``now`` has taken the place of ``given``; or nothing."""
    for batch, then, fields in zip(before.opened, before.contents, after.contents, strict=False):
        if isinstance(then, dict) and isinstance(fields, dict):
            for name, value in then.items():
                if value is given and fields.get(name) is now:
                    return f"{type(batch).__qualname__}.{name}"
    return ""


def _changed(before: Arguments, after: Arguments) -> str:
    """What has been added to, or taken out of, arguments."""
    for batch, then, now in zip(before.opened, before.contents, after.contents, strict=False):
        names = set(then) ^ set(now) if isinstance(then, dict) and isinstance(now, dict) else ()
        for name in sorted(map(str, names)):
            return f"{'sets' if name in now else 'deletes'} {name!r} of the {type(batch).__qualname__} that it is given"
    return "adds to them, or takes something out"
