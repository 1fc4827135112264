"""Loops that differ in how the loss and its gradients are computed. Run by `loop_scenarios.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tests.proc.loop_basis import BATCH, CLASSES, STEPS, WIDTH, Place, adam, batches, data, descend, network


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


def compiled(place: Place) -> Iterator[Any]:
    """torch.compile as PyTorch/XLA has it."""
    return _compiled(place, "openxla" if place.type == "xla" else "eager")


def compiled_by_default(place: Place) -> Iterator[Any]:
    """torch.compile as a program for one GPU has it."""
    return _compiled(place, "inductor" if place.type == "xla" else "eager", mode="max-autotune")


def _compiled(place: Place, backend: str, **options: Any) -> Iterator[Any]:
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    compile: Any = torch.compile
    fast = compile(model, backend=backend, **(options if backend == "inductor" else {}))
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(inputs), labels)
        loss.backward()
        optimizer.step()
        yield loss.detach()


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
        yield descend(model, optimizer, inputs, labels)
    parametrize.remove_parametrizations(model[0], "weight")
    yield model[0].weight.detach().abs().sum()


def parametrized_there(place: Place) -> Iterator[Any]:
    """Parametrizations of a model that is on the devices: torch sets its weights to others, or to themselves."""

    class Scaled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight * 0.5

        def right_inverse(self, weight: Tensor) -> Tensor:
            made = torch.zeros_like(weight)
            made.diagonal().fill_(1.0)  # not computed yet when the weight is set to it
            return made

    class Kept(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight.clone()

        def right_inverse(self, weight: Tensor) -> Tensor:
            return weight

    model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    model, loader = place.prepare(model, batches())
    parametrize.register_parametrization(model[0], "weight", Scaled(), unsafe=True)
    parametrize.register_parametrization(model[2], "weight", Kept())
    optimizer = place.prepare(adam(model))
    for inputs, labels in loader:
        yield descend(model, optimizer, inputs, labels)


def weight_norm_of_old(place: Place) -> Iterator[Any]:
    """torch.nn.utils.weight_norm, which makes the weight anew in a hook before each forward pass."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    nn.utils.weight_norm(model[0])
    model, optimizer, loader = place.prepare(model, adam(model), batches())
    for inputs, labels in loader:
        yield descend(model, optimizer, inputs, labels)


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
