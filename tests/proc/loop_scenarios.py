"""Loops of every kind, as PyTorch users write them: on a cluster as in eager PyTorch. A program: one process.

    python loop_scenarios.py HOSTS DEVICES_PER_HOST [NAME...]

A loop is a generator that yields, once per step, what is compared: a number, a tensor, or a list of them. A text says
that from here on something else is done, which may be compiled anew. Each loop runs in eager PyTorch first and then on
the devices, from the same seed. Nothing is fetched before it ends, unless it does so itself. Prints one JSON object:
for each loop both lists of numbers, and how many computations each step compiled.
"""

from __future__ import annotations

import copy
import io
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.optim import lr_scheduler, swa_utils
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
from ptpathways.frontend import _xla
from tests.proc import loop_mistakes

STEPS, BATCH, WIDTH, CLASSES = 10, 8, 16, 4


@dataclass(frozen=True)
class Place:
    """Where a loop runs: what stands for ``pw.prepare``, and the device."""

    prepare: Callable[..., Any]
    device: torch.device

    @property
    def type(self) -> str:
        return self.device.type


Loop = Callable[[Place], Iterator[Any]]


def network(dropout: float = 0.0) -> Any:
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Dropout(dropout), nn.Linear(32, CLASSES))


def data(count: int = STEPS * BATCH, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, WIDTH, generator=generator)
    return TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))


def batches(count: int = STEPS) -> DataLoader[Any]:
    return DataLoader(data(count * BATCH), batch_size=BATCH)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def accumulation(place: Place) -> Iterator[Any]:
    """Gradients of four batches per step, then of two, then of four again, then of three."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches(40))
    source = iter(loader)
    for count in (4, 4, 4, 2, 2, 4, 3, 3, 4, 4):
        total: Any = 0.0
        for _ in range(count):
            inputs, labels = next(source)
            loss = F.cross_entropy(model(inputs), labels) / count
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        yield total


def clipping(place: Place) -> Iterator[Any]:
    """By norm, then by value."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.5, 0.9), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        yield [loss.detach(), norm]


def adversarial(place: Place) -> Iterator[Any]:
    """Two models, two optimizers, a gradient penalty (which differentiates twice)."""
    generator, critic = nn.Linear(4, WIDTH), nn.Sequential(nn.Linear(WIDTH, 16), nn.Softplus(), nn.Linear(16, 1))
    first, second = torch.optim.Adam(generator.parameters(), 1e-2), torch.optim.Adam(critic.parameters(), 1e-2)
    noise = torch.randn(STEPS * BATCH, 4)
    loader = DataLoader(TensorDataset(data().tensors[0], noise), batch_size=BATCH)
    generator, critic, first, second, loader = place.prepare(generator, critic, first, second, loader)
    for real, seed in loader:
        second.zero_grad()
        fake = generator(seed)
        between = ((real + fake.detach()) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(2, dim=1) - 1).square().mean()
        critic_loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        critic_loss.backward()
        second.step()
        first.zero_grad()
        generator_loss = -critic(fake).mean()
        generator_loss.backward()
        first.step()
        yield [critic_loss.detach(), generator_loss.detach()]


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.95**step),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.3, 1.0, 6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 20, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.05, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 4), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 4), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.05),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01, 4),
}


def schedulers(place: Place) -> Iterator[Any]:
    """Every class of torch.optim.lr_scheduler, and SWALR; one model, so that nothing new is compiled."""
    for make in SCHEDULERS.values():
        torch.manual_seed(3)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        schedule = make(optimizer)
        model, optimizer, schedule, loader = place.prepare(model, optimizer, schedule, batches(8))
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            if isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
                schedule.step(loss.item())
            else:
                schedule.step()
            yield [loss.detach(), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]]


def optimizers(place: Place) -> Iterator[Any]:
    """Optimizers with states of different kinds."""
    yield from _with_optimizers(place, ["Adafactor", "NAdam"])


def every_optimizer(place: Place) -> Iterator[Any]:
    """Every class of torch.optim that takes dense gradients and no closure."""
    kinds = [name for name in torch.optim.__all__ if isinstance(getattr(torch.optim, name), type)]
    yield from _with_optimizers(place, [name for name in kinds if name not in ("Optimizer", "LBFGS", "SparseAdam")])


def _with_optimizers(place: Place, names: list[str]) -> Iterator[Any]:
    for name in names:
        yield name
        torch.manual_seed(3)
        model = nn.Linear(WIDTH, CLASSES, bias=False)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-2)
        model, optimizer, loader = place.prepare(model, optimizer, batches(5))
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            yield loss.detach()


def averaged(place: Place) -> Iterator[Any]:
    """An exponential average by deepcopy, one by AveragedModel, a stochastic average, and batch statistics for it."""
    model: Any = nn.Sequential(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.1), batches())
    copied = copy.deepcopy(model).requires_grad_(False)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    stochastic = swa_utils.AveragedModel(model)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        stochastic.update_parameters(model)
        with torch.no_grad():
            for mine, new in zip(copied.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(new, alpha=0.1)
        yield [loss.detach(), *[sum(p.detach().abs().sum() for p in m.parameters()) for m in (copied, average)]]
    yield "update_bn"
    swa_utils.update_bn(place.prepare(batches(1)), stochastic)
    yield [
        sum(p.detach().abs().sum() for p in stochastic.parameters()),
        stochastic.module.get_buffer("1.running_mean").abs().sum(),
    ]


def recomputed(place: Place) -> Iterator[Any]:
    """Activation checkpointing, both kinds."""
    for reentrant in (False, True):
        yield str(reentrant)
        torch.manual_seed(3)
        model = network()
        model, optimizer, loader = place.prepare(model, adam(model), batches(6))
        for inputs, labels in loader:
            optimizer.zero_grad()
            inputs.requires_grad_(reentrant)
            loss = F.cross_entropy(model[3](checkpoint(model[:3], inputs, use_reentrant=reentrant)), labels)
            loss.backward()
            optimizer.step()
            yield loss.detach()


def recomputed_dropout(place: Place) -> Iterator[Any]:
    """The mask of the second forward pass is that of the first: the gradient fits what came out."""
    for reentrant in (False, True):
        model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Dropout(0.5))
        place.prepare(model)
        for inputs, _ in place.prepare(batches(3)):
            inputs.requires_grad_()
            output = checkpoint(model, inputs, use_reentrant=reentrant)
            output.sum().backward()
            kept = (output.detach() != 0).float()
            yield (inputs.grad - 2 * kept @ model[0].weight.detach()).abs().max() > 1e-4


def functional(place: Place) -> Iterator[Any]:
    """torch.func: functional_call, grad, per-sample gradients by vmap, a Jacobian-vector product."""
    model = network()
    place.prepare(model)
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss_of(parameters: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (inputs,)), labels)

    for inputs, labels in place.prepare(batches()):
        gradients, loss = torch.func.grad_and_value(loss_of)(parameters, inputs, labels)
        each = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(parameters, inputs[:, None], labels[:, None])
        spread = torch.stack([value.flatten(1).square().sum(1) for value in each.values()]).sum(0).max()
        parameters = {name: value - 0.1 * gradients[name] for name, value in parameters.items()}
        yield [loss, spread]


def evaluation(place: Place) -> Iterator[Any]:
    """Averages over 35 samples in batches of 8, the last of 3, in both modes without gradients."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches(4))
    test = place.prepare(DataLoader(data(35, 2), batch_size=BATCH))
    for inputs, labels in loader:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        model.eval()
        for mode in (torch.no_grad, torch.inference_mode):
            total, right, count = 0.0, 0, 0
            with mode():
                for inputs, labels in test:
                    output = model(inputs)
                    total += F.cross_entropy(output, labels, reduction="sum").item()
                    right += (output.argmax(1) == labels).sum().item()
                    count += len(labels)
            yield [total / count, right / count]


def closures(place: Place) -> Iterator[Any]:
    """LBFGS."""
    yield from _closure_loop(place, None, 5)


def line_search(place: Place) -> Iterator[Any]:
    """LBFGS with a line search, which takes as many evaluations as the values ask for."""
    yield from _closure_loop(place, "strong_wolfe", 4)


def _closure_loop(place: Place, search: str | None, steps: int) -> Iterator[Any]:
    torch.manual_seed(3)
    model = network()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=2, history_size=1, line_search_fn=search)
    model, optimizer = place.prepare(model, optimizer)
    ((inputs, labels),) = place.prepare(list(batches(1)))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    for _ in range(steps):
        yield optimizer.step(closure).detach()


def frozen(place: Place) -> Iterator[Any]:
    """A frozen first layer; it is thawed in the middle by add_param_group, and by requires_grad_."""
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model[3].parameters(), lr=1e-2)
    model, optimizer, loader = place.prepare(model, optimizer, batches(14))
    for index, (inputs, labels) in enumerate(loader):
        if index == 7:
            yield "thawed"
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 1e-3})
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def hooks(place: Place) -> Iterator[Any]:
    """Hooks of modules and of parameters, put on before and after prepare()."""
    model = network()
    seen: dict[str, Tensor] = {}
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    model[0].register_forward_hook(lambda module, inputs, output: seen.update(hidden=output.detach().norm()))
    model[3].register_full_backward_hook(lambda module, into, out: seen.update(back=out[0].norm()))
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    model[3].weight.register_hook(lambda gradient: gradient * 0.5)
    model[3].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    model[3].weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", 2 * parameter.grad))
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield [loss.detach(), seen["hidden"], seen["back"]]


def step_in_backward(place: Place) -> Iterator[Any]:
    """An optimizer per parameter, stepped by a hook as soon as the gradient is there."""
    model: Any = nn.Linear(WIDTH, CLASSES)
    each = {parameter: torch.optim.SGD([parameter], 0.1, momentum=0.9) for parameter in model.parameters()}

    def update(parameter: Any) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    model, loader, *_ = place.prepare(model, batches(), *each.values())
    for inputs, labels in loader:
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        yield loss.detach()


def mixed_precision(place: Place) -> Iterator[Any]:
    """torch.autocast with bfloat16."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.bfloat16):
            output = model(inputs)
            loss = F.cross_entropy(output, labels)
        assert output.dtype is torch.bfloat16 and loss.dtype is torch.float32
        loss.backward()
        optimizer.step()
        yield loss.detach()


def scaled(place: Place) -> Iterator[Any]:
    """float16 with a GradScaler whose first scale is too large: steps are skipped, and the scale comes down."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 0.1, 0.9), batches(14))
    scaler = torch.amp.grad_scaler.GradScaler(place.type, init_scale=2.0**20, growth_interval=3)
    for inputs, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(place.type, dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield [loss.detach(), scaler.get_scale()]


def compiled(place: Place) -> Iterator[Any]:
    """torch.compile."""
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    compile: Any = torch.compile
    fast = compile(model, backend="openxla" if place.type == "xla" else "eager")
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def early_stopping(place: Place) -> Iterator[Any]:
    """Epochs until a fetched metric no longer falls."""
    model = network()
    model, optimizer, loader = place.prepare(model, torch.optim.SGD(model.parameters(), 2.0), batches(4))
    best, waited = float("inf"), 0
    for _ in range(40):
        total: Any = 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        value = float(total)
        yield value
        best, waited = (value, 0) if value < best - 1e-3 else (best, waited + 1)
        if waited == 2:
            break


def parametrized(place: Place) -> Iterator[Any]:
    """Weight normalisation, old and new, spectral normalisation, a parametrization of one's own."""

    class Symmetric(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight.triu() + weight.triu(1).mT

    model: Any = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)], nn.Linear(WIDTH, CLASSES))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    nn.utils.parametrizations.weight_norm(model[1])
    nn.utils.parametrizations.spectral_norm(model[2])
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()
    parametrize.remove_parametrizations(model[0], "weight")
    yield model[0].weight.detach().abs().sum()


def weight_norm_of_old(place: Place) -> Iterator[Any]:
    """torch.nn.utils.weight_norm, which makes the weight anew in a hook before each forward pass."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    nn.utils.weight_norm(model[0])
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def gradients_stay(place: Place) -> Iterator[Any]:
    """zero_grad(set_to_none=False), and gradients read and changed by hand."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        for parameter in model.parameters():
            parameter.grad.add_(parameter.detach(), alpha=1e-2)
        optimizer.step()
        yield loss.detach()


def saved(place: Place) -> Iterator[Any]:
    """torch.save in the middle, a few steps more, then back to what was saved."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches(12))
    file = io.BytesIO()
    for index, (inputs, labels) in enumerate(loader):
        if index == 4:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        if index == 8:
            yield "loaded"
            file.seek(0)
            state = torch.load(file, map_location="cpu")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def two_losses(place: Place) -> Iterator[Any]:
    """Two losses of one graph, retain_graph, torch.autograd.grad, and a second derivative."""
    model = network()
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        optimizer.zero_grad()
        output = model(inputs)
        first, second = F.cross_entropy(output, labels), output.square().mean()
        first.backward(retain_graph=True)
        second.backward(retain_graph=True)
        slopes = torch.autograd.grad(first + second, list(model.parameters()), create_graph=True)
        sharpness = torch.stack([slope.square().sum() for slope in slopes]).sum()
        (0.1 * sharpness).backward()
        optimizer.step()
        yield [first.detach(), second.detach(), sharpness.detach()]


def recurrent(place: Place) -> Iterator[Any]:
    """An LSTM whose state goes from batch to batch, detached."""
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 8, batch_first=True), "head": nn.Linear(8, CLASSES)})
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    state: Any = None
    for inputs, labels in loader:
        optimizer.zero_grad()
        output, state = model["lstm"](inputs.unflatten(1, (4, 4)), state)
        loss = F.cross_entropy(model["head"](output[:, -1]), labels)
        loss.backward()
        optimizer.step()
        state = tuple(value.detach() for value in state)
        yield loss.detach()


LOOPS: tuple[Loop, ...] = (
    accumulation,
    clipping,
    adversarial,
    schedulers,
    optimizers,
    averaged,
    recomputed,
    recomputed_dropout,
    functional,
    evaluation,
    closures,
    frozen,
    hooks,
    step_in_backward,
    mixed_precision,
    scaled,
    compiled,
    early_stopping,
    parametrized,
    weight_norm_of_old,
    gradients_stay,
    saved,
    two_losses,
    recurrent,
)


MORE: tuple[Loop, ...] = (every_optimizer, line_search)
"""Too slow for every test run: run when they are named."""


def compiles() -> int:
    """Computations that PyTorch/XLA has compiled so far."""
    return int(_xla.binding()._xla_counter_value("UncachedCompile") or 0)


def run(loop: Loop, place: Place) -> dict[str, Any]:
    torch.manual_seed(0)
    made: list[Any] = []
    compiled: dict[str, list[int]] = {}
    phase, steps, before = "", 0, compiles()
    for numbers in loop(place):
        if isinstance(numbers, str):
            phase = numbers
            continue
        made += numbers if isinstance(numbers, list) else [numbers]
        steps += 1
        compiled.setdefault(phase, []).append(compiles() - before)
        before = compiles()
    return {"numbers": [float(number) for number in made], "steps": steps, "compiled": compiled}


def main() -> None:
    hosts, devices = map(int, sys.argv[1:3])
    pw.init(hosts=hosts, devices_per_host=devices)
    eager = Place(lambda *things: things[0] if len(things) == 1 else things, torch.device("cpu"))
    cluster = Place(pw.prepare, pw.device())
    results: dict[str, Any] = {}
    for loop in [loop for loop in (*LOOPS, *MORE) if loop.__name__ in sys.argv[3:]] or LOOPS:
        start = time.monotonic()
        try:
            results[loop.__name__] = {"eager": run(loop, eager), "cluster": run(loop, cluster)}
        except Exception:
            results[loop.__name__] = {"error": traceback.format_exc()}
        print(f"{loop.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    results["mistakes"] = loop_mistakes.all_of_them()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
