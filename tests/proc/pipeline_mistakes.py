"""What a pipeline could get silently wrong: each case is what eager PyTorch gives, or an error or warning.

python pipeline_mistakes.py mistakes
"""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.cluster_scenarios import WAIT_S, Scenario, refused, run
from tests.proc.pipeline_scenarios import agrees, sgd, slices_of

WIDTH = 8


class Blocks(nn.Module):
    """Four linear blocks; ``between`` is applied after each."""

    def __init__(self, between: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.between = between
        self.register_buffer("scale", torch.full((WIDTH,), 1.5))
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x)) * self.scale
            x = x if self.between is None else self.between(x)
        return x


def batch(samples: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    return torch.randn(samples, WIDTH, generator=generator), torch.randn(samples, WIDTH, generator=generator)


def one_batch(seed: int = 0) -> tuple[Tensor, ...]:
    return batch(8, torch.Generator().manual_seed(seed))


class Pipes:
    """Makes pipelines on the same two slices."""

    def __init__(self, cluster: pw.Cluster) -> None:
        self.slices = slices_of(cluster, 2)

    def __call__(self, model: nn.Module, **options: Any) -> pw.Pipeline:
        given: dict[str, Any] = {"stages": 2, "microbatches": 4, "loss": F.mse_loss, "optimizer": sgd}
        return pw.pipeline(model, slices=self.slices, **{**given, **options})

    def right(self, model: nn.Module, **options: Any) -> None:
        """Trains ``model`` and a copy of it in eager PyTorch."""
        eager = copy.deepcopy(model)
        agrees(self(model, **options), eager, sgd, F.mse_loss, batch)

    def refuses(self, model: nn.Module, said: str | list[str], **options: Any) -> str:
        return refused(pw.ModelCannotBeCut, said, lambda: self(model, **options).step(*one_batch()))


def _column(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = x[:, 1] * 2
    return x


def _part(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, :4].mul_(2.0)
    x.t().add_(0.1)
    return x


def _copy(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[:, :4] = x[:, 4:]
    y[:, 4:] = x[:, :4]
    return y.copy_(y * 2)


def _numbers(x: Tensor) -> Tensor:
    x = x * 2
    x[:, 0] = 0.0
    x[x > 1] = 0.1
    x.narrow(1, 2, 2).fill_(0.5)
    x.view(-1).add_(0.1)
    return x


def _positions(x: Tensor) -> Tensor:
    made = torch.zeros(WIDTH)
    made[0::2] = torch.sin(torch.arange(0, WIDTH, 2) / WIDTH)
    made[1::2] = torch.cos(torch.arange(0, WIDTH, 2) / WIDTH)
    made[3] = 1.0
    return x + made


def _without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        made = torch.zeros_like(x)
        made[:, 1] = x[:, 1]
    return x + made


def writes_through_views(cluster: pw.Cluster) -> None:
    """What is written into a part of a value is in it, and so are its gradients."""
    pipes = Pipes(cluster)
    for between in (_column, _part, _copy, _numbers, _positions, _without_gradients):
        torch.manual_seed(0)
        pipes.right(Blocks(between))


def writes_across_stages(cluster: pw.Cluster) -> None:
    """A table that every block writes into and reads: right inside a stage, refused where stages would not see it."""

    class Table(Blocks):
        writers = 4

        def forward(self, x: Tensor) -> Tensor:
            table = torch.zeros(x.shape)
            view = table.t()
            for number, block in enumerate(self.blocks):
                x = torch.tanh(block(x))
                if number < self.writers:
                    view[number] += x[:, number]
            return x + table

    pipes = Pipes(cluster)
    torch.manual_seed(0)
    pipes.refuses(Table(), ["changes a value in place that an earlier stage made", "pipeline_mistakes.py:"])
    first = Table()
    first.writers = 2
    pipes.right(first, stages=["blocks.2"])


def modes(cluster: pw.Cluster) -> None:
    """Blocks inside ``no_grad`` and ``autocast``, batch norm with fixed statistics, convolutions."""

    class Half(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                for block in list(self.blocks)[:2]:
                    x = torch.tanh(block(x))
            for block in list(self.blocks)[2:]:
                x = torch.tanh(block(x))
            return x

    class Cast(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                return super().forward(x)

    pipes = Pipes(cluster)
    torch.manual_seed(0)
    for model in (Half(), Cast()):
        pipes.right(model)
    fixed = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)) for _ in range(3)]).eval()
    for name, value in fixed.named_buffers():
        if name.endswith("running_var"):
            value.uniform_(0.5, 2)
        if name.endswith("running_mean"):
            value.normal_()
    pipes.right(fixed)
    images = nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 1), nn.Tanh(), nn.Flatten(), nn.Linear(16, WIDTH)
    )
    pipes.right(images)

    class Recurrent(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(kind(WIDTH, WIDTH, batch_first=True) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x[:, None].expand(-1, 3, -1)
            for block in self.blocks:
                x, _ = block(x)
            return x[:, -1]

    kinds: list[Any] = [nn.GRU, getattr(nn.GRU, "_orig", nn.GRU), nn.LSTM]  # PyTorch/XLA replaces the first
    for kind in kinds:
        pipes.right(Recurrent(kind))


def _copied(model: Any, x: Tensor) -> None:
    with torch.no_grad():
        model.scale.copy_(model.scale * 0.9)


def _out(model: Any, x: Tensor) -> None:
    with torch.no_grad():
        torch.mul(model.scale, 1.01, out=model.scale)


def _element(model: Any, x: Tensor) -> None:
    model.scale[0] = 1.0


def _data(model: Any, x: Tensor) -> None:
    model.scale.data.mul_(1.01)


def _clamped(model: Any, x: Tensor) -> None:
    with torch.no_grad():
        model.blocks[1].bias.clamp_(-0.05, 0.05)


class Changing(Blocks):
    def __init__(self, change: Callable[[Any, Tensor], None]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self, x)
        return super().forward(x)


def _replaced(model: Any, x: Tensor) -> None:
    model.scale = model.scale * 1.01


def _stepped(model: Any, x: Tensor) -> None:
    model.factor = model.factor * 2
    x = x + model.factor


def _doubled(model: Any, x: Tensor) -> None:
    x.mul_(2)


def _reset(model: Any, x: Tensor) -> None:
    model.blocks[1].bias.data = model.blocks[1].bias.data.clamp(-0.05, 0.05)


def changes_in_the_forward_pass(cluster: pw.Cluster) -> None:
    """A forward pass that changes parameters or buffers is refused with the name and the line."""
    pipes = Pipes(cluster)
    for change, name in (
        (_copied, "scale"),
        (_out, "scale"),
        (_element, "scale"),
        (_data, "scale"),
        (_clamped, "blocks.1.bias"),
    ):
        pipes.refuses(Changing(change), [f"changes '{name}' in its forward pass", "pipeline_mistakes.py:"])
    pipes.refuses(Changing(_replaced), "replaces 'scale'")
    stepping: Any = Changing(_stepped)
    stepping.factor = torch.ones(WIDTH)
    pipes.refuses(stepping, "replaces 'factor'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # it replaces an attribute that nothing reads
        made = []
        for _ in range(2):
            torch.manual_seed(0)
            made.append(nn.Sequential(*(nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH)) for _ in range(2))))
        agrees(pipes(made[0]), made[1], sgd, F.mse_loss, batch)
    pipes.refuses(Changing(_doubled), "changes its input in place")
    pipes.refuses(Changing(_reset), ["sets the data of a tensor", "pipeline_mistakes.py:"])
    statistics = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, track_running_stats=False))
    pipes.refuses(statistics, "takes the statistics of a batch in module '1'")


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return -gradients[0]


reverse: Any = Reverse.apply


class Counting(Blocks):
    """Counts its calls; ``used``: and computes with the number."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.calls, self.used = 0, used
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.table = x
        return super().forward(x) * (self.calls if self.used else 1)


def gradients_of_the_user(cluster: pw.Cluster) -> None:
    """Hooks and backward passes that the user wrote are refused; attributes may change if nothing depends on it."""
    pipes = Pipes(cluster)
    pipes.refuses(Blocks(reverse), ["torch.autograd.Function Reverse", "pipeline_mistakes.py:"])

    def hooked(x: Tensor) -> Tensor:
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * 2)
        return x

    def inner(x: Tensor) -> Tensor:
        return x + torch.autograd.grad(x.sum(), x, create_graph=True)[0]

    pipes.refuses(Blocks(hooked), ["registers a hook on a tensor", "pipeline_mistakes.py:"])
    pipes.refuses(Blocks(inner), "computes gradients in its forward pass")
    pipes.refuses(Counting(used=True), "changes its attributes (calls")
    torch.manual_seed(0)
    counting = Counting(used=False)
    pipes.right(counting)
    assert counting.calls == 0 and counting.table is None, "what runs is the graph"


def _labels(samples: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Of a batch with unequal numbers of targets that are ignored; of one microbatch all are."""
    x = torch.randn(samples, 3, WIDTH, generator=generator)
    y = torch.randint(WIDTH, (samples, 3), generator=generator)
    y[1, :2], y[2:4] = -100, -100
    return x, y


def _entropy(made: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(made.flatten(0, 1), y.flatten())


def _summed(made: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(made.flatten(0, 1), y.flatten(), reduction="sum"), (y != -100).sum()


class Returning(Blocks):
    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        assert y is not None
        return _entropy(super().forward(x), y)


def losses(cluster: pw.Cluster) -> None:
    """A loss that is no mean over samples is said to be none; sums and weighted means are exact if asked for."""
    pipes = Pipes(cluster)

    def compare(loss: Any, eager_loss: Any, data: Any, **options: Any) -> None:
        torch.manual_seed(0)
        model = Blocks()
        eager = copy.deepcopy(model)
        pipe = pipes(model, loss=loss, **options)
        optimizer = sgd(eager.parameters())
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            x, y = data(8, generator)
            optimizer.zero_grad()
            wanted = eager_loss(eager(x), y)
            wanted.backward()
            optimizer.step()
            got = float(pipe.step(x, y).result(WAIT_S))
            assert abs(got - wanted.item()) < 1e-4, (got, wanted.item())
        for one, other in zip(pipe.module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    def total(made: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(made, y, reduction="sum") * 1e-2

    for schedule in ("1f1b", "zero-bubble"):
        compare(_summed, _entropy, _labels, reduction="weighted", schedule=schedule)
    compare(total, total, batch, reduction="sum")
    refused(pw.PipelineError, "pass reduction='sum'", lambda: pipes(Blocks(), loss=total).step(*one_batch()))
    refused(pw.PipelineError, "pass reduction='mean'", lambda: pipes(Blocks(), reduction="sum").step(*one_batch()))
    refused(pw.PipelineError, "'mean', 'sum', 'weighted', got 'max'", lambda: pipes(Blocks(), reduction="max"))
    refused(pw.ModelCannotBeCut, "pair", lambda: pipes(Blocks(), reduction="weighted").step(*one_batch()))

    def said(model: nn.Module, loss: Any, *batches: tuple[Tensor, ...]) -> list[str]:
        pipe = pipes(model, loss=loss)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for data in batches:
                pipe.step(*data)
        return [str(one.message) for one in caught if issubclass(one.category, pw.PipelineWarning)]

    ignoring = _labels(8, torch.Generator().manual_seed(1))
    whole = (ignoring[0], ignoring[1].clamp(min=0))
    (one,) = said(Blocks(), _entropy, ignoring, ignoring)
    assert "reduction='weighted'" in one, one
    for model, loss in ((Blocks(), _entropy), (Returning(), None)):
        assert not said(model, loss, whole, whole)
        (one,) = said(model, loss, whole, ignoring, ignoring)
        assert "ignore_index=-100" in one and "have 0 to 6 others: the mean of none is NaN" in one, one

    def pairwise(made: Tensor, y: Tensor) -> Tensor:
        return (made @ y.T).logsumexp(1).mean()

    halves = tuple(one.to(torch.bfloat16) for one in one_batch())
    assert not said(Blocks().to(torch.bfloat16), F.mse_loss, halves), "bfloat16 has fewer digits"
    (one,) = said(Blocks(), pairwise, one_batch())
    assert "compares the samples" in one, one


def batches(cluster: pw.Cluster) -> None:
    """Types that eager PyTorch refuses are refused; numbers and arrays in a batch count."""
    pipes = Pipes(cluster)
    x, y = one_batch()
    pipe = pipes(Blocks())
    for wrong in (x.double(), x.long(), x.half()):
        refused(pw.PipelineError, "which eager PyTorch refuses", functools.partial(pipe.step, wrong, y))
    narrow = x[:, :5]
    got = ["cannot run on microbatches of float32[2, 5], float32[2, 8], in module 'blocks.0', Linear(in_features=8"]
    refused(pw.PipelineError, [*got, "eager PyTorch takes"], lambda: pipe.step(narrow, y))
    pipe.step(x, y)
    refused(pw.PipelineError, [*got, "the step before had float32[2, 8], float32[2, 8]"], lambda: pipe.step(narrow, y))
    refused(pw.PipelineError, "cannot run on microbatches of float32[2, 8]: TypeError", lambda: pipe.step(x))
    refused(pw.PipelineError, "must be dense and have values", lambda: pipe.step(x.to_sparse(), y))
    refused(pw.PipelineError, "meta device", lambda: pipe.step(x.to("meta"), y))
    refused(pw.PipelineError, "got a set", lambda: pipe.step({1}, x, y))
    same = [float(pipes(copy.deepcopy(pipe.module)).step(*one).result(WAIT_S)) for one in ((x, y), (x.numpy(), y))]
    assert same[0] == same[1]

    class Times(Blocks):
        def forward(self, x: Tensor, factor: Any = 1.0) -> Tensor:
            made: Tensor = super().forward(x) * factor
            return made

    model = Times()
    wanted = F.mse_loss(model(x, torch.tensor(0.3)), y).item()
    assert abs(float(pipes(model).step(x, torch.tensor(0.3), y).result(WAIT_S)) - wanted) < 1e-5


def arguments(cluster: pw.Cluster) -> None:
    """What is no function, no number or no list says what it should be."""
    pipes = Pipes(cluster)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (pw.PipelineError, "stages must be a number, or a list", {"stages": 2.0}),
        (pw.PipelineError, "stages must be a number, or a list", {"stages": True}),
        (TypeError, "optimizer must be a function", {"optimizer": torch.optim.SGD(Blocks().parameters(), lr=0.1)}),
        (TypeError, "must return a torch.optim.Optimizer", {"optimizer": lambda parameters: None}),
        (TypeError, "such as nn.MSELoss()", {"loss": nn.MSELoss}),
        (TypeError, "loss must be a function", {"loss": "mse"}),
        (TypeError, "placements must be a function", {"placements": "x"}),
        (pw.PipelineError, "several times in a step", {"optimizer": lambda p: torch.optim.LBFGS(p)}),
    ]
    for kind, said, options in wrong:
        refused(kind, said, functools.partial(pipes, Blocks(), **options))
    refused(pw.PipelineError, "must be on the CPU", lambda: pipes(Blocks().to("meta")))
    one: Any = pipes.slices[0]
    refused(
        TypeError,
        "slices must be a list",
        lambda: pw.pipeline(Blocks(), stages=1, microbatches=1, slices=one, optimizer=sgd),
    )
    raising = refused(pw.ModelCannotBeCut, "ValueError: mine", lambda: pipes(Blocks(_raise)).step(*one_batch()))
    assert "pipeline_mistakes.py:" in raising, raising


def sizes_that_depend_on_values(cluster: pw.Cluster) -> None:
    """Refused with the line; a number that is only kept is none that is computed with."""
    pipes = Pipes(cluster)
    cases: list[tuple[Callable[[Tensor], Tensor], str]] = [
        (lambda x: x * x[x > 0].sum(), "tensor whose size depends on values (aten.index.Tensor"),
        (lambda x: x * x.nonzero().shape[0], "tensor whose size depends on values (aten.nonzero"),
        (lambda x: x * x.sum().item(), "number that depends on values (aten.item"),
    ]
    for between, said in cases:
        pipes.refuses(Blocks(between), [said, "pipeline_mistakes.py:"])
    kept: list[float] = []

    def keeping(x: Tensor) -> Tensor:
        kept.append(x.sum().item())
        return x

    torch.manual_seed(0)
    pipes.right(Blocks(keeping))


def _raise(x: Tensor) -> Tensor:
    raise ValueError("mine")


SCENARIOS: list[Scenario] = [
    writes_through_views,
    writes_across_stages,
    modes,
    changes_in_the_forward_pass,
    gradients_of_the_user,
    losses,
    batches,
    sizes_that_depend_on_values,
    arguments,
]

if __name__ == "__main__":
    run({"mistakes": SCENARIOS}[sys.argv[1]], hosts=2, islands=2)
