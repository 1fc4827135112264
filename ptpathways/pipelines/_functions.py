"""The compiled functions of a pipeline: of each stage its parts and its optimizer's update, and a few small ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptpathways import frontend
from ptpathways.frontend import CompiledFunction, TensorSpec
from ptpathways.pipelines._layouts import SliceLayouts
from ptpathways.pipelines._optimizer import Followed, OptimizerRule
from ptpathways.pipelines._parts import Part, StageParts


@dataclass(frozen=True, slots=True)
class PartFunction:
    """A part, compiled for its slice.

    Called with the sums of the parameters' gradients so far, if it gives some, and the part's inputs; gives the sums
    with its own gradients, then the part's other outputs.
    """

    part: Part
    gradients: tuple[int, ...]
    others: tuple[int, ...]
    function: CompiledFunction
    """Of the sums, a seed if the part draws random numbers, and the inputs."""
    zeros: CompiledFunction | None
    """What the sums are before the first microbatch. So each part is compiled once."""

    def __call__(
        self, sums: Sequence[Any] | None, values: Sequence[Any], seed: Any = None
    ) -> tuple[list[Any], list[Any]]:
        if not self.gradients and not self.others:
            return [], []  # the first stage's inputs need no gradients
        if self.zeros is not None and sums is None:
            sums = self.zeros()
        seeds = (seed,) if self.part.random else ()
        made = list(self.function(*(sums or ()), *seeds, *values))
        return made[: len(self.gradients)], made[len(self.gradients) :]


class StageFunctions:
    """What runs on one stage's slice."""

    def __init__(self, parts: StageParts, layouts: SliceLayouts, placements: dict[str, Any], split: bool) -> None:
        """``placements``: of parameters, by placeholder."""
        self.parts = parts
        self._layouts = layouts
        self._placement: dict[int, Any] = {
            parts.arguments[name]: placements.get(name) for name in (*parts.stage.parameters, *parts.stage.buffers)
        }
        self._placement |= {number: placements.get(name) for name, number in parts.parameter_gradients.items()}
        number = parts.stage.number
        self.forward = self._compile(parts.forward, f"forward{number}", ())
        weights = tuple(parts.parameter_gradients.values())
        self.weight: PartFunction | None = None
        if split:
            self.backward = self._compile(parts.backward_input, f"backward_input{number}", ())
            self.weight = self._compile(parts.backward_weight, f"backward_weight{number}", weights)
        else:
            self.backward = self._compile(parts.backward, f"backward{number}", weights)

    def _compile(self, part: Part, name: str, gradients: tuple[int, ...]) -> PartFunction:
        others = tuple(number for number in part.outputs if number not in gradients)
        inputs = [self.placement(number) for number in part.inputs]
        sums = [self.placement(number) for number in gradients]
        outputs = [self.placement(number) for number in (*gradients, *others)]

        first = len(gradients) + int(part.random)
        specs = [self.parts.recording.specs[number] for number in gradients]

        def run(*values: Tensor) -> tuple[Tensor, ...]:
            known = dict(zip(part.inputs, values[first:], strict=True))
            made = frontend.play(part.recording, part.steps, known, (*gradients, *others))
            added = [old + new for old, new in zip(values, made[: len(gradients)], strict=False)]
            return (*added, *made[len(gradients) :])

        def zeros() -> tuple[Tensor, ...]:
            return tuple(torch.zeros(spec.shape, dtype=frontend.torch_dtype(spec.dtype)) for spec in specs)

        slice = self._layouts.slice
        return PartFunction(
            part,
            gradients,
            others,
            CompiledFunction(
                run,
                slice,
                in_placements=[*sums, *([None] if part.random else []), *inputs],
                out_placements=outputs,
                donate=range(len(gradients)),
                name=name,
                seed=len(gradients) if part.random else None,
            ),
            CompiledFunction(zeros, slice, out_placements=sums, name=f"zeros{self.parts.stage.number}")
            if gradients
            else None,
        )

    def placement(self, number: int) -> Any:
        """How a value lies on the slice."""
        if number in self._placement:
            return self._placement[number]
        return self._layouts.activation(self.parts.recording.specs[number])


def begin(layouts: SliceLayouts, microbatches: int, ranks: Sequence[int]) -> CompiledFunction:
    """A function that gives each tensor of the batch as microbatches, and numbers and seeds one by one.

    Args:
        ranks: dimensions of the batch's tensors, which come as (microbatches, samples, ...).
    """

    def begin(numbers: Tensor, seeds: Tensor | None, *batch: Tensor) -> Any:
        pieces = [[tensor[number] for number in range(microbatches)] for tensor in batch]
        drawn = [] if seeds is None else [seeds[place] for place in range(seeds.shape[0])]
        return pieces, [numbers[place] for place in range(numbers.shape[0])], drawn

    return CompiledFunction(
        begin,
        layouts.slice,
        in_placements=[None, None, *(layouts.whole_batch(rank) for rank in ranks)],
        out_placements=[[layouts.microbatch(rank - 1) for rank in ranks], None, None] if ranks else None,
        name="begin",
    )


def whole_loss(slice: frontend.VirtualSlice, microbatches: int, reduction: str) -> CompiledFunction:
    """Of the microbatches' losses, and then weights if there are any, the loss of the batch and the whole weight."""

    def loss(*values: Tensor) -> tuple[Tensor, Tensor]:
        losses = torch.stack([one.reshape(()) for one in values[:microbatches]])
        if reduction == "mean":
            return losses.mean(), torch.ones(())
        if reduction == "sum":
            return losses.sum(), torch.ones(())
        weight = torch.stack([one.reshape(()) for one in values[microbatches:]]).sum()
        return losses.sum() / weight, weight

    return CompiledFunction(loss, slice, name="loss")


def total(layouts: SliceLayouts, spec: TensorSpec, placement: Any) -> CompiledFunction:
    """The sum of the gradients that several stages give for one value; zeros if there is none."""

    def add_gradients(*gradients: Tensor) -> Tensor:
        if not gradients:
            return torch.zeros(spec.shape, dtype=frontend.torch_dtype(spec.dtype))
        made = gradients[0]
        for gradient in gradients[1:]:
            made = made + gradient
        return made

    return CompiledFunction(
        add_gradients, layouts.slice, in_placements=placement, out_placements=placement, name="add_gradients"
    )


def whole_gradients(
    copies: Sequence[int], placements: Sequence[Any], slice: frontend.VirtualSlice, name: str, *, divided: bool
) -> CompiledFunction:
    """The whole gradients of some parameters on one slice, and the norm of all of them, a scalar.

    Args:
        copies: of each parameter, how many gradients are to be added up.
        divided: gradients are to be divided by the loss's weight, which is given first.
    """

    def gradients(*values: Tensor) -> tuple[Tensor, list[Tensor]]:
        made = _added_up(iter(values), copies, divided=divided)
        return norm_of([torch.linalg.vector_norm(_exact(one)) for one in made]), made

    given = [placement for number, placement in zip(copies, placements, strict=True) for _ in range(number)]
    plain = all(placement is None for placement in placements)
    return CompiledFunction(
        gradients,
        slice,
        in_placements=None if plain else [*([None] if divided else []), *given],
        out_placements=None if plain else [None, list(placements)],
        donate=range(int(divided), int(divided) + sum(copies)),
        name=name,
    )


def norm_of(norms: Sequence[Tensor]) -> Tensor:
    """The norm of what has these norms, in the widest of their types."""
    widest = torch.float64 if any(one.dtype == torch.float64 for one in norms) else torch.float32
    whole: Tensor = torch.linalg.vector_norm(torch.stack([one.to(widest) for one in norms]))
    return whole


def clipping(slice: frontend.VirtualSlice) -> CompiledFunction:
    """Of the largest norm allowed and the parts' norms, the whole norm and what gradients are to be divided by.

    That is 1 where the norm is small enough, and not a number where it is none, as ``torch.nn.utils.clip_grad_norm_``.
    """

    def clip(largest: Tensor, *norms: Tensor) -> tuple[Tensor, Tensor]:
        norm = norm_of(norms)
        return norm, torch.clamp((norm + 1e-6) / largest.to(norm.dtype), min=1.0)

    return CompiledFunction(clip, slice, name="clip")


def _added_up(given: Iterator[Tensor], copies: Sequence[int], *, divided: bool) -> list[Tensor]:
    """Each parameter's gradient, of the weight if they are divided by one, and all parts."""
    weight = next(given) if divided else None
    made = []
    for number in copies:
        gradient = next(given)
        for _ in range(number - 1):
            gradient = gradient + next(given)
        made.append(gradient if weight is None else gradient / weight.to(gradient.dtype))
    return made


def _exact(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


class Update:
    """The optimizer's step for some parameters on one slice."""

    def __init__(
        self,
        rule: OptimizerRule,
        followed: Followed,
        names: Sequence[str],
        copies: Sequence[int],
        state_keys: Sequence[Sequence[tuple[str, int]]],
        placements: Sequence[Any],
        slice: frontend.VirtualSlice,
        name: str,
        *,
        divided: bool = False,
    ) -> None:
        """
        Args:
            divided: gradients are to be divided by a number that is given.
            copies: of each parameter, how many gradients are to be added up.
            state_keys: of each parameter, with the number of dimensions; empty before the first step.
        """
        count, states = len(names), sum(map(len, state_keys))
        self._used = used = followed.used(state_keys)

        def update(*values: Tensor) -> Any:
            first = len(used) + int(divided)
            given = iter(values[first:])
            parameters = [next(given) for _ in range(count)]
            state = [{key: next(given) for key, _ in keys} for keys in state_keys]
            gradients = _added_up(itertools.chain(values[len(used) : first], given), copies, divided=divided)
            return rule.update(names, parameters, gradients, state, followed, values[: len(used)])

        of_state = [
            {key: placement if rank else None for key, rank in keys}
            for keys, placement in zip(state_keys, placements, strict=True)
        ]
        before = len(used) + int(divided)
        inputs = [None] * before
        inputs += placements
        inputs += [placement for keys in of_state for placement in keys.values()]
        inputs += [placement for number, placement in zip(copies, placements, strict=True) for _ in range(number)]
        plain = all(placement is None for placement in placements)
        self.function = CompiledFunction(
            update,
            slice,
            in_placements=None if plain else inputs,
            out_placements=None if plain else [list(placements), of_state if all(state_keys) else None],
            donate=range(before, before + count + states + sum(copies)),
            name=name,
        )

    def __call__(
        self,
        numbers: Sequence[Any],
        weights: Sequence[Any],
        parameters: Sequence[Any],
        state: Sequence[Any],
        gradients: Sequence[Any],
    ) -> tuple[list[Any], list[dict[str, Any]]]:
        used = [numbers[place] for place in self._used]
        made: tuple[list[Any], list[dict[str, Any]]] = self.function(*used, *weights, *parameters, *state, *gradients)
        return made
