"""Pipelines on real workers, each compared with eager PyTorch on the full batch. One process, one cluster.

python pipeline_scenarios.py training|handling
"""

from __future__ import annotations

import copy
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways import schedules
from ptpathways.frontend import session
from tests.proc import pipeline_models as models
from tests.proc.cluster_scenarios import WAIT_S, Scenario, refused, run

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Batch = Callable[[int, torch.Generator], tuple[Tensor, ...]]

STEPS = 4
SAMPLES = 8


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def slices_of(cluster: pw.Cluster, count: int, devices: int = 1) -> list[pw.VirtualSlice]:
    return [cluster.slice((devices,)) for _ in range(count)]


def agrees(
    pipe: pw.Pipeline,
    eager: nn.Module,
    make: Make,
    loss: Callable[..., Tensor] | None,
    batch: Batch,
    *,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    tolerance: float = 1e-5,
) -> list[float]:
    """Trains both for some steps; losses and parameters must agree. Returns the losses."""
    optimizer = make(eager.parameters())
    schedulers = [schedule(one) for one in (optimizer, pipe.optimizer)] if schedule else []
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        data = batch(SAMPLES, generator)
        got = pipe.step(*data)
        assert isinstance(got, pw.Future)
        optimizer.zero_grad()
        wanted = loss(eager(*data[:-1]), data[-1]) if loss else eager(*data)
        wanted.backward()
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        losses.append(float(got.result(WAIT_S)))
        assert abs(losses[-1] - wanted.item()) < tolerance, (losses[-1], wanted.item())
    for (name, one), (_, other) in zip(pipe.module.named_parameters(), eager.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=tolerance), (name, (one - other).abs().max())
    return losses


def trained(
    cluster: pw.Cluster,
    model: nn.Module,
    make: Make,
    loss: Callable[..., Tensor] | None,
    batch: Batch,
    *,
    ranks: int,
    devices: int = 1,
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    **options: Any,
) -> pw.Pipeline:
    """A pipeline over ``model`` that agrees with eager PyTorch."""
    eager = copy.deepcopy(model)
    pipe = pw.pipeline(
        model,
        microbatches=options.pop("microbatches", 4),
        slices=slices_of(cluster, ranks, devices),
        loss=loss,
        optimizer=make,
        **{"stages": ranks, **options},
    )
    agrees(pipe, eager, make, loss, batch, schedule=scheduler)
    return pipe


def trained_gpt(cluster: pw.Cluster, make: Make = sgd, **options: Any) -> pw.Pipeline:
    torch.manual_seed(0)
    return trained(cluster, models.Gpt(), make, models.language_loss, models.language_batch, **options)


def two_stages_with_each_schedule(cluster: pw.Cluster) -> None:
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        torch.manual_seed(0)
        trained(cluster, models.perceptron(), sgd, F.mse_loss, models.regression_batch, ranks=2, schedule=schedule)


def slices_of_equal_parts_when_none_are_given(cluster: pw.Cluster) -> None:
    torch.manual_seed(0)
    eager = models.perceptron()
    pipe = pw.pipeline(copy.deepcopy(eager), stages=2, microbatches=4, loss=F.mse_loss, optimizer=sgd)
    assert [len(slice.devices) for slice in pipe.slices] == [cluster.device_count // 2] * 2
    assert not set(pipe.slices[0].devices) & set(pipe.slices[1].devices)
    agrees(pipe, eager, sgd, F.mse_loss, models.regression_batch)
    loss = pipe.step(*models.regression_batch(SAMPLES, torch.Generator().manual_seed(2)))
    assert float(loss) == loss.item() and f"{loss:.3f}" == f"{loss.result():.3f}"
    refused = pytest.raises(pw.PipelineError, match=f"each of 99 stages .* has {cluster.device_count}; give slices=")
    with refused:
        pw.pipeline(models.perceptron(), stages=99, microbatches=4, loss=F.mse_loss, optimizer=sgd)


def four_stages_with_each_schedule(cluster: pw.Cluster) -> None:
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        trained_gpt(cluster, ranks=4, schedule=schedule)


def interleaved_stages(cluster: pw.Cluster) -> None:
    """Four stages on two slices; microbatches in groups of two."""
    pipe = trained_gpt(cluster, ranks=2, stages=4, schedule="interleaved")
    assert pipe.size.chunks == 2 and len(pipe.stages()) == 4


def tied_weights(cluster: pw.Cluster) -> None:
    """The first and the last stage use one parameter: gradients of both uses are summed."""
    for schedule in ("1f1b", "zero-bubble"):
        torch.manual_seed(0)
        pipe = trained(
            cluster,
            models.Gpt(tied=True),
            adamw,
            models.language_loss,
            models.language_batch,
            ranks=4,
            schedule=schedule,
        )
        first, *_, last = pipe.stages()
        assert "token.weight" in first and "token.weight" in last
        module: Any = pipe.module
        assert module.head.weight is module.token.weight


def skipped_values(cluster: pw.Cluster) -> None:
    """What a stage makes is used by several later ones, not only by the next; also with recomputation."""
    for options in ({"schedule": "1f1b"}, {"schedule": "zero-bubble", "recompute": True}):
        torch.manual_seed(0)
        trained(cluster, models.Skips(), sgd, F.mse_loss, models.regression_batch, ranks=3, **options)


def several_devices_in_a_stage(cluster: pw.Cluster) -> None:
    """Each microbatch is divided over a slice's devices; parameters are copies, or divided as a rule says."""

    def rule(name: str, value: Tensor) -> Any:
        return ("x", None) if name.endswith("mlp.0.weight") else None

    for placements in (None, rule):
        trained_gpt(cluster, adamw, ranks=2, devices=2, microbatches=2, placements=placements)


def optimizers_and_schedulers(cluster: pw.Cluster) -> None:
    """Learning rates and momenta that change at every step are inputs: traced once, twice where momenta begin to."""

    def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS + 1)

    def decay(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    cases: list[tuple[Make, Any]] = [
        (sgd, decay),
        (sgd, one_cycle),
        (adamw, decay),
        (lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.95)), one_cycle),
        (lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5), decay),
        (lambda p: torch.optim.NAdam(p, lr=1e-3), decay),
        (lambda p: torch.optim.SGD(p, lr=0.1), None),
        (lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3)), None),
    ]
    for make, scheduler in cases:
        torch.manual_seed(0)
        trained(cluster, models.perceptron(), make, F.mse_loss, models.regression_batch, ranks=2, scheduler=scheduler)


def a_rate_of_0(cluster: pw.Cluster) -> None:
    """At the first step of a warm-up, also of elements without gradients, by whose moments Adam divides."""

    def warm_up(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 2))

    def every_other(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) % 2)

    for scheduler in (warm_up, every_other):
        torch.manual_seed(0)
        model = models.perceptron()
        weight, bias = itertools.islice(model.parameters(), 2)
        with torch.no_grad():
            weight[0], bias[0] = 0.0, -100.0  # behind a ReLU
        trained(cluster, model, adamw, F.mse_loss, models.regression_batch, ranks=2, scheduler=scheduler)


def parameter_groups(cluster: pw.Cluster) -> None:
    """Each group keeps its own hyperparameters; what is frozen stays."""
    torch.manual_seed(0)
    model = models.Gpt()
    model.blocks[1].requires_grad_(False)

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        found = list(parameters)
        plain = [one for one in found if one.dim() < 2]
        return torch.optim.AdamW(
            [{"params": [one for one in found if one.dim() >= 2], "weight_decay": 0.1}, {"params": plain, "lr": 5e-3}],
            lr=1e-3,
            weight_decay=0.0,
        )

    trained(cluster, model, make, models.language_loss, models.language_batch, ranks=2)


def the_module_gives_the_loss(cluster: pw.Cluster) -> None:
    torch.manual_seed(0)
    trained(cluster, models.GptWithLoss(), adamw, None, models.language_batch, ranks=2)


def models_of_a_library(cluster: pw.Cluster) -> None:
    """GPT-2 (tied) and Llama of transformers as they are; what they return is an object with the logits in it."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    def loss(out: Any, targets: Tensor) -> Tensor:
        return models.language_loss(out.logits, targets)

    gpt2 = GPT2Config(
        n_layer=2, n_embd=16, n_head=2, vocab_size=models.VOCABULARY, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    llama = LlamaConfig(
        num_hidden_layers=2, hidden_size=16, intermediate_size=32, num_attention_heads=2, vocab_size=models.VOCABULARY,
        max_position_embeddings=16,
    )  # fmt: skip
    for make in (lambda: GPT2LMHeadModel(gpt2), lambda: LlamaForCausalLM(llama)):
        torch.manual_seed(0)
        trained(cluster, make().train(), sgd, loss, models.language_batch, ranks=2, schedule="zero-bubble")


def cuts_that_the_user_chose(cluster: pw.Cluster) -> None:
    assert len(trained_gpt(cluster, ranks=1, stages=[]).stages()) == 1
    pipe = trained_gpt(cluster, ranks=3, stages=["blocks.1", "norm"])
    assert pipe.stages()[2] == ["norm.weight", "norm.bias", "head.weight"], pipe.stages()


def dropout(cluster: pw.Cluster) -> None:
    """A microbatch's backward pass uses the masks of its forward pass, with every schedule and with recomputation."""

    class Masked(nn.Module):
        """Its loss is the sum of what dropout left of its weights, so its gradient tells the mask."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64))
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.drop(x * self.weight)
            return made

    for options in ({"schedule": "1f1b"}, {"schedule": "zero-bubble"}, {"schedule": "gpipe", "recompute": True}):
        torch.manual_seed(3)
        model = nn.Sequential(Masked(), Masked())
        pipe = pw.pipeline(
            model,
            stages=2,
            microbatches=2,
            slices=slices_of(cluster, 2),
            loss=lambda made, scale: (made * scale).sum(1).mean(),
            optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
            **options,
        )
        x, scale = torch.ones(2, 64), torch.ones(2, 64)
        first = float(pipe.step(x, scale).result(WAIT_S))
        # With weights of one the loss is 4 for each element that both layers keep, and so is its gradient.
        assert pipe.module is model
        moved = [1 - weight.detach() for weight in model.parameters()]
        for one in moved:
            assert abs(float(one.sum()) - first) < 1e-4, (float(one.sum()), first)
            assert set(one.tolist()) <= {0.0, 2.0, 4.0}, one
        torch.testing.assert_close(moved[0], moved[1])
        assert 0 < first < 2 * 64
        second = float(pipe.step(x, scale).result(WAIT_S))
        assert second != first, "another step has other masks"


def values_on_request(cluster: pw.Cluster) -> None:
    """state_dict, load_state_dict and checkpoints, also into another number of stages; training goes on the same."""
    torch.manual_seed(0)
    model = models.Gpt(tied=True)
    fresh = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(5)
    batches = [models.language_batch(SAMPLES, generator) for _ in range(4)]

    def make(module: nn.Module, ranks: int, schedule: str) -> pw.Pipeline:
        return pw.pipeline(
            module,
            stages=ranks,
            microbatches=4,
            schedule=schedule,
            slices=slices_of(cluster, ranks),
            loss=models.language_loss,
            optimizer=adamw,
        )

    def losses(pipe: pw.Pipeline, data: list[Any]) -> list[float]:
        return [float(pipe.step(*one).result(WAIT_S)) for one in data]

    four = make(model, 4, "1f1b")
    losses(four, batches[:2])
    state = copy.deepcopy(four.state_dict())
    assert set(state) == {"model", "optimizer"} and set(state["model"]) == set(fresh.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        pw.save(Path(folder) / "run", pipe=four).wait()
        wanted = losses(four, batches[2:])
        two = make(copy.deepcopy(fresh), 2, "gpipe")
        pw.load(Path(folder) / "run", pipe=two)
    torch.testing.assert_close(losses(two, batches[2:]), wanted)
    two.load_state_dict(state)  # after steps, too
    torch.testing.assert_close(losses(two, batches[2:]), wanted)
    eager = copy.deepcopy(fresh)  # and by eager PyTorch
    eager.load_state_dict(state["model"])
    optimizer = adamw(eager.parameters())
    optimizer.load_state_dict(state["optimizer"])
    for data, loss in zip(batches[2:], wanted, strict=True):
        optimizer.zero_grad()
        found = models.language_loss(eager(data[0]), data[1])
        found.backward()
        optimizer.step()
        assert abs(found.item() - loss) < 1e-5


def a_step_does_not_wait(cluster: pw.Cluster) -> None:
    """After the first steps a step is one message per host, and its loss a future; batches may be futures."""
    torch.manual_seed(0)
    slices = slices_of(cluster, 2)
    pipe = pw.pipeline(models.perceptron(), stages=2, microbatches=4, slices=slices, loss=F.mse_loss, optimizer=adamw)
    x, y = models.regression_batch(SAMPLES, torch.Generator().manual_seed(1))
    wanted = [float(pipe.step(x, y).result(WAIT_S)) for _ in range(3)]
    before, runs = pw.wait_stats().count, session().transfer_stats()["runs"]
    losses = [pipe.step(x, y) for _ in range(10)]
    assert pw.wait_stats().count == before
    assert session().transfer_stats()["runs"] == runs + 10  # of programs, each one message per host
    assert float(losses[-1].result(WAIT_S)) < wanted[-1]
    held = pw.put((x, y), slices[0])
    assert float(pipe.step(*held).result(WAIT_S)) < wanted[-1]


def plans(cluster: pw.Cluster) -> None:
    """A plan says its bubble and theory's."""
    torch.manual_seed(0)
    pipe = pw.pipeline(
        models.Gpt(),
        stages=4,
        microbatches=8,
        slices=slices_of(cluster, 4),
        loss=models.language_loss,
        optimizer=adamw,
    )
    refused(pw.PipelineError, "plan(*batch)", pipe.plan)
    batch = models.language_batch(SAMPLES, torch.Generator().manual_seed(1))
    made = pipe.plan(*batch)
    assert made.theory > 0 and made.bubble >= made.theory - 0.05, made.title
    assert "1f1b, planned: 4 stages on 4 slices, 8 microbatches; bubble" in str(made)
    equal = pipe.plan(costs=pw.pipelines.Costs(1, 1, 1))
    assert abs(equal.bubble - 3 / 11) < 1e-9 and abs(equal.theory - 3 / 11) < 1e-9
    refused(pw.PipelineError, ["no step was taken", "pipe.step(*batch)"], pipe.measured)


def the_measured_schedule(cluster: pw.Cluster) -> None:
    """What devices on two hosts did: every action of the schedule on its slice, one after the other."""
    x, y = torch.randn(256, 512), torch.randn(256, 512)
    for schedule, stages in (("gpipe", 4), ("1f1b", 4), ("interleaved", 8), ("zero-bubble", 4)):
        pipe = pw.pipeline(
            nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(stages))),
            stages=stages,
            microbatches=4,
            schedule=schedule,
            slices=slices_of(cluster, 4),
            loss=F.mse_loss,
            optimizer=sgd,
        )
        assert {slice.devices[0] for slice in pipe.slices} == {0, 1, 2, 3}, "two on each host"
        for _ in range(6):
            pipe.step(x, y)
        made = pipe.measured()  # waits
        planned = pipe.plan()
        for rank in range(4):
            spans = made.timeline.of_rank(rank)
            assert {span.action for span in spans} == {span.action for span in planned.timeline.of_rank(rank)}
            assert len(spans) == len(planned.timeline.of_rank(rank))
            assert all(one.end <= after.start for one, after in itertools.pairwise(spans)), spans
        assert made.measured and 0 < made.bubble < 1 and made.theory == planned.theory
        assert f"{schedule}, measured: {stages} stages on 4 slices" in made.title
        assert made.svg().count("<title>") == len(planned.timeline.spans) and made.timeline.start == 0
        whole = [span for span in made.timeline.spans if span.end > span.start]
        assert len(whole) > len(made.timeline.spans) / 2, "a thread that tells of an end may be late, not all of them"
        early = _starts_too_early(made)
        for _ in range(20):  # the threads that tell of it may be late, on a machine that is busy
            if not early:
                break
            pipe.step(x, y)
            made = pipe.measured()
            early &= _starts_too_early(made)
        assert not early, "too early in every step"
        assert pipe.measured() == made, "nothing has run since"
        for slice in pipe.slices:
            slice.release()


def _starts_too_early(made: pw.pipelines.Plan) -> set[schedules.Action]:
    """Forward passes that began before the stage before had ended."""
    forward = {
        (span.action.stage, span.action.microbatch): span
        for span in made.timeline.spans
        if span.action.kind is schedules.Kind.FORWARD
    }
    pairs = [(forward[stage - 1, number], one) for (stage, number), one in forward.items() if stage]
    return {one.action for before, one in pairs if one.start < before.end}


def what_is_measured_after_a_failure(cluster: pw.Cluster) -> None:
    """The last whole step; a moved slice has none."""
    slices = slices_of(cluster, 2)
    pipe = pw.pipeline(models.perceptron(), stages=2, microbatches=4, slices=slices, loss=F.mse_loss, optimizer=sgd)
    batch = models.regression_batch(SAMPLES, torch.Generator().manual_seed(1))
    pipe.plan(*batch)
    refused(pw.PipelineError, "no step was taken", pipe.measured)
    for _ in range(3):
        loss = pipe.step(*batch)
    del loss
    assert len(pipe.measured().timeline.spans) == 16
    state = pipe.state_dict()
    place = slices[0].devices
    slices[0].move(hosts=["host1" if place[0] < 2 else "host0"])
    assert slices[0].devices != place and len(pipe.measured().timeline.spans) == 16, "where it ran"
    pipe.load_state_dict(state)
    pipe.step(*batch)
    assert len(pipe.measured().timeline.spans) == 16


def bad_input(cluster: pw.Cluster) -> None:
    """Every mistake is refused with what was required and what was got."""
    slices = slices_of(cluster, 4)
    batch = models.regression_batch(SAMPLES, torch.Generator().manual_seed(1))

    def make(model: nn.Module, **options: Any) -> pw.Pipeline:
        given: dict[str, Any] = {"stages": 2, "microbatches": 4, "slices": slices[:2], "loss": F.mse_loss}
        return pw.pipeline(model, optimizer=sgd, **{**given, **options})

    small = models.perceptron()
    refused(pw.ModelCannotBeCut, "9 stages need at least as many blocks", lambda: make(small, stages=9))
    refused(
        pw.PipelineError,
        ["microbatches=3 must divide the batch, got a batch of 8 samples; use a batch of 6 or 9"],
        lambda: make(small, microbatches=3).step(*batch),
    )
    refused(pw.PipelineError, "must have samples", lambda: make(small).step(*(entry[:0] for entry in batch)))
    counted = make(small, loss=lambda output, target: (F.mse_loss(output, target), 3))
    refused(pw.ModelCannotBeCut, "a number of Python beside it", lambda: counted.step(*batch))
    refused(pw.PipelineError, "microbatches must be an integer", lambda: make(small, microbatches=0))
    refused(pw.PipelineError, "'zero-bubble', got 'best'", lambda: make(small, schedule="best"))
    refused(pw.PipelineError, "got 4 stages and 3 slices", lambda: make(small, stages=4, slices=slices[:3]))
    refused(pw.PipelineError, "runs one stage per slice", lambda: make(small, stages=4, schedule="1f1b"))
    refused(
        pw.PipelineError,
        "use 4 or 6",
        lambda: make(small, stages=4, microbatches=5, schedule="interleaved"),
    )
    refused(pw.ModelCannotBeCut, "no module '9'", lambda: make(small, stages=["9"]))
    refused(pw.ModelCannotBeCut, "in the order in which they run", lambda: make(small, stages=["0"]).step(*batch))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.inner(x)
            return made

    refused(pw.ModelCannotBeCut, ["Whole has no sequence of blocks", "inner"], lambda: make(Whole()))

    class Branching(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            for block in self:
                x = block(x)
                if x.sum() > 0:
                    x = -x
            return x

    said = refused(
        pw.ModelCannotBeCut,
        "as a fixed sequence of operations failed",
        lambda: make(Branching(nn.Linear(4, 4), nn.Linear(4, 1))).step(*batch),
    )
    assert "pipeline_scenarios.py:" in said, said
    running = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    refused(pw.ModelCannotBeCut, "running", lambda: make(running).step(*batch))
    refused(
        pw.ModelCannotBeCut, "must give one scalar", lambda: make(small, loss=lambda made, wanted: made).step(*batch)
    )
    refused(pw.PipelineError, "same first dimension", lambda: make(small).step(batch[0], batch[1][:4]))
    large = nn.Sequential(nn.Linear(4, 8000), nn.Linear(8000, 8000), nn.Linear(8000, 1))
    refused(
        pw.OutOfDeviceMemory,
        ["stage 1 needs", "on each device of slice", "of parameters", "use more stages"],
        lambda: make(large).step(*batch),
    )
    refused(
        pw.PipelineError,
        "Adagrad reads values",
        lambda: pw.pipeline(
            models.perceptron(),
            stages=2,
            microbatches=2,
            slices=slices[:2],
            loss=F.mse_loss,
            optimizer=lambda p: torch.optim.Adagrad(p, lr=0.1),
        ).step(*batch),
    )
    other = nn.Linear(2, 2)
    refused(
        pw.PipelineError,
        "no parameter of the model",
        lambda: pw.pipeline(
            small,
            stages=2,
            microbatches=2,
            slices=slices[:2],
            loss=F.mse_loss,
            optimizer=lambda p: torch.optim.SGD(other.parameters(), lr=0.1),
        ),
    )


TRAINING: list[Scenario] = [
    two_stages_with_each_schedule,
    slices_of_equal_parts_when_none_are_given,
    four_stages_with_each_schedule,
    interleaved_stages,
    tied_weights,
    skipped_values,
    several_devices_in_a_stage,
    optimizers_and_schedulers,
    a_rate_of_0,
    parameter_groups,
]
HANDLING: list[Scenario] = [
    the_module_gives_the_loss,
    models_of_a_library,
    cuts_that_the_user_chose,
    dropout,
    values_on_request,
    a_step_does_not_wait,
    plans,
    the_measured_schedule,
    what_is_measured_after_a_failure,
    bad_input,
]

if __name__ == "__main__":
    run({"training": TRAINING, "handling": HANDLING}[sys.argv[1]], hosts=2, islands=2)
