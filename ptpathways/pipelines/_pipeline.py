"""``pw.pipeline``: a module trained in stages on several slices (paper, section 5.3 and Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ptpathways import core, frontend, schedules
from ptpathways.pipelines import _blocks, _model
from ptpathways.pipelines._optimizer import OptimizerRule
from ptpathways.pipelines._parts import StageParts, record_stage
from ptpathways.pipelines._stages import divide
from ptpathways.pipelines._state import Held
from ptpathways.pipelines._step import StepProgram

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Pipeline:
    """A module whose blocks are divided into stages on slices. Made by ``pipeline``."""

    def __init__(
        self,
        model: nn.Module,
        stages: int | Sequence[str],
        microbatches: int,
        schedule: str,
        slices: Sequence[frontend.VirtualSlice],
        loss: Callable[..., Tensor] | None,
        optimizer: MakeOptimizer,
        recompute: bool,
        placements: Callable[[str, Tensor], Any] | None,
    ) -> None:
        self.schedule = schedules.find(schedule)
        self.slices = tuple(slices)
        self.size = _size(stages, self.slices, microbatches, self.schedule)
        self._stages = stages
        self._model = model
        self._loss = loss
        self._recompute = recompute
        self._names: dict[int, str] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._names.setdefault(id(tensor), name)
        self._parameters = dict(model.named_parameters())
        self._paths = list(stages) if not isinstance(stages, int) else _blocks.paths_of(model)
        self.optimizer = optimizer(list(model.parameters()))
        self._rule = OptimizerRule(self.optimizer, self._names)
        self._placements = {
            name: placements(name, tensor) if placements else None for name, tensor in self._parameters.items()
        }
        self._held = Held()
        self._steps: dict[Any, StepProgram] = {}
        self._count = 0

    def step(self, *batch: Any) -> frontend.Future:
        """Trains on a batch and returns the loss at once, a future of a scalar.

        The tensors' first dimension is the samples, which are divided into the microbatches. With ``loss=``, the batch
        is what the model takes and, last, what the loss takes beside the model's output.

        Raises:
            PipelineError: the microbatches do not divide the batch.
            ModelCannotBeCut: by the first call, which exports the model.
        """
        leaves, structure = _pytree.tree_flatten(batch)
        samples = self._check_batch(leaves)
        key = (structure, tuple(_kind(leaf) for leaf in leaves))
        step = self._steps.get(key)
        if step is None or self._rule.changed():
            step = self._steps[key] = self._build(leaves, structure, samples)
        pieces = [self._divided(leaf) for leaf in leaves]
        given = [[pieces[index] for index in step.batch_of(rank)] for rank in range(self.size.ranks)]
        held = self._held
        first = not held.state
        trained = {name: held.parameters[name] for name in step.trained}
        fixed = {name: value for name, value in held.parameters.items() if name not in step.trained}
        loss, parameters, state = step.program(trained, held.state, held.buffers, given, step.numbers())
        held.parameters = {**fixed, **parameters}
        held.state = state
        self._count += 1
        if first and any(state.values()):
            step.program.trace(parameters, state, held.buffers, given, step.numbers())  # compiled while the first runs
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # for schedulers: a step has been taken
        found: frontend.Future = loss
        return found

    def _check_batch(self, leaves: Sequence[Any]) -> int:
        sizes = {int(leaf.shape[0]) for leaf in leaves if hasattr(leaf, "shape") and len(leaf.shape)}
        if len(sizes) != 1:
            raise core.PipelineError(
                f"a batch's tensors must have the same first dimension, the samples; got {sorted(sizes) or 'no tensor'}"
            )
        (samples,) = sizes
        count = self.size.microbatches
        if samples % count:
            raise core.PipelineError(
                f"{count} microbatches must divide the batch, got a batch of {samples}; use a batch of "
                f"{samples // count * count or count} or {(samples // count + 1) * count}, or another microbatches="
            )
        return samples // count

    def _divided(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.reshape(self.size.microbatches, -1, *leaf.shape[1:])

    def _build(self, leaves: Sequence[Any], structure: Any, samples: int) -> StepProgram:
        example = [leaf[:samples] if isinstance(leaf, Tensor) and leaf.dim() else leaf for leaf in leaves]
        graph = _model.export(self._model, self._loss, _pytree.tree_unflatten(example, structure), self._names)
        blocks = _blocks.blocks_of(graph, self._paths, self._model)
        firsts = [block.first for block in blocks]
        if isinstance(self._stages, int):
            cuts = [firsts[block] for block in _blocks.cut_evenly(blocks, self._stages, self._model)]
        else:
            cuts = _given_cuts(graph, self._stages, blocks)
        stages = divide(graph, cuts)
        frozen = [
            placeholder for placeholder, name in graph.parameters.items() if not self._parameters[name].requires_grad
        ]
        differentiable: set[str] = set()
        parts = [
            record_stage(stage, frozen, differentiable, 1.0 / self.size.microbatches, recompute=self._recompute)
            for stage in stages
        ]
        if not self._held.parameters:
            self._put(parts)
        return StepProgram(parts, self.slices, self.size, self.schedule, self._rule, samples, self._placements)

    def _put(self, parts: Sequence[StageParts]) -> None:
        homes: dict[str, frontend.VirtualSlice] = {}
        for one in parts:
            slice = self.slices[self.size.rank_of(one.stage.number)]
            for placeholder in one.stage.parameters:
                homes.setdefault(one.stage.graph.parameters[placeholder], slice)
            for placeholder in one.stage.buffers:
                graph = one.stage.graph
                value = graph.constants.get(placeholder)
                if value is None:
                    value = self._model.get_buffer(graph.buffers[placeholder])
                self._held.buffers[f"{one.stage.number}/{placeholder}"] = frontend.put(value, slice)
        self._held.put_parameters(
            {name: value for name, value in self._parameters.items() if name in homes}, homes, self._placements
        )


def _given_cuts(graph: _model.ModelGraph, names: Sequence[str], blocks: Sequence[_blocks.Block]) -> list[int]:
    return [0, *(block.first for block in blocks)]


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), str(leaf.dtype)) if hasattr(leaf, "shape") else leaf


def _size(
    stages: int | Sequence[str], slices: Sequence[Any], microbatches: int, schedule: schedules.Schedule
) -> schedules.Size:
    count = stages if isinstance(stages, int) else len(stages) + 1
    if not slices or count < 1 or count % len(slices):
        raise core.PipelineError(
            f"the number of stages must be a multiple of the number of slices, got {count} stages and {len(slices)} "
            "slices"
        )
    size = schedules.Size(len(slices), microbatches, count // len(slices))
    schedule.order(size)
    return size


def pipeline(
    model: nn.Module,
    *,
    stages: int | Sequence[str],
    microbatches: int,
    schedule: str = "1f1b",
    slices: Sequence[frontend.VirtualSlice],
    loss: Callable[..., Tensor] | None = None,
    optimizer: MakeOptimizer,
    recompute: bool = False,
    placements: Callable[[str, Tensor], Any] | None = None,
) -> Pipeline:
    """Divides ``model`` into stages on ``slices`` and trains it with microbatches."""
    return Pipeline(model, stages, microbatches, schedule, slices, loss, optimizer, recompute, placements)
