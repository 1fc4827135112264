"""Loops that must give the same numbers on a cluster as in plain PyTorch. A program of its own: one process, one use.

    python training_scenarios.py together|single BACKEND    prepared loops on four devices, or on one
    python training_scenarios.py one_by_one BACKEND          two slices of one device each, no prepare

Prints one JSON object: for each scenario its eager numbers and those of the cluster, or the error.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
from ptpathways import frontend
from tests import inside

Prepare = Callable[..., Any]
Scenario = Callable[[Prepare], list[float]]


def data(count: int, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 8, 8, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (count,), generator=generator))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))


def classify(prepare: Prepare) -> list[float]:
    """Shuffled batches whose last is uneven, AdamW, a schedule, batch normalisation, then an evaluation."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    loader, test = DataLoader(data(38), batch_size=8, shuffle=True), DataLoader(data(22, 2), batch_size=8)
    scheduler, model, loader, optimizer = prepare(scheduler, model, loader, optimizer)
    test = prepare(test)
    losses = []
    for _ in range(3):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
    model.train()  # torch_xla keeps another running variance: batch statistics on both sides
    total: Tensor | float = 0.0
    with torch.no_grad():
        for images, labels in test:
            total = total + F.cross_entropy(model(images), labels, reduction="sum")
    return [*torch.stack(losses).tolist(), float(total), optimizer.param_groups[0]["lr"]]


def momentum_and_accumulation(prepare: Prepare) -> list[float]:
    """SGD with momentum, gradients of two batches per step, clipped; the norm is read in the middle of the trace."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    model, optimizer, loader = prepare(model, optimizer, DataLoader(data(32), batch_size=4))
    numbers = []
    for index, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images), labels) / 2
        loss.backward()
        if index % 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            numbers += [norm.item(), loss.item()]
            optimizer.step()
            optimizer.zero_grad()
    return numbers


def tied_weights(prepare: Prepare) -> list[float]:
    """An embedding tied to the output layer, under an optimizer built before prepare()."""
    embedding, head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, nn.Linear(8, 8), head)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    prepare(model)
    prepare(optimizer)
    assert model[2].weight is model[0].weight and len(optimizer.param_groups[0]["params"]) == 3
    tokens = prepare(list((torch.arange(48).reshape(12, 4) % 16).split(4)))
    losses = []
    for _ in range(2):
        for row in tokens:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(row).flatten(0, 1), row.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def two_optimizers(prepare: Prepare) -> list[float]:
    """A generator and a discriminator: two modules, two optimizers, two cuts per batch."""
    generator, critic = nn.Linear(4, 64), nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1))
    first, second = torch.optim.Adam(generator.parameters(), 1e-2), torch.optim.Adam(critic.parameters(), 1e-2)
    noise = torch.randn(32, 4, generator=torch.Generator().manual_seed(3))
    loader = DataLoader(TensorDataset(data(32).tensors[0].flatten(1), noise), batch_size=8)
    generator, critic, first, second, loader = prepare(generator, critic, first, second, loader)
    numbers = []
    for real, seed in loader:
        second.zero_grad()
        fake = generator(seed)
        loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        generator_loss = F.softplus(-critic(fake)).mean()
        generator_loss.backward()
        first.step()
        numbers += [loss.item(), generator_loss.item()]
    return numbers


def checkpointed(prepare: Prepare) -> list[float]:
    """Activations recomputed in the backward pass."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = prepare(model, optimizer, DataLoader(data(24), batch_size=8))
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        hidden = checkpoint(model[:3], images, use_reentrant=False)
        loss = F.cross_entropy(model[3](hidden), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def resumed(prepare: Prepare) -> list[float]:
    """Saved after two steps, loaded into new objects that are prepared with their state, continued."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    prepare(model, optimizer)
    batches = list(DataLoader(data(32), batch_size=8))
    losses = _fit(model, optimizer, prepare(batches[:2]))
    weights = {name: value.cpu() for name, value in model.state_dict().items()}
    state = copy.deepcopy(optimizer.state_dict())
    for slots in state["state"].values():
        slots.update({key: value.cpu() for key, value in slots.items()})
    fresh = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    fresh.load_state_dict(weights)
    again = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
    again.load_state_dict(state)
    prepare(fresh, again)
    return losses + _fit(fresh, again, prepare(batches[2:]))


def _fit(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Any) -> list[float]:
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def best_weights_are_kept(prepare: Prepare) -> list[float]:
    """Clones and targets of ``copy_`` keep their values while the originals are trained on."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = copy.deepcopy(model)
    prepare(model, optimizer)
    prepare(average)
    batches = prepare(list(DataLoader(data(24), batch_size=8)))
    losses = _fit(model, optimizer, batches)
    kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.copy_(theirs)
    losses += _fit(model, optimizer, batches)
    then = [float(average(next(iter(batches))[0]).square().sum())]
    model.load_state_dict(kept)
    return losses + then + _fit(model, optimizer, batches)


def ops_on_the_client(prepare: Prepare) -> list[float]:
    """Operations without an XLA form give the right numbers, and say once per line that they wait."""
    (values,) = prepare([torch.tensor([3.0, 0.0, 2.0, 0.0, 5.0, 1.0, 0.0, 4.0])])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [int(torch.nonzero(values * scale).shape[0]) for scale in (1.0, 2.0, 0.0)]
    if values.device.type == "xla":
        mine = [str(warning.message) for warning in caught if warning.category.__name__ == "ClientFallbackWarning"]
        assert len(mine) == 1 and "nonzero" in mine[0], [str(warning.message) for warning in caught]
        assert all(warning.filename == __file__ for warning in caught)
    return [float(number) for number in found]


def dropout_is_recomputed_with_its_mask(prepare: Prepare) -> list[float]:
    """Checkpointing restores the generator: the gradient is that of the mask that the forward pass used."""
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Dropout(0.5))
    prepare(model)
    (ones,) = prepare([torch.ones(8, 64)])
    ones.requires_grad_()
    output = checkpoint(model, ones, use_reentrant=False)
    kept = (output != 0).float()
    output.sum().backward()
    expected = (2 * kept) @ model[0].weight
    difference = float((ones.grad - expected).abs().max())
    assert difference < 1e-4, difference
    return [0.0]


def halves(prepare: Prepare) -> list[float]:
    """Two halves of a model on two devices, moved between by pw.transfer, whose gradient comes back."""
    first, second = nn.Linear(64, 32), nn.Linear(32, 10)
    places = prepare(first, second)
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()], lr=1e-2)
    losses = []
    for images, labels in DataLoader(data(40), batch_size=8):
        optimizer.zero_grad()
        hidden = torch.tanh(first(images.flatten(1).to(places[0])))
        if places[1].type == "xla":
            hidden = pw.transfer(hidden, places[1])
        loss = F.cross_entropy(second(hidden), labels.to(places[1]))
        loss.backward()
        optimizer.step()
        if places[1].type == "xla":
            pw.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def there_and_back(prepare: Prepare) -> list[float]:
    """Values survive a round of transfers whatever their type and shape; a later write does not reach the copy."""
    places = prepare(nn.Linear(1, 1), nn.Linear(1, 1))
    numbers: list[float] = []
    for value in (torch.arange(6).reshape(2, 3), torch.tensor(2.5), torch.ones(0, 3), torch.ones(2).bfloat16()):
        here = value.to(places[0])
        moved = pw.transfer(here, places[1]) if places[1].type == "xla" else here.clone()
        here += 1
        back = pw.transfer(moved, places[0]) if places[1].type == "xla" else moved
        assert back.dtype == value.dtype and back.shape == value.shape
        numbers += [float(back.float().sum()), float(here.float().sum())]
    return numbers


def transposed_view(prepare: Prepare) -> list[float]:
    """A view, and a tensor that has a pending in-place update, are transferred with the values they show."""
    places = prepare(nn.Linear(1, 1), nn.Linear(1, 1))
    base = torch.arange(12.0).reshape(3, 4).to(places[0])
    view = base.t()[1:]
    base.mul_(2)
    moved = pw.transfer(view, places[1]) if places[1].type == "xla" else view
    weights = torch.arange(9.0).reshape(3, 3).to(places[1])
    return [float((moved * weights).sum())]


TOGETHER: tuple[Scenario, ...] = (
    classify,
    momentum_and_accumulation,
    tied_weights,
    two_optimizers,
    checkpointed,
    resumed,
    best_weights_are_kept,
    ops_on_the_client,
    dropout_is_recomputed_with_its_mask,
)
ONE_BY_ONE: tuple[Scenario, ...] = (halves, there_and_back, transposed_view)
SCENARIOS: dict[str, tuple[Scenario, ...]] = {"together": TOGETHER, "single": TOGETHER, "one_by_one": ONE_BY_ONE}


def _leave(*things: Any) -> Any:
    return things[0] if len(things) == 1 else things


def _place(devices: list[torch.device]) -> Prepare:
    def place(*modules: nn.Module) -> list[torch.device]:
        for module, device in zip(modules, devices, strict=True):
            module.to(device)
        return devices

    return place


def _shardings() -> list[Any]:
    """How an even batch, an uneven batch and a weight lie: parts per dimension."""
    model = nn.Linear(1, 1)
    pw.prepare(model)
    even, uneven = pw.prepare([torch.zeros(8, 1, 2, 2), torch.zeros(6, 1, 2, 2)])
    found = [frontend.layout_of_tensor(tensor) for tensor in (even, uneven, model.weight)]
    return [None if tiling is None else tiling[0] for tiling in found]


def _side_by_side() -> list[float]:
    """One process uses single devices, all of them, and slices; values go from each to each."""
    one, everything = pw.device(1), pw.device()
    numbers = [float((torch.arange(8.0, device=place) * 2).sum()) for place in (one, everything)]
    with pw.cluster().slice((2,)) as pair:
        there = pw.transfer(torch.arange(8.0, device=one) + 1, pair.device)
        back = pw.transfer(there * there, everything)
        numbers += [float(back.sum()), float((there + pw.transfer(back, pair.device)).sum())]
    with pw.cluster().slice((2,)) as again:  # the torch device of the first, perhaps
        numbers.append(float(torch.ones(4, device=again.device).sum()))
    return numbers


def main() -> None:
    mode, backend = sys.argv[1:]
    hosts, devices = {"together": (1, 4), "single": (1, 1), "one_by_one": (2, 1)}[mode]
    pw.init(hosts=hosts, devices_per_host=devices, backend=backend)
    cpu = torch.device("cpu")
    results: dict[str, Any] = {}
    for scenario in SCENARIOS[mode]:
        plain = _place([cpu, cpu]) if mode == "one_by_one" else _leave
        there = _place(pw.devices()) if mode == "one_by_one" else pw.prepare
        try:
            torch.manual_seed(0)
            eager = scenario(plain)
            torch.manual_seed(0)
            results[scenario.__name__] = {"eager": eager, "cluster": scenario(there)}
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
    if mode == "together" and backend == "pathways":
        results["shardings"] = _shardings()
        results["side by side"] = _side_by_side()
    connection = inside.connection()
    if connection is not None:
        results["traffic"] = connection.transfer_stats()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
