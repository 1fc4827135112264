"""``pw.pipeline``: a module trained in stages on several slices (paper, section 5.3 and Table 2)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ptpathways import core, frontend, programs, schedules
from ptpathways.frontend import Future, VirtualSlice
from ptpathways.pipelines import _batch, _blocks, _changes, _fit, _flat, _loading, _losses, _model, _plan, _unused
from ptpathways.pipelines._given import check_callables, check_norm, equal_slices, size_of
from ptpathways.pipelines._layouts import SliceLayouts
from ptpathways.pipelines._optimizer import OptimizerRule
from ptpathways.pipelines._parts import record_stages
from ptpathways.pipelines._plan import Plan
from ptpathways.pipelines._stages import divide
from ptpathways.pipelines._step import StepProgram
from ptpathways.pipelines._values import Values, host_may_be_lost

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Placements = Callable[[str, Tensor], Any]


class Pipeline:
    """A module in stages on several slices, with its optimizer (Pathways, section 5.3). Made by ``pipeline``.

    Attributes:
        optimizer: the user's, for learning-rate schedulers; each step uses its current hyperparameters. Its
            ``state_dict`` and ``load_state_dict`` fetch and send its state; ``optimizer.state`` is present only after
            ``state_dict``.
        slices: one slice per rank.
        schedule: the schedule of a step.
        size: number of ranks, of microbatches, and of stages per rank (``chunks``).
        clip_grad_norm: as in ``pipeline``; may be changed between steps. A change from None to a number or back
            compiles the step once more.
    """

    def __init__(
        self,
        model: nn.Module,
        stages: int | Sequence[str],
        microbatches: int,
        schedule: str,
        slices: Sequence[VirtualSlice],
        loss: Callable[..., Any] | None,
        optimizer: MakeOptimizer,
        recompute: bool,
        placements: Placements | None,
        reduction: str,
        clip_grad_norm: float | None,
    ) -> None:
        _losses.check_reduction(reduction)
        check_callables(loss, optimizer, placements)
        core.check_switch(recompute, "recompute")
        self.schedule = schedules.find(schedule)
        if not isinstance(slices, list | tuple):
            raise TypeError(f"slices must be a list of slices from cluster.slice(), got {slices!r}")
        self.slices = tuple(slices)
        self._cut = _blocks.Cut.of(model, stages)
        self.size = size_of(self._cut.stages, self.slices, microbatches, self.schedule)
        self._model = model
        self._loss = loss
        self._reduction = reduction
        self._recompute = recompute
        self.clip_grad_norm = clip_grad_norm
        check_norm(clip_grad_norm)
        self._norm: Future | None = None
        self._parameters = dict(model.named_parameters())
        self._place = placements
        self._placements: dict[str, Any] = {
            name: placements(name, tensor) if placements else None for name, tensor in self._parameters.items()
        }
        self.optimizer = optimizer(list(model.parameters()))
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must return a torch.optim.Optimizer, got {self.optimizer!r}")
        self._rule = self._new_rule()
        _changes.refuse_hooks(model, self.optimizer)
        _unused.watch(self.optimizer, self._parameters.values())
        self._values = Values(self._parameters, self.optimizer, self._placements)
        self._steps: dict[Any, StepProgram] = {}
        self._setting: _changes.Setting | None = None
        self._last: StepProgram | None = None
        self._taken: tuple[StepProgram, list[int], Future] | None = None
        self._shapes = ""  # of a microbatch that the model took
        self._lock = threading.RLock()
        whole = weakref.ref(self)

        def fetch(_: torch.optim.Optimizer) -> None:
            if (pipe := whole()) is not None:
                with pipe._lock:
                    pipe._values.fetch_state()

        def check(_: torch.optim.Optimizer, state: Any) -> None:
            if (pipe := whole()) is not None:
                _loading.check_optimizer(state, pipe._rule)

        def given(_: torch.optim.Optimizer) -> None:
            if (pipe := whole()) is not None:
                pipe._values.state_given()

        self.optimizer.register_state_dict_pre_hook(fetch)
        self.optimizer.register_load_state_dict_pre_hook(check)
        self.optimizer.register_load_state_dict_post_hook(given)

    def step(self, *batch: Any) -> Future:
        """Trains on a batch and returns its loss at once.

        With ``loss=``, the model is called with all but the last entry of the batch, and the loss with the model's
        output and that last entry.

        Args:
            batch: tensors, futures or arrays of shape [samples, ...], with a number of samples that ``microbatches``
                divides; also scalar tensors, numbers, strings and None, which every microbatch gets.

        Returns:
            A future of a scalar: the microbatches' losses combined by ``reduction``. Their mean, the default, equals
            eager PyTorch's loss of the whole batch if the loss is a mean over samples.

        Raises:
            PipelineError: the tensors' numbers of samples differ, the microbatches do not divide them, or an entry is
                of another kind.
            HostLost: this step, or one before, needs a host that is lost.
            ModelCannotBeCut, OutOfDeviceMemory: by the first call with a batch of these shapes, which exports the
                model.
        """
        with self._lock, host_may_be_lost(), _flat.outside_autocast() as mode:
            return self._step(batch, mode)

    def _step(self, batch: tuple[Any, ...], mode: _flat.Mode | None) -> Future:
        leaves, structure = _pytree.tree_flatten(batch)
        leaves = _batch.checked(leaves)
        step = self._step_for(leaves, structure, mode)
        arguments = self._arguments(step, leaves)
        _, state, *others = arguments
        loss, parameters, after, norms = step.program(*arguments)
        self._values.stepped(parameters, after)
        self._norm = norms[0] if norms else None
        if not any(state.values()) and any(after.values()):  # with state it is another program: compiled meanwhile
            step.program.trace(parameters, after, *others[:-1], step.seeds())
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # for schedulers: a step was taken
        found: Future = loss
        devices = [slice.devices[0] for slice in self.slices]
        self._taken = step, devices, Future(found.buffer(), found.layout)  # the user may give the other one up
        return found

    def _arguments(self, step: StepProgram, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """What the step's program takes: trained parameters, optimizer state, other parameters, buffers, the batch, the
        optimizer's numbers, seeds."""
        self._values.send()
        pieces = [_batch.divided(leaf, self.size.microbatches) for leaf in leaves]
        step.ignoring.look(pieces)
        given = [[pieces[index] for index in step.batch_of(rank)] for rank in range(self.size.ranks)]
        held = self._values.held
        trained = {name: held.parameters[name] for name in step.trained}
        state = {name: held.state.get(name, {}) for name in step.trained}
        fixed = {name: value for name, value in held.parameters.items() if name not in trained}
        return trained, state, fixed, step.buffers(), given, step.numbers(self.clip_grad_norm), step.seeds()

    @property
    def grad_norm(self) -> Future:
        """Norm of all gradients of the last step before clipping, a future of a scalar.

        Raises:
            PipelineError: no step was taken, or the last one had no ``clip_grad_norm``.
        """
        with self._lock:
            if self._norm is None:
                raise core.PipelineError(
                    "the gradients' norm is computed by steps of a pipeline with clip_grad_norm=, and there was none "
                    'yet; clip_grad_norm=float("inf") computes it and clips nothing'
                )
            return self._norm

    @property
    def module(self) -> nn.Module:
        """The user's module, on the CPU, with the current parameters. Waits for the last step.

        Changes made to it before the next step are sent to the slices with that step.

        Raises:
            PipelineError: parameters were changed since the last step, without having read this property before.
            HostLost: parameters were lost with a host.
        """
        with self._lock:
            self._values.fetch_parameters()
            return self._model

    def state_dict(self) -> dict[str, Any]:
        """Returns ``{"model": ..., "optimizer": ...}``, as of a module and an optimizer without a pipeline.

        Waits for the last step. The state depends neither on the number of stages nor on the schedule.

        Raises:
            PipelineError, HostLost: as ``module``.
        """
        with self._lock:
            return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what ``state_dict`` returned, also of a pipeline with other stages, or of a module and optimizer alone.

        It replaces what is on the slices, also what was lost there with a host.

        Args:
            state: ``{"model": ..., "optimizer": ...}``.

        Raises:
            TypeError, PipelineError: as ``check_state_dict``. Nothing was changed.
        """
        with self._lock:
            self.check_state_dict(state)
            self._model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self._values.replaced()
            for step in self._steps.values():
                step.forget_sent()

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that ``load_state_dict`` accepts a state. Of its tensors, only shapes and dtypes matter.

        Raises:
            TypeError: it is not a dictionary.
            PipelineError: it lacks a model or an optimizer, or is of another model or another kind of optimizer.
        """
        _loading.check(state, self._model, self._rule)

    def plan(self, *batch: Any, costs: schedules.Costs | Sequence[schedules.Costs] | None = None) -> Plan:
        """Returns the schedule of a step in time, planned from the stages' floating point operations or from ``costs``.

            print(pipe.plan(tokens, targets))      # or .svg("plan.svg")

        Args:
            batch: an example of a batch, needed before the first step.
            costs: of all stages, or one for each, in any unit. Default: estimates, in forward passes.

        Raises:
            PipelineError: no step was taken yet and there is no example, or ``costs`` do not fit; or as ``step``.
        """
        if batch:
            leaves, structure = _pytree.tree_flatten(batch)
            with self._lock, _flat.outside_autocast() as mode:
                step = self._step_for(_batch.checked(leaves), structure, mode)
        elif self._last is not None:
            step = self._last
        else:
            raise core.PipelineError("before the first step, plan() needs an example of a batch: pipe.plan(*batch)")
        return _plan.plan(
            self.schedule.name,
            stages=self.size.stages,
            microbatches=self.size.microbatches,
            slices=self.size.ranks,
            costs=step.costs if costs is None else costs,
            unit="forward passes" if costs is None else "",
        )

    def compile_for(self, target: str, *batch: Any, plugin: str = "") -> programs.CompiledFor:
        """Compiles a whole training step for chips that need not be here (``Program.compile_for``); nothing runs.

        Before the first step, it compiles the step that makes the optimizer's state.

        Args:
            target: chip and shape: ``"h200:2x8"``, ``"v5e:4x4"``, ...
            batch: an example of a batch, as for ``step``.
            plugin: path of the PJRT plugin that compiles; default: the best that is installed.

        Raises:
            InvalidOption: no such target, or one with fewer devices than a slice.
            PluginNotFound: the plugin that compiles for it is not installed.
            CompileFailed: the compiler ended without an answer.
            PipelineError, ModelCannotBeCut: as ``step``.
        """
        with self._lock, host_may_be_lost(), _flat.outside_autocast() as mode:
            leaves, structure = _pytree.tree_flatten(batch)
            leaves = _batch.checked(leaves)
            step = self._step_for(leaves, structure, mode)
            return step.program.compile_for(target, *self._arguments(step, leaves), plugin=plugin)

    def measured(self, *, costs: schedules.Costs | Sequence[schedules.Costs] | None = None) -> Plan:
        """Returns the last whole step as the devices ran it, in the colours of ``plan``. Waits for the last step.

        Hosts record when each computation began and ended, for the last few steps. Times are in microseconds after the
        step's first action. Slices on several machines are compared by these machines' clocks.

        Args:
            costs: for the bubble in theory, as in ``plan``.

        Raises:
            PipelineError: no step was taken, no whole step is recorded any more, or ``costs`` do not fit.
            HostLost: a host is lost, and its record with it.
        """
        if costs is not None:
            costs = _plan.costs_of_stages(costs, self.size.stages)
        with self._lock:
            taken = self._taken
        if taken is None:
            raise core.PipelineError("no step was taken yet; take one with pipe.step(*batch)")
        step, devices, loss = taken
        failure = None
        with host_may_be_lost():
            try:
                loss.wait()
            except (core.HostLost, core.ConnectionFailed, core.DeadlineExceeded, core.NotInitialized):
                raise
            except core.PathwaysError as error:  # a step before may be whole
                failure = error
            runs = frontend.timed_runs(step.program)
        each = step.costs if costs is None else costs
        theory = self.schedule.bubble(self.size, each)
        try:
            return _plan.measured(step.order, self.size, self.schedule, theory, devices, runs)
        except core.PipelineError as error:
            raise error from failure

    def stages(self) -> list[list[str]]:
        """Returns the names of the model's parameters in each stage.

        Raises:
            PipelineError: before the first step or plan.
        """
        if self._last is None:
            raise core.PipelineError("the model is cut by the first step, or by plan() with an example of a batch")
        return [[one.stage.graph.parameters[name] for name in one.stage.parameters] for one in self._last.parts]

    def __repr__(self) -> str:
        return (
            f"<pipeline of {type(self._model).__name__}: {self.size.stages} stages on {self.size.ranks} slices, "
            f"{self.schedule.name}, {self.size.microbatches} microbatches>"
        )

    def _new_rule(self) -> OptimizerRule:
        names: dict[int, str] = {}
        for name, tensor in self._parameters.items():
            names.setdefault(id(tensor), name)
        self._groups = _changes.membership(self.optimizer)
        return OptimizerRule(self.optimizer, names)

    def _step_for(self, leaves: Sequence[Any], structure: Any, mode: _flat.Mode | None) -> StepProgram:
        samples = _batch.samples_of(leaves, self.size.microbatches)
        _changes.refuse_hooks(self._model, self.optimizer)
        if self._groups != _changes.membership(self.optimizer):
            self._rule = self._new_rule()
            self._steps.clear()
        if self._rule.changed():  # a number that was compiled in is another one now
            self._steps.clear()
        check_norm(self.clip_grad_norm)
        clipped = self.clip_grad_norm is not None
        kinds = (structure, tuple(_batch.kind(leaf) for leaf in leaves), mode, clipped)
        step = None if self._setting is None else self._steps.get((kinds, self._setting.now(self.optimizer)))
        if step is None:
            step = self._build(leaves, structure, samples, mode)
            assert self._setting is not None
            while len(self._steps) >= _STEPS_MAX:
                self._steps.pop(next(iter(self._steps)))
            self._steps[kinds, self._setting.now(self.optimizer)] = step
        self._last = step
        return step

    def _build(self, leaves: Sequence[Any], structure: Any, samples: int, mode: _flat.Mode | None) -> StepProgram:
        example = _pytree.tree_unflatten([_batch.example(leaf, samples) for leaf in leaves], structure)
        known: dict[int, str] = {}
        for name, tensor in (*self._parameters.items(), *self._model.named_buffers()):
            known.setdefault(id(tensor), name)
        weighted = self._reduction == "weighted"
        shapes = _batch.shapes(_pytree.tree_leaves(example))
        graph = _model.export(
            self._model, self._loss, example, known, weighted=weighted, mode=mode, shapes=(shapes, self._shapes)
        )
        self._shapes = shapes
        stages = divide(graph, self._cut.places(graph))
        frozen = [
            name
            for name, own in graph.parameters.items()
            if own not in self._rule.group_of or not self._parameters[own].requires_grad
        ]
        microbatches = self.size.microbatches
        whole = _pytree.tree_unflatten(list(leaves), structure)
        warned = False
        if self._loss is not None:
            warned = _losses.try_out(self._loss, graph.output, whole[-1], samples, microbatches, self._reduction, mode)
        scale = 1.0 / microbatches if self._reduction == "mean" else 1.0
        parts = record_stages(stages, frozen, scale, recompute=self._recompute)
        layouts = [SliceLayouts(slice, samples) for slice in self.slices]
        step = StepProgram(
            parts,
            layouts,
            self.size,
            self.schedule,
            self._rule,
            self._placements,
            self._reduction,
            clipped=self.clip_grad_norm is not None,
        )
        step.ignoring = _losses.Ignoring(graph, microbatches, self._reduction, tried=self._loss is not None)
        step.ignoring.warned |= warned
        state_of = {name: self._rule.state_sizes.get(group, 0.0) for name, group in self._rule.group_of.items()}
        _fit.check(parts, layouts, step.order, self.size, _fit.limits_of(self.slices), state_of, self._placements)
        for one in parts:
            slice = self.slices[self.size.rank_of(one.stage.number)]
            for placeholder in one.stage.parameters:
                self._values.homes.setdefault(graph.parameters[placeholder], slice)
            for placeholder in one.stage.buffers:
                value = graph.constants.get(placeholder)
                if value is None:
                    value = self._model.get_buffer(graph.buffers[placeholder])
                step.hold(placeholder, one.stage.number, value)
        before, self._setting = self._setting, _changes.Setting(self._model, graph.reads, self._setting)
        if not self._setting.same_reads(before):
            self._steps.clear()  # they were compared without what this one reads
        return step


_STEPS_MAX = 64
"""Compiled steps that are kept, for batches of other shapes and models in other modes."""


def pipeline(
    model: nn.Module,
    *,
    stages: int | Sequence[str],
    microbatches: int,
    schedule: str = "1f1b",
    slices: Sequence[VirtualSlice] | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: MakeOptimizer,
    recompute: bool = False,
    placements: Placements | None = None,
    reduction: str = "mean",
    clip_grad_norm: float | None = None,
) -> Pipeline:
    """Divides a model into stages on slices and trains it, each step as one program (Pathways, section 5.3).

        pipe = pw.pipeline(model, stages=4, microbatches=8, loss=loss_of,
                           optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
        loss = pipe.step(tokens, targets)

    Args:
        model: a module on the CPU that is a sequence of blocks: an ``nn.Sequential``, or a module that has them in an
            ``nn.Sequential`` or ``nn.ModuleList``, with anything before, between and after. Several stages may use the
            same parameter, and any later stage the values of an earlier one.
        stages: number of stages, divided so that they cost about the same; or the names of the modules with which the
            second, the third stage and so on begin.
        microbatches: number of microbatches that a batch is divided into.
        schedule: ``"gpipe"``, ``"1f1b"``, ``"interleaved"`` or ``"zero-bubble"``; see ``docs/pipelines.md``.
        slices: stage ``s`` runs on slice ``s % len(slices)``. Inside a slice, a microbatch is divided over the devices
            along the slice's first axis. None: one slice per stage, each of an equal part of the cluster's devices.
        loss: a function of the model's output and the batch's last entry that returns the mean over samples, or what
            ``reduction`` states. None: the model is called with the batch and returns the loss.
        optimizer: a function that makes a dense torch optimizer of the parameters it is called with.
        recompute: whether to keep only the inputs of a stage, and to run its forward pass again before its backward
            pass.
        placements: how parameters lie on their slice: a function of name and parameter that returns placements as for
            ``function``. None: a replica on each device.
        reduction: how the microbatches' losses become the batch's: ``"mean"``, for losses that are a mean over samples;
            ``"sum"``, for losses that are a sum; ``"weighted"``, for losses that return a sum and its weight: the sum
            of all sums is divided by the sum of all weights.
        clip_grad_norm: largest norm of the gradients of all the optimizer's parameters together; larger ones are
            scaled down as by ``torch.nn.utils.clip_grad_norm_``. ``Pipeline.grad_norm`` is the norm before. None: no
            clipping.

    Raises:
        PipelineError: an unknown schedule, reduction or norm, or stages, slices and microbatches that do not fit.
        ModelCannotBeCut: the model has no blocks, or fewer than stages.
        TypeError: an argument is of the wrong kind.
        NotInitialized, SliceUnavailable: without ``slices``, there is no cluster, or no such slices.
    """
    if slices is None:
        if isinstance(stages, bool) or not isinstance(stages, int | list | tuple):
            _blocks.Cut.of(model, stages)  # raises
        slices = equal_slices(stages if isinstance(stages, int) else len(stages) + 1)
    return Pipeline(
        model,
        stages,
        microbatches,
        schedule,
        slices,
        loss,
        optimizer,
        recompute,
        placements,
        reduction,
        clip_grad_norm,
    )
