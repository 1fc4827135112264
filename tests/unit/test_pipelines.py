"""Pipelines without a cluster: finding blocks, cutting a model's graph, explaining an optimizer's numbers, plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ptpathways import core, pipelines, schedules
from ptpathways.bench import _pipelining
from ptpathways.bench._record import Setting
from ptpathways.pipelines import _batch, _blocks, _losses, _model
from ptpathways.pipelines._aliases import Aliases, written_by
from ptpathways.pipelines._numbers import NumbersAsTensors
from ptpathways.pipelines._optimizer import OptimizerRule
from ptpathways.pipelines._stages import divide
from tests.proc import pipeline_models as models


def exported(model: nn.Module, loss: Any, *batch: Tensor) -> _model.ModelGraph:
    names = {id(one): name for name, one in (*model.named_parameters(), *model.named_buffers())}
    return _model.export(model, loss, batch, names)


def language() -> tuple[Tensor, Tensor]:
    return models.language_batch(2, torch.Generator().manual_seed(0))


def test_blocks_are_found_where_users_have_them() -> None:
    assert _blocks.paths_of(models.perceptron(3)) == ["0", "1", "2", "3", "4"]
    assert _blocks.paths_of(models.Gpt(3)) == ["blocks.0", "blocks.1", "blocks.2"]
    nested = nn.Sequential(nn.Linear(2, 2), nn.Sequential(models.Block(4), models.Block(4)), nn.Linear(2, 2))
    assert _blocks.paths_of(nested) == ["0", "1.0", "1.1", "2"]
    flat = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert _blocks.paths_of(flat) == ["0", "1"]
    assert len(_blocks.paths_of(models.Skips())) == 6

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = models.Gpt(2)

    assert _blocks.paths_of(Wrapped()) == ["transformer.blocks.0", "transformer.blocks.1"]
    with pytest.raises(core.ModelCannotBeCut, match="Linear has no sequence of blocks"):
        _blocks.paths_of(nn.Linear(2, 2))


def test_stages_cost_about_the_same() -> None:
    model = models.Gpt(6)
    graph = exported(model, models.language_loss, *language())
    blocks = _blocks.blocks_of(graph, _blocks.paths_of(model), model)
    assert [block.path for block in blocks] == [f"blocks.{number}" for number in range(6)]
    assert blocks[1].cost == pytest.approx(blocks[2].cost) and blocks[5].cost > blocks[1].cost
    assert _blocks.cut_evenly(blocks, 3, model) == [0, 2, 4]
    costs = [_blocks.Block(str(i), i, cost) for i, cost in enumerate([9.0, 1.0, 1.0, 1.0, 1.0, 1.0])]
    assert _blocks.cut_evenly(costs, 2, model) == [0, 1]
    with pytest.raises(core.ModelCannotBeCut, match="7 stages need at least as many blocks, and model Gpt has 6"):
        _blocks.cut_evenly(blocks, 7, model)


def test_costs_are_counted_without_hooks_that_other_threads_would_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = nn.modules.module
    seen: list[int] = []

    def count(*_: Any, **__: Any) -> int:
        seen.append(len(hooks._global_forward_hooks) + len(hooks._global_forward_pre_hooks))
        return 7

    graph = exported(nn.Sequential(nn.Linear(2, 3, bias=False)), F.mse_loss, torch.ones(4, 2), torch.ones(4, 3))
    monkeypatch.setattr(_blocks, "flop_registry", {torch.ops.aten.mm: count})
    assert _blocks.cost_of(graph.nodes[0]) == 7 + 12 and seen == [0]


def test_each_stage_takes_and_gives_what_it_must() -> None:
    model = models.Gpt(4, tied=True)
    graph = exported(model, models.language_loss, *language())
    stages = divide(graph, _blocks.Cut.of(model, ["blocks.1", "blocks.3"]).places(graph))
    first, middle, last = stages
    assert not first.inputs and len(first.outputs) == 1 and middle.inputs == first.outputs
    assert [graph.batch[name] for name in first.batch] == [0] and [graph.batch[name] for name in last.batch] == [1]
    owned = [{graph.parameters[name] for name in stage.parameters} for stage in stages]
    assert owned[0] & owned[2] == {"token.weight"} and not owned[1] & owned[2]
    assert last.outputs == (graph.loss,)


def test_stages_in_order_compute_what_the_model_does() -> None:
    for model, loss, batch in (
        (models.Skips(), F.mse_loss, models.regression_batch(4, torch.Generator().manual_seed(0))),
        (models.Gpt(4), models.language_loss, language()),
    ):
        graph = exported(model, loss, *batch)
        tensors = dict(model.named_parameters())
        known: dict[str, Any] = {name: tensors[own].detach() for name, own in graph.parameters.items()}
        known |= {name: batch[index] for name, index in graph.batch.items()}
        known |= graph.constants
        for stage in divide(graph, _blocks.Cut.of(model, 3).places(graph)):
            names = (*stage.parameters, *stage.buffers, *stage.batch, *stage.inputs)
            made = stage.run({name: known[name] for name in names}, torch.device("cpu"))
            known.update(zip(stage.outputs, made, strict=True))
        wanted = loss(model(batch[0]), batch[1])
        torch.testing.assert_close(known[graph.loss], wanted.detach())


def test_skipped_values_go_directly_to_their_users() -> None:
    model = models.Skips()
    graph = exported(model, F.mse_loss, *models.regression_batch(4, torch.Generator().manual_seed(0)))
    stages = divide(graph, _blocks.Cut.of(model, ["down.1", "up.0", "up.2"]).places(graph))
    assert set(stages[3].inputs) & set(stages[0].outputs), "the first value that was kept is used last"
    assert not set(stages[3].inputs) & set(stages[1].outputs) - set(stages[2].inputs)


def test_a_block_may_run_again() -> None:
    x, _ = models.regression_batch(4, torch.Generator().manual_seed(0))

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.blocks[0](self.blocks[1](self.blocks[0](x)))
            return made.mean()

    model = Twice()
    blocks = _blocks.blocks_of(exported(model, None, x), _blocks.paths_of(model), model)
    assert [block.path for block in blocks] == ["blocks.0", "blocks.1", "blocks.0"]


def test_models_that_cannot_be_cut_say_why() -> None:
    x, y = models.regression_batch(4, torch.Generator().manual_seed(0))
    running = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(core.ModelCannotBeCut, match=r"changes '1\.\w+' in its forward pass, in module '1'"):
        exported(running, F.mse_loss, x, y)
    exported(running.eval(), F.mse_loss, x, y)
    with pytest.raises(core.ModelCannotBeCut, match="must give one scalar"):
        exported(models.perceptron(), None, x)


def test_values_that_share_memory_are_known() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            table = torch.zeros(4)
            view = table[1:].view(3)
            other = table + 1
            with torch.no_grad():
                view.add_(2)
            pair = (x * 1).chunk(2, 1)
            made: Tensor = (x * table).sum() + other.sum() + pair[0].sum()
            return made

    graph = exported(Writing(), None, torch.zeros(2, 4))
    aliases = Aliases(graph.module.graph.nodes)
    (write,) = [node for node in graph.nodes if written_by(node)]
    assert str(write.target) == "aten.add_.Tensor", "what is under no_grad is in the graph itself"
    names = {str(node.target) for node in aliases.of(write)}
    assert names == {"aten.zeros.default", "aten.slice.Tensor", "aten.view.default", "aten.add_.Tensor"}
    assert not any(one.name in graph.batch for one in aliases.of(write))


def test_a_loss_is_tried_out() -> None:
    made, y = torch.empty(2, 4, device="meta"), torch.randn(8, 4)

    def total(made: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(made, y, reduction="sum")

    def pair(made: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return total(made, y), made.numel()

    assert not _losses.try_out(F.mse_loss, made, y, 2, 4, "mean")
    assert not _losses.try_out(total, made, y, 2, 4, "sum")
    assert not _losses.try_out(pair, made, y, 2, 4, "weighted")
    assert not _losses.try_out(lambda made, y: 1 / 0, made, y, 2, 4, "mean"), "what fails is said by the export"
    with pytest.raises(core.PipelineError, match="pass reduction='sum'"):
        _losses.try_out(total, made, y, 2, 4, "mean")
    with pytest.warns(core.PipelineWarning, match="compares the samples"):
        assert _losses.try_out(lambda made, y: (made @ y.T).logsumexp(1).mean(), made, y, 2, 4, "mean")


def test_batches_are_checked() -> None:
    x = torch.zeros(6, 2)
    assert _batch.samples_of([x, 3], 3) == 2
    assert _batch.divided(x, 3).shape == (3, 2, 2)
    with pytest.raises(core.PipelineError, match="use a batch of 4 or 8 samples"):
        _batch.samples_of([x], 4)
    with pytest.raises(core.PipelineError, match="same first dimension, the number of samples; got 5, 6"):
        _batch.samples_of([x, torch.zeros(5)], 3)
    with pytest.raises(core.PipelineError, match="got no tensor"):
        _batch.samples_of([3], 3)


def test_hyperparameters_that_change_are_followed() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    rule = OptimizerRule(torch.optim.AdamW([parameter], lr=0.1), {id(parameter): "p"})
    assert not rule.changed()
    rule.optimizer.param_groups[0]["lr"] = 0.2  # followed from the beginning
    assert not rule.changed()
    rule.optimizer.param_groups[0]["betas"] = (0.8, 0.999)
    assert rule.changed() and not rule.changed()
    rule.optimizer.param_groups[0]["betas"] = (0.7, 0.999)
    assert not rule.changed()
    rule.optimizer.param_groups[0]["amsgrad"] = True  # a switch is part of what is compiled
    assert rule.changed()


def test_numbers_become_tensors_where_they_meet_some() -> None:
    x, y, number = torch.randn(3), torch.rand(3) + 1, torch.tensor(0.37)
    cases: list[Any] = [
        lambda n: x + n,
        lambda n: x - n,
        lambda n: n - x,
        lambda n: x * n,
        lambda n: x / n,
        lambda n: x.add(y, alpha=n),
        lambda n: x.sub(y, alpha=n),
        lambda n: x.lerp(y, n),
        lambda n: x.addcmul(x, y, value=n),
        lambda n: x.addcdiv(x, y, value=n),
        lambda n: n**y,
        lambda n: torch.full_like(x, n),
    ]
    for number_of, case in enumerate(cases):
        with NumbersAsTensors({0.123: number}):
            got = case(0.123)
        torch.testing.assert_close(got, case(0.37), msg=f"case {number_of}")


def test_plans_without_a_model() -> None:
    plan = pipelines.plan("1f1b", stages=4, microbatches=8)
    assert plan.bubble == pytest.approx(3 / 11) == plan.theory
    assert "1f1b, planned: 4 stages on 4 slices, 8 microbatches; bubble 27.3%, in theory 27.3%" in str(plan)
    slow = [schedules.Costs(), schedules.Costs(2, 2, 2)]
    unequal = pipelines.plan("gpipe", stages=2, microbatches=4, costs=slow)
    assert unequal.bubble > unequal.theory
    with pytest.raises(core.PipelineError, match="costs must be of all 2 stages, got 3"):
        pipelines.plan("gpipe", stages=2, microbatches=4, costs=[*slow, slow[0]])
    with pytest.raises(core.PipelineError, match="must be a multiple of slices"):
        pipelines.plan("interleaved", stages=3, slices=2, microbatches=4)


def test_bench_figures() -> None:
    seconds = {"ptpathways, 1f1b": [1.0], "ptpathways, zero-bubble": [2.0], "one device": [1.5]}
    seconds[_pipelining.PEER] = [3.0]
    records = _pipelining.figures(Setting("pipeline", 4, 4), 32, seconds)
    by_variant = {record.variant: record.median for record in records}
    assert by_variant["real, 1f1b"] == 32 and by_variant["real, 1f1b: times one device"] == 1.5
    assert by_variant[f"real, 1f1b: times {_pipelining.PEER}"] == 3
    answers = {
        stages: [{"seconds": time, "bubble": 0.1, "theory": 0.1, "submit_seconds": 1e-3, "stall_us": 10.0}]
        for stages, time in ((4, 0.5), (16, 1.0))
    }
    found = {record.variant: record for record in _pipelining.simulated_figures({"1f1b": answers})}
    assert found["simulated, 1f1b: bubble against theory"].median == 1
    ratios = {
        record.system: record.median
        for record in _pipelining.simulated_figures({"1f1b": answers})
        if "S16" in record.variant
    }
    assert ratios == {"ptpathways": 0.5, "theory": pytest.approx(1.0)}
