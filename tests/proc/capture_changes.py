"""Scenarios of captured steps: what differs between two calls, and is noticed."""

from __future__ import annotations

import copy
import itertools
import queue
import threading
import types
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways.frontend.slices import _buffers
from tests.proc.capture_basis import SAID, STEPS, Capture, batches, expect, network, numbers, training_step


def guards(places: list[torch.device], capture: Capture) -> list[float]:
    """Shapes, Python numbers, train and eval, gradient mode: each is traced once, and said once, and then replayed."""
    model = network(nn.Dropout(0.0)).to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @capture
    def step(x: Tensor, y: Tensor, scale: float, train: bool) -> Tensor:
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0])) * scale
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    losses = []
    for round_ in range(9):
        kinds = [(4, 1.5, True), (6, 1.5, True), (4, 2.5, True), (4, 2.5, False)]
        for size, scale, train in kinds if round_ > 3 else kinds[:1]:
            model.train(train)
            with torch.set_grad_enabled(train):
                x, y = batches(1, size)[0]
                losses.append(step(x * (1 + round_ / 10), y, scale, train))
    expect(step, said=3, texts=("[6, 8]", "2.5", "training"))
    return numbers(losses)


def numbers_as_tensors(places: list[torch.device], capture: Capture) -> list[float]:
    """A number that differs between calls is an argument if it comes as a tensor, of the CPU or of the device."""
    model = network().to(places[0])

    @capture
    def step(x: Tensor, scale: Tensor, shift: Tensor, power: Tensor) -> Tensor:
        scaled = model(x.to(places[0])) * scale.to(places[0]) + shift * 0.25
        result: Tensor = (scaled * power.to(places[0])).sum().detach()
        return result

    found = []
    for place, (x, _) in enumerate(batches(12)):
        scale, shift = torch.tensor(0.5 + place // 3), torch.tensor(place / 3).to(places[0])
        found.append(step(x, scale, shift, torch.tensor(2 + place // 6)))
    # Two traces at first, and one for each of the two that later turns out to change.
    expect(step, replays=9, said=2, texts=("argument 1 changed", "argument 3 changed"))
    return numbers(found)


def late_rate(places: list[torch.device], capture: Capture) -> list[float]:
    """A rate that first changes long after the capture is found among the numbers then, for good."""
    model = network(nn.LeakyReLU(0.05)).to(places[0])  # a slope equal to the rate
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    step = capture(training_step(model, optimizer, places[0]))

    losses = []
    for place, (x, y) in enumerate(batches()):
        if place % 4 == 0 and place > 4:
            optimizer.param_groups[0]["lr"] *= 0.5
        losses.append(step(x, y))
    expect(step, replays=STEPS - 4, said=1, texts=("lr",))
    return numbers(losses)


def replaced(places: list[torch.device], capture: Capture) -> list[float]:
    """Other functions, modules and numbers where there were some: each is traced for itself, and replayed again."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion: nn.Module = nn.MSELoss()
    loss_fn, beta, weights = F.mse_loss, np.float32(0.5), [1.0, 0.5]

    @capture
    def step(x: Tensor, y: Tensor, gamma: Any) -> Tensor:
        optimizer.zero_grad()
        output, y = model(x.to(places[0])), y.to(places[0])
        loss: Tensor = criterion(output, y) + loss_fn(output, y) * weights[1] * float(beta) * float(gamma)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for place, (x, y) in enumerate(batches(18)):
        if place == 3:
            criterion = nn.L1Loss()
        if place == 6:
            model[1] = nn.Sigmoid()
        if place == 9:
            loss_fn = F.l1_loss
        if place == 12:
            weights[1] = 0.1
        losses.append(step(x, y, np.float32(1 if place < 15 else 0.25)))
    texts = ("MSELoss -> L1Loss", "Tanh -> Sigmoid", "mse_loss -> l1_loss", "0.5 -> 0.1", "argument 2")
    expect(step, replays=5, said=5, texts=texts)
    return numbers(losses)


def containers_replaced(places: list[torch.device], capture: Capture) -> list[float]:
    """A dictionary or a list inside a module or an optimizer, in whose place another one is put between two calls."""

    def hooks(model: Any, optimizer: Any) -> None:
        model[0]._forward_hooks = OrderedDict()

    def parameters(model: Any, optimizer: Any) -> None:
        model[0]._parameters = {"weight": model[0].weight, "bias": None}

    def modules(model: Any, optimizer: Any) -> None:
        model._modules = {"0": model[0], "1": nn.Sigmoid(), "2": model[2]}

    def state(model: Any, optimizer: Any) -> None:
        model[0].__setstate__({**vars(model[0]), "_parameters": {"weight": model[0].weight, "bias": None}})

    def attributes(model: Any, optimizer: Any) -> None:
        model[0].__dict__ = {**vars(model[0]), "_forward_hooks": OrderedDict()}

    def parts(model: Any, optimizer: Any) -> None:
        vars(model).update(vars(copy.deepcopy(model)))

    def group(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["params"] = list(model[2].parameters())

    def longer(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[1]["params"] = [*model[0].parameters()]

    def of_an_optimizer(model: Any, optimizer: Any) -> None:
        optimizer.__dict__ = {**vars(optimizer), "param_groups": [{**one, "lr": 0.2} for one in optimizer.param_groups]}

    found = []
    for edit in (hooks, parameters, modules, state, attributes, parts, group, longer, of_an_optimizer):
        model = network().to(places[0])
        model[0].register_forward_hook(_doubled)
        groups: Any = [{"params": list(model.parameters())}]
        if edit is longer:
            groups = [{"params": list(model[2].parameters())}, {"params": [model[0].weight]}]
        optimizer = torch.optim.SGD(groups, lr=0.05)
        step = capture(training_step(model, optimizer, places[0]))
        for place, (x, y) in enumerate(batches(9)):
            if place == 5:
                edit(model, optimizer)
            found += [step(x, y), *(value.detach().sum().clone() for value in model.parameters())]
        assert not isinstance(step, pw.CapturedStep) or step.replays >= 2, edit
    return numbers(found)


def left_of_another_shape(places: list[torch.device], capture: Capture) -> list[float]:
    """A step keeps what it made of a batch, and goes on from it if the next batch has as many rows."""
    found = []
    orders = ([4, 4, 4, 4, 4, 2] * 4, [4, 2] * 4 + [4, 4, 4], [4] * 6 + [2, 4, 4, 4, 2, 4, 4], [2, 2, 4, 4] * 4)
    for sizes, in_place in itertools.product(orders, (False, True)):
        model = network().to(places[0])
        kept = types.SimpleNamespace(hidden=torch.zeros(4, 16).to(places[0]))

        @capture
        def step(x: Tensor, model: Any = model, kept: Any = kept, in_place: bool = in_place) -> Tensor:
            hidden = torch.tanh(model[0](x.to(places[0])))
            if kept.hidden.shape[0] == x.shape[0]:
                hidden = hidden + 0.5 * kept.hidden
            if in_place:
                kept.hidden.data = hidden.detach()
            else:
                kept.hidden = hidden.detach()
            total: Tensor = kept.hidden.sum()
            return total

        for place, (size, (x, _)) in enumerate(zip(sizes, batches(len(sizes)), strict=True)):
            found.append(step(x[:size]))
            if place % 2:
                found += [kept.hidden.sum().clone(), torch.tensor(float(kept.hidden.shape[0]))]
    return numbers(found)


def fed_by_a_thread(places: list[torch.device], capture: Capture) -> list[float]:
    """Another thread uploads the next batches, and a number with each, while calls are recorded."""
    losses = []
    for _ in range(3):
        model = network().to(places[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        given: queue.Queue[Any] = queue.Queue(2)

        def feed(given: queue.Queue[Any] = given) -> None:
            for place, (x, y) in enumerate(batches(16)):
                given.put((x.to(places[0]), y.to(places[0]), torch.tensor(float(place % 3)).to(places[0])))
            given.put(None)

        @capture
        def step(x: Tensor, y: Tensor, scale: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y) * scale
            loss.backward()
            optimizer.step()
            return loss.detach()

        thread = threading.Thread(target=feed)
        thread.start()
        while (batch := given.get()) is not None:
            losses.append(step(*batch))
        thread.join()
        expect(step, said=0)
        assert not isinstance(step, pw.CapturedStep) or step.replays >= 10
    return numbers(losses)


def _doubled(module: nn.Module, given: Any, made: Tensor) -> Tensor:
    return made * 2


def frozen(places: list[torch.device], capture: Capture) -> list[float]:
    """A part of the model that is frozen for a while, and thawed: its weights stay, and then move again."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    step = capture(training_step(model, optimizer, places[0]))

    found = []
    for place, (x, y) in enumerate(batches()):
        if place in (0, 5, 10, 15):
            model[0].requires_grad_(place in (5, 15))
        found += [step(x, y), model[0].weight.detach().sum().clone()]
    expect(step, replays=10, texts=("trained",))
    return numbers(found)


def parted(places: list[torch.device], capture: Capture) -> list[float]:
    """Two groups of parameters whose rates are equal at first, under a scheduler, and then are not."""
    model = network().to(places[0])
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, [lambda n: 1 / (n + 1), lambda n: 1 / (n + 1) if n < 6 else 0.05 * n]
    )

    step = capture(training_step(model, optimizer, places[0]))

    found = []
    for place, (x, y) in enumerate(batches()):
        found += [step(x, y), model[2].weight.detach().sum().clone()]
        schedule.step()
        if place > 14:
            optimizer.param_groups[1]["lr"] = 0.0
    expect(step, texts=("were always equal",))
    assert not isinstance(step, pw.CapturedStep) or step.replays >= 10
    return numbers(found)


def order_of_parts(places: list[torch.device], capture: Capture) -> list[float]:
    """Modules that are gone through in the order of their dictionary, which changes once."""
    parts = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU(), "c": nn.Linear(8, 8)}).to(places[0])

    @capture
    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            x = x.to(places[0])
            for part in parts.values():
                x = part(x)
            return x.sum()

    found = []
    for place, (x, _) in enumerate(batches(9)):
        if place == 5:
            first = parts.pop("a")
            parts["a"] = first
        found.append(step(x))
    expect(step, said=1, texts=("the order of what is in parts",))
    return numbers(found)


def functions_made_of_texts(places: list[torch.device], capture: Capture) -> list[float]:
    """A helper in a namespace of its own, whose variables are nobody else's."""
    space: dict[str, Any] = {"FACTOR": 2.0}
    exec("def scaled(x):\n    return x * FACTOR", space)
    scaled = space["scaled"]

    @capture
    def step(x: Tensor) -> Tensor:
        result: Tensor = scaled(x.to(places[0])).sum()
        return result

    found = []
    for place, (x, _) in enumerate(batches(9)):
        if place == 5:
            space["FACTOR"] = 3.0
        found.append(step(x))
    expect(step, said=1, texts=("FACTOR",))
    return numbers(found)


def functions_of_libraries(places: list[torch.device], capture: Capture) -> list[float]:
    """Somebody puts another function where a library has one, some modules down."""
    model = network().to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0]))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    library: Any = nn.utils
    found, plain = [], library.clip_grad_norm_
    try:
        for place, (x, y) in enumerate(batches(9)):
            if place == 5:
                library.clip_grad_norm_ = lambda given, limit: plain(list(given), limit / 10)
            found.append(step(x, y))
    finally:
        library.clip_grad_norm_ = plain
    expect(step, said=2, texts=("nn.utils.clip_grad_norm_",))
    return numbers(found)


def signs_of_zero(places: list[torch.device], capture: Capture) -> list[float]:
    """A number that is -0.0 and then 0.0, by which it is divided."""
    model = network().to(places[0])
    model.divisor = -0.0
    options = {"divisor": -0.0}

    @capture
    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            values = model(x.to(places[0])).abs().sum() + 1
            return torch.sign(values / model.divisor) + 3 * torch.sign(values / options["divisor"])

    found = []
    for place, (x, _) in enumerate(batches(12)):
        if place == 5:
            model.divisor = 0.0
        if place == 8:
            options["divisor"] = 0.0
        found.append(step(x))
    expect(step, said=2, texts=("divisor",))
    return numbers(found)


def replaced_statistics(places: list[torch.device], capture: Capture) -> list[float]:
    """Running statistics that others take the place of, shortly before an audit."""
    model = network(nn.BatchNorm1d(16)).to(places[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = capture(training_step(model, optimizer, places[0]))
    found = []
    for place, (x, y) in enumerate(batches(10)):
        if place in (3, 6):
            model[2].running_mean = model[2].running_mean.clone()
        found += [step(x, y), model[2].running_mean.sum().clone()]
    assert not isinstance(step, pw.CapturedStep) or step.replays >= 2
    return numbers(found)


def replaced_data(places: list[torch.device], capture: Capture) -> list[float]:
    """Weights that the step writes and then gives other memory, across an audit."""
    model = network().to(places[0])
    train = training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), places[0])

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, weight = train(x, y), model[0].weight
        weight.data.add_(0.1)
        weight.data = weight.data.clamp(-0.3, 0.3)
        return loss

    found = []
    for x, y in batches(14):
        found += [step(x, y), model[0].weight.detach().sum().clone()]
    assert not isinstance(step, pw.CapturedStep) or step.audits >= 1
    return numbers(found)


def moved_and_back(places: list[torch.device], capture: Capture) -> list[float]:
    """A model with statistics that goes to the CPU and back between the calls, as to be saved; at each place among the
    calls once, also before audits."""
    found = []
    for moves_at in range(3, 8):
        torch.manual_seed(1)
        model = network(nn.BatchNorm1d(16)).to(places[0])
        step = capture(training_step(model, torch.optim.SGD(model.parameters(), lr=0.05), places[0]))
        for place, (x, y) in enumerate(batches(10)):
            if place == moves_at:
                model.cpu()
                model.to(places[0])
            found.append(step(x, y))
        found += [part.detach().float().sum() for part in model.state_dict().values()]
        assert not isinstance(step, pw.CapturedStep) or step.replays + step.audits >= 2, step
    return numbers(found)


def one_cycle(places: list[torch.device], capture: Capture) -> list[float]:
    """A schedule that changes the rate and a beta at each call."""
    model = network().to(places[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=30)
    step = capture(training_step(model, optimizer, places[0]))
    found = []
    for x, y in batches():
        found.append(step(x, y))
        schedule.step()
    assert not isinstance(step, pw.CapturedStep) or step.replays > STEPS // 2
    return numbers(found)


def counts(places: list[torch.device], capture: Capture) -> list[float]:
    """What optimizers make of the number of steps is as exact as with Python's numbers, also after steps by hand."""
    found: list[Tensor] = []
    for kind in (torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam):
        for dtype in (torch.float32, torch.float64):
            model = network().to(dtype).to(places[0])
            by_hand = training_step(model, kind(model.parameters(), lr=0.01), places[0])
            step = capture(by_hand)
            for number, (x, y) in enumerate(batches(13)):
                found.append((step if number else by_hand)(x.to(dtype), y.to(dtype)))
            assert not isinstance(step, pw.CapturedStep) or step.replays > 5
            if places[0].type == "xla":
                eager = counts_of.pop(0)
                apart = max((p.detach().cpu() - q).abs().max() for p, q in zip(model.parameters(), eager, strict=True))
                assert apart < (2e-6 if dtype is torch.float32 else 1e-7), (kind, dtype, apart)
            else:
                counts_of.append([p.detach().clone() for p in model.parameters()])
    return numbers(found)


def memory_at_the_same_address(places: list[torch.device], capture: Capture) -> list[float]:
    """A new buffer of a gradient may lie where the one lay that a replay has known: its result must not be lost."""
    model = network().to(places[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    calls = {"n": 0}

    @capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.mse_loss(model(x.to(places[0])), y.to(places[0])) / 3
        loss.backward()
        calls["n"] = (calls["n"] + 1) % 3
        if calls["n"] == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    gradients: set[int] = set()

    def handles(tensors: Sequence[Tensor]) -> array[int] | None:
        if (there := real(tensors)) is None:
            return None
        pairs = zip(tensors, there, strict=True)
        return array("q", (id(one) if id(one) in gradients else handle for one, handle in pairs))

    found: list[float] = []
    with mock.patch.object(_buffers, "handles", handles):
        for x, y in batches():
            found.append(float(step(x, y)))
            for parameter in model.parameters():
                if parameter.grad is not None:
                    gradients.add(id(parameter.grad))
                    found.append(float(parameter.grad.detach().cpu().abs().sum()))
    assert not isinstance(step, pw.CapturedStep) or step.replays > 5
    assert not any("held" in text for text in SAID), SAID
    return found


class _Scaled(nn.Module):
    """Buffers that are read, and one that is written."""

    scale: Tensor
    shift: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        for name, value in (("scale", 1.0), ("shift", 2.0), ("count", 0.0)):
            self.register_buffer(name, torch.full((1,), value))

    def forward(self, x: Tensor) -> Tensor:
        self.count += self.scale
        made: Tensor = self.layer(x) * self.scale + 3 * self.shift + self.count
        return made


def data_of_others_than_parameters(places: list[torch.device], capture: Capture) -> list[float]:
    """Buffers and optimizer state are given other memory, or one another's, while somebody holds what they had."""
    place, found = places[0], []

    def exchange(model: Any, momentum: Tensor) -> object:
        scale, model.scale.data = model.scale.data, model.shift.data
        model.shift.data = scale
        return scale

    def another(model: Any, momentum: Tensor) -> object:
        held, model.scale.data = model.scale.data, torch.full((1,), 5.0).to(place)
        return held

    def counted(model: Any, momentum: Tensor) -> object:
        held, model.count.data = model.count.data, torch.full((1,), 5.0).to(place)
        return held

    def state(model: Any, momentum: Tensor) -> object:
        held, momentum.data = momentum.data, torch.full((1, 8), 0.1).to(place)
        return held

    for change in (exchange, another, counted, state):
        torch.manual_seed(0)
        model, held = _Scaled().to(place), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        step = capture(training_step(model, optimizer, place))
        for number, (x, y) in enumerate(batches(14)):
            if number in (8, 11):
                held.append(change(model, optimizer.state[model.layer.weight]["momentum_buffer"]))
            found.append(step(x, y))
        found += [value.detach().sum() for value in model.state_dict().values()]
        assert not isinstance(step, pw.CapturedStep) or step.replays > 8, step
    return numbers(found)


real = _buffers.handles


counts_of: list[list[Tensor]] = []
"""Parameters that eager PyTorch gave."""


SCENARIOS = (
    containers_replaced,
    left_of_another_shape,
    fed_by_a_thread,
    replaced_data,
    moved_and_back,
    one_cycle,
    counts,
    order_of_parts,
    functions_made_of_texts,
    functions_of_libraries,
    signs_of_zero,
    replaced_statistics,
    memory_at_the_same_address,
    data_of_others_than_parameters,
)
