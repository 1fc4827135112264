"""``torch.save`` and ``torch.load`` with devices. A program of its own: one process, one use.

Prints one JSON object: for each way to save and to load where the tensors are, whether they are right, and tied.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ptpathways as pw


class Tied(nn.Module):
    """Weights with two names, buffers of types that torch or PyTorch/XLA treat in a way of their own, and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.normal = nn.BatchNorm1d(4)
        self.register_buffer("phases", torch.randn(3, dtype=torch.complex64))
        self.register_buffer("halves", torch.randn(2, 2).half())
        self.register_buffer("turned", torch.randn(2, 3).t())


def saved(thing: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(thing, file, **options)
    return file


def outcome(file: io.BytesIO, wanted: dict[str, torch.Tensor], location: Any, weights_only: bool) -> Any:
    file.seek(0)
    try:
        loaded = torch.load(file, map_location=location, weights_only=weights_only)
    except pw.PathwaysError as error:
        return f"{type(error).__name__}: {error}"
    state = loaded.state_dict() if isinstance(loaded, nn.Module) else loaded
    devices = sorted({str(value.device) for value in state.values()})
    right = all(
        torch.equal(value.cpu(), wanted[name]) and value.dtype == wanted[name].dtype for name, value in state.items()
    )
    with torch.no_grad():
        state["embedding.weight"].fill_(7.0)
    return [devices, right, bool((state["output.weight"].cpu() == 7.0).all())]


def main() -> None:
    torch.manual_seed(0)
    cluster = pw.init(hosts=1, devices_per_host=2)
    one = cluster.slice((1,)).device
    plain = Tied()
    wanted = {name: value.clone() for name, value in plain.state_dict().items()}
    there = copy.deepcopy(plain).to(pw.device())
    locations = {
        "device": pw.device(),
        "slice": one,
        "text": str(one),
        "no number": "xla",
        "cpu": "cpu",
        "none": None,
        "function": lambda storage, location: storage,
        "function of no opinion": lambda storage, location: None,
        "table": {"cpu": str(one), str(pw.device()): str(one)},
        "table of devices": {"cpu": one, str(pw.device()): one},
        "unbound": "xla:9",
        "too large": "xla:700",
    }
    results: dict[str, Any] = {"whole": str(pw.device()), "one": str(one)}
    for place, model in (("cpu", plain), ("device", there)):
        files = {
            "state": saved(model.state_dict()),
            "model": saved(model),
            "old": saved(model.state_dict(), _use_new_zipfile_serialization=False),
        }
        for (kind, file), (name, location) in itertools.product(files.items(), locations.items()):
            for weights_only in (True, False) if kind != "model" else (False,):
                key = f"{place}, {kind}, {name}, {'weights' if weights_only else 'all'}"
                results[key] = outcome(file, wanted, location, weights_only)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        torch.save(plain.state_dict(), path)
        mapped = torch.load(path, map_location=pw.device(), mmap=True)
        results["mapped"] = all(torch.equal(value.cpu(), wanted[name]) for name, value in mapped.items())
    sizes = [len(saved(model.state_dict()).getvalue()) for model in (plain, there)]
    results["sizes"] = sizes
    results["assigned"] = assigned()
    results["moved"] = moved()
    results["safetensors"] = through_safetensors()
    results["for accelerate"] = through_torch_xla(there)
    parameter = there.embedding.weight
    mixed = torch.load(saved_at_start({"trained": parameter, "not": parameter.detach()}))
    results["gradients"] = [mixed["trained"].requires_grad, mixed["not"].requires_grad]
    try:
        torch.load(saved_at_start(there.state_dict()), map_location="xla:9")
    except pw.SliceUnavailable:
        results["pickled after an error"] = str(pickle.loads(pickle.dumps(there.halves)).device)
    json.dump(results, sys.stdout)


def through_torch_xla(model: nn.Module) -> bool:
    """Whether what torch_xla fetches for a file is right, and tied where it was tied."""
    from torch_xla.core import xla_model

    given = {**model.state_dict(), "text": "a", "nested": [model.state_dict()]}
    fetched: Any = xla_model._maybe_convert_to_cpu(given)
    storages: dict[int, set[str]] = {}
    for name in model.state_dict():
        storages.setdefault(fetched[name].untyped_storage().data_ptr(), set()).add(name)
    tied: dict[int, set[str]] = {}
    for name, value in model.state_dict().items():
        tied.setdefault(value.untyped_storage()._cdata, set()).add(name)
    right = all(torch.equal(fetched[name], value.cpu()) for name, value in model.state_dict().items())
    return (
        right
        and fetched["text"] == "a"
        and sorted(map(sorted, storages.values())) == sorted(map(sorted, tied.values()))
    )


def through_safetensors() -> list[bool]:
    """Whether tied weights are in the file once, right and tied afterwards, for each pair of places."""
    from safetensors import torch as library

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
            self.last.weight = self.first.weight

    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for source, target in itertools.product((torch.device("cpu"), pw.device()), repeat=2):
            path = os.path.join(folder, "model.safetensors")
            model, other = Small().to(source), Small().to(target)
            wanted = {name: value.cpu() for name, value in model.state_dict().items()}
            library.save_model(model, path)
            library.load_model(other, path)
            right = all(torch.equal(value.cpu(), wanted[name]) for name, value in other.state_dict().items())
            outcomes.append(right and len(library.load_file(path)) == 2 and other.last.weight is other.first.weight)
    return outcomes


def assigned() -> dict[str, Any]:
    """A model on a device is assigned the state of others, and its optimizer goes on with it."""
    import torch.nn.functional as F

    found: dict[str, Any] = {}
    rows = torch.arange(4).to(pw.device())
    for name in ("state", "parameters", "from the cpu"):
        model, other = Tied().to(pw.device()), Tied()
        other = other if name == "from the cpu" else other.to(pw.device())
        known = list(model.parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        values = {key: value.cpu() for key, value in other.state_dict().items()}
        given = other.state_dict(keep_vars=name == "parameters")
        model.load_state_dict({key: value.to(pw.device()) for key, value in given.items()}, assign=True)
        right = all(torch.equal(value.cpu(), values[key]) for key, value in model.state_dict().items())
        same = all(one is other for one, other in zip(known, model.parameters(), strict=True))
        F.cross_entropy(model.output(model.embedding(rows)), rows).backward()
        optimizer.step()
        trained = not torch.equal(model.embedding.weight.cpu(), values["embedding.weight"])
        theirs = {id(parameter) for parameter in other.parameters()}
        apart = not any(id(parameter) in theirs for parameter in model.parameters())
        found[name] = [right, same, model.output.weight is model.embedding.weight, trained, apart]
    return found


def moved() -> list[bool]:
    """An optimizer's state was made, or loaded, before its model went to a device; and comes back with it."""
    optimizers: list[Callable[[Any], torch.optim.Optimizer]] = [
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        # Their numbers of steps are on the device.
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.01, fused=True),
        lambda parameters: torch.optim.ASGD(parameters, lr=0.01),
        # Another number than that of steps is on the CPU.
        lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    ]

    def parameters(moves: dict[int, Any], make: Callable[[Any], torch.optim.Optimizer]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = make(model.parameters())
        for number in range(9):
            if number in moves:
                model.to(moves[number])
            optimizer.zero_grad()
            model(torch.randn(8, 4).to(model.weight.device)).square().mean().backward()
            optimizer.step()
            if number == 1:
                optimizer.load_state_dict(optimizer.state_dict())
        return [parameter.detach().cpu() for parameter in model.parameters()]

    def captured(place: Any, make: Callable[[Any], torch.optim.Optimizer]) -> list[torch.Tensor]:
        """A captured step lets its optimizer count on the device, which torch refuses on the CPU."""
        torch.manual_seed(0)
        model = nn.Linear(4, 3).to(place)
        optimizer = make(model.parameters())

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x.to(model.weight.device)).square().mean()
            loss.backward()
            optimizer.step()
            found: torch.Tensor = loss.detach()
            return found

        call = pw.program(step) if place != "cpu" else step
        for where, train in ((place, call), ("cpu", step), (place, call)):
            model.to(where)
            for _ in range(6):
                train(torch.randn(8, 4))
        assert not isinstance(call, pw.CapturedStep) or call.replays > 0
        return [parameter.detach().cpu() for parameter in model.parameters()]

    def of_two_parts(place: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        parts = nn.Linear(4, 8), nn.Linear(8, 3)
        optimizer = torch.optim.Adam([one for part in parts for one in part.parameters()], lr=0.01)
        for number in range(9):
            if number in (3, 6):
                parts[number % 2].to(place)
            optimizer.zero_grad()
            hidden = parts[0](torch.randn(8, 4).to(parts[0].weight.device))
            parts[1](hidden.to(parts[1].weight.device)).square().mean().backward()
            optimizer.step()
        return [one.detach().cpu() for part in parts for one in part.parameters()]

    def same(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
        return all(torch.allclose(one, other, atol=1e-6) for one, other in zip(ones, others, strict=True))

    found = [same(of_two_parts("cpu"), of_two_parts(pw.device()))]
    # Of fused Adagrad the client computes a part, so its step is not captured.
    can_be_captured = [make for make in optimizers if not isinstance(make([torch.zeros(1)]), torch.optim.Adagrad)]
    found += [same(captured("cpu", make), captured(pw.device(), make)) for make in can_be_captured]
    return found + [
        same(parameters({}, make), parameters(moves, make))
        for make in optimizers
        for moves in ({0: pw.device()}, {2: pw.device()}, {2: pw.device(), 6: "cpu"})
    ]


def saved_at_start(thing: Any) -> io.BytesIO:
    file = saved(thing)
    file.seek(0)
    return file


if __name__ == "__main__":
    main()
