"""Scenarios of captured steps whose tensors graphs of autograd hold, or other tensors as gradients, which Python's
names do not show. Also what autograd refuses, because a step has written what a graph has saved."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from tests.proc.capture_basis import SAID, Capture, batches, expect, network, numbers

REFUSED = -1000.0


def _train(model: Any, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


class _Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return weight * kept.sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return gradient * kept.sum(), None


KEEPING: dict[str, Callable[[Tensor, Any, Any], Tensor]] = {
    "a product": lambda weight, model, held: held.loss * weight,
    "a function of one's own": lambda weight, model, held: _Saving.apply(weight, held.loss),  # type: ignore[no-untyped-call]
    "a gradient": lambda weight, model, held: (model[0].weight.grad * weight).sum(),
    "a result that is kept, too": lambda weight, model, held: (held.out * weight).sum(),
}


def saved_by_graphs(places: list[torch.device], capture: Capture) -> list[float]:
    """What a step has left behind is saved for a backward pass that comes after the next call."""
    place, found = places[0], list[Tensor | None]()
    for keep in KEEPING.values():
        torch.manual_seed(0)
        model = network().to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        weight = torch.ones((), device=place, requires_grad=True)
        held = types.SimpleNamespace(loss=None, out=None)

        @capture
        def step(
            x: Tensor, y: Tensor, model: Any = model, optimizer: Any = optimizer, held: Any = held
        ) -> Tensor | None:
            held.loss = _train(model, optimizer, x.to(place), y.to(place)).detach()
            held.out = model(x.to(place)).detach()
            kept: Tensor = held.out
            return kept

        before = None
        for x, y in batches(10):
            step(x, y)
            if before is not None:
                weight.grad = None
                before.backward()
                found.append(weight.grad)
            before = keep(weight, model, held)
        expect(step, texts=("of an earlier call is still held",))
        SAID.clear()
    return numbers([one.clone() for one in found if one is not None])


def gradients_of_other_tensors(places: list[torch.device], capture: Capture) -> list[float]:
    """Another model's parameters are given the gradients, and trained with them after the next call."""
    place = places[0]
    model, shared = network().to(place), network().to(place)
    shared.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.05)

    @capture
    def gradients(x: Tensor, y: Tensor) -> None:
        model.zero_grad()
        F.mse_loss(model(x.to(place)), y.to(place)).backward()

    for x, y in batches(12):
        gradients(x, y)
        optimizer.step()  # with those of the call before
        optimizer.zero_grad()
        for mine, theirs in zip(shared.parameters(), model.parameters(), strict=True):
            mine.grad = theirs.grad
    expect(gradients, texts=("of an earlier call is still held",))
    return numbers([one.detach().sum() for one in shared.parameters()])


def graphs_over_a_step(places: list[torch.device], capture: Capture) -> list[float]:
    """A graph has saved a parameter or a buffer that the step writes: its backward pass is refused, as in PyTorch.
    Batch normalisation writes its statistics without a word."""
    place = places[0]
    model = network(nn.BatchNorm1d(16, affine=False)).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    count = torch.zeros(2, device=place)

    @capture
    def step(x: Tensor, y: Tensor) -> None:
        model.train()
        count.add_(1.0)
        _train(model, optimizer, x.to(place), y.to(place))
        model.eval()

    weight = torch.ones(2, device=place, requires_grad=True)
    fixed = torch.ones(3, 8, device=place, requires_grad=True)
    found: list[float] = []

    def backward(graph: Tensor, of: Tensor) -> None:
        try:
            found.append(float(torch.autograd.grad(graph, of)[0].sum()))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error
            found.append(REFUSED)

    for x, y in batches(12):
        model.eval()
        graphs = [
            ((weight * count).sum(), weight),
            (model[0](fixed).square().sum(), fixed),
            (model[2](fixed @ torch.ones(8, 16, device=place)).sum(), fixed),
        ]
        step(x, y)
        for graph, of in graphs:
            backward(graph, of)
    assert not hasattr(step, "replays") or step.replays >= 4, (step, SAID)
    assert found.count(REFUSED) == 24, found
    return found


LOOKS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda model: None,
    "a detach": lambda model: model[0].weight.detach(),
    "a row": lambda model: model[0].weight[0],
    "a state_dict": lambda model: model.state_dict()["0.weight"],
    "a gradient": lambda model: None if model[0].weight.grad is None else model[0].weight.grad.detach(),
}


def memory_renewed(places: list[torch.device], capture: Capture) -> list[float]:
    """A step that assigns to ``.data`` gives a parameter other memory: who has the former keeps its values."""
    place, found = places[0], list[Tensor]()
    for what, look in LOOKS.items():
        torch.manual_seed(0)
        model = network().to(place)

        @capture
        def step(x: Tensor, y: Tensor, model: Any = model) -> Tensor:
            model.zero_grad()
            loss = F.mse_loss(model(x.to(place)), y.to(place))
            loss.backward()
            for parameter in model.parameters():
                parameter.data = parameter.data - 0.05 * parameter.grad
                parameter.grad.data = parameter.grad * 2
            return loss.detach()

        SAID.clear()
        for x, y in batches(10):
            before = look(model)
            found.append(step(x, y))
            found += [] if before is None else [before.detach().sum().clone()]
        if what == "nothing":
            expect(step, replays=7, said=0)
        else:
            expect(step, said=1, texts=("of an earlier call is still held",))
        found += [one.detach().sum().clone() for one in model.parameters()]
    return numbers(found)


def memory_returned(places: list[torch.device], capture: Capture) -> list[float]:
    """What a step gives a tensor for its memory, and returns, follows what the next call writes there."""
    weight = torch.ones(2).to(places[0])

    def step(x: Tensor) -> Tensor:
        weight.add_(1)
        made = weight * x.to(places[0]).sum()
        weight.data = made
        return made

    captured = capture(step)
    kept = [captured(torch.ones(2)) for _ in range(8)]
    expect(captured, replays=0, said=1, texts=("for its memory",))
    return numbers([one.sum() for one in (*kept, weight)])


def memory_held_once(places: list[torch.device], capture: Capture) -> list[float]:
    """A view that is kept of one call's memory: that call is traced, and nothing is said to be wrong."""
    held, kept, found = types.SimpleNamespace(b=torch.ones(2).to(places[0])), [], []

    @capture
    def step(x: Tensor) -> Tensor:
        held.b.mul_(x.to(places[0]))
        held.b.data = held.b.data.clamp(-9, 9)
        total: Tensor = held.b.sum()
        return total

    for number in range(12):
        found.append(step(torch.full((2,), 1.5)))
        if number == 5:
            kept.append(held.b.data[0])
    expect(step, texts=("of an earlier call is still held",))
    return numbers([*found, *kept])


def state_and_a_view_of_it(places: list[torch.device], capture: Capture) -> list[float]:
    """A result that is written is the state that the step has left behind."""
    place = places[0]
    model, held, found = network().to(place), types.SimpleNamespace(out=None), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        _train(model, optimizer, x.to(place), y.to(place))
        held.out = model(x.to(place)).detach()
        return held.out, held.out.detach()

    for x, y in batches(8):
        state, view = step(x, y)
        view.fill_(3.0)
        found += [state.sum(), held.out.sum().clone()]
    expect(step, replays=0, said=1, texts=("and a view of it",))
    return numbers(found)


def graphs_from_outside(places: list[torch.device], capture: Capture) -> list[float]:
    """A backward pass that goes on into a graph of the loop: of an argument, or of a tensor that the step can reach."""
    place = places[0]
    encoder, model, kept = nn.Linear(8, 8).to(place), network().to(place), types.SimpleNamespace(hidden=None)

    @capture
    def given(hidden: Tensor) -> Tensor:
        loss: Tensor = model(hidden).square().mean()
        loss.backward()
        return loss.detach()

    @capture
    def reached() -> Tensor:
        loss: Tensor = model(kept.hidden).square().mean()
        loss.backward()
        return loss.detach()

    found: list[Tensor] = []
    for x, _ in batches(12):
        encoder.zero_grad()
        kept.hidden = encoder(x.to(place))
        found += [given(encoder(x.to(place)).clone()), reached()]
        assert encoder.weight.grad is not None
        found.append(encoder.weight.grad.sum().clone())
    expect(given, replays=0, said=1, texts=("goes on into the graph of argument 0",))
    expect(reached, replays=0, said=1, texts=("goes on into the graph of kept.hidden",))
    return numbers(found)


def one_gradient(places: list[torch.device], capture: Capture) -> list[float]:
    """A parameter is given the gradient of another one, or a state of its optimizer, which the step parts again."""
    found = []
    for which in range(4):
        torch.manual_seed(0)
        first, second = nn.Linear(8, 3).to(places[0]), nn.Linear(8, 3).to(places[0])
        optimizer = torch.optim.SGD(second.parameters(), lr=0.05, momentum=0.9)

        @capture
        def step(
            x: Tensor,
            first: nn.Module = first,
            second: nn.Module = second,
            optimizer: torch.optim.SGD = optimizer,
        ) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (second(x.to(places[0])) - first(x.to(places[0]))).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        for call, (x, _) in enumerate(batches()):
            found.append(float(step(x)))
            if which == 0 or (which == 1 and call % 6 == 5):
                second.weight.grad = first.weight.grad
            elif which == 2 and call % 6 == 5:
                first.weight.grad = second.weight.grad
            elif which == 3 and call % 6 == 5:
                second.weight.grad = optimizer.state[second.weight]["momentum_buffer"]
        for parameter in (*first.parameters(), *second.parameters()):
            found.append(float(parameter.detach().sum()))
            if parameter.grad is not None:
                found.append(float(parameter.grad.detach().sum()))
        found.append(float(first.weight.grad is second.weight.grad))
        if isinstance(step, pw.CapturedStep):
            assert bool(step.replays) == bool(which), (which, step)
    return found


def gradients_beside(places: list[torch.device], capture: Capture) -> list[float]:
    """What becomes of gradients that a step does not use is no business of its."""
    torch.manual_seed(0)
    model, average = nn.Linear(8, 3).to(places[0]), nn.Linear(8, 3).to(places[0])
    x, _ = batches()[0]
    (model(x.to(places[0])) * average(x.to(places[0]))).sum().backward()
    model(x.to(places[0])).sum().backward()

    @capture
    def step(momentum: float) -> Tensor:
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(parameter, momentum)
            return average.weight.sum()

    found = []
    for call in range(20):
        found.append(float(step(0.1)))
        if call == 6:
            average.weight.grad = model.weight.grad
    if isinstance(step, pw.CapturedStep):
        assert step.replays + step.audits > 14, step
    assert average.weight.grad is model.weight.grad
    return found


def handles_of_hooks(places: list[torch.device], capture: Capture) -> list[float]:
    """In an object that is compared as a whole: it refers weakly to tables of the module."""
    torch.manual_seed(0)
    model, found = nn.Linear(3, 2).to(places[0]), []
    kept = types.SimpleNamespace(model=model, scale=torch.ones(()).to(places[0]))

    def doubled(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * 2

    kept.handle = model.register_forward_hook(doubled)

    @capture
    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = (kept.model(x) * kept.scale).sum()
            return result

    for call in range(18):
        if call == 6:
            kept.handle.remove()
        if call == 10:
            kept.handle = model.register_forward_hook(doubled)
        found.append(float(step(torch.full((2, 3), float(call)).to(places[0]))))
    if isinstance(step, pw.CapturedStep):
        assert step.replays + step.audits > 8, step
    return found


SCENARIOS = (
    handles_of_hooks,
    one_gradient,
    gradients_beside,
    graphs_from_outside,
    memory_renewed,
    memory_returned,
    memory_held_once,
    state_and_a_view_of_it,
    saved_by_graphs,
    gradients_of_other_tensors,
    graphs_over_a_step,
)
