"""Training on slices, that of all devices among them, against eager PyTorch on the CPU. A program of its own.

    python mesh_scenarios.py HOSTS DEVICES_PER_HOST      the scenarios of SCENARIOS for a cluster of that shape
    python mesh_scenarios.py ADDRESS                     odd_devices, on a cluster that stands

Prints one JSON object: for each scenario what it returned, or {"error": ...}.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
from ptpathways.frontend.slices import _transfer
from ptpathways.sharding import Mesh
from tests import inside
from tests.proc.mesh_basis import BATCH, LENGTH, STEPS, WIDTH, WORDS, Batches, Net, batches

_before: dict[str, int] = {}
"""What had been moved when the scenario began."""


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[tuple[Tensor, Tensor]]) -> list[float]:
    losses = []
    for tokens, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def values(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All of them on the CPU, by one fetch."""
    fetched = inside.values_of(list(tensors.values()))
    return {name.replace("_orig_module.", ""): value for name, value in zip(tensors, fetched, strict=True)}


def moved() -> dict[str, int]:
    connection = inside.connection()
    return connection.transfer_stats()


def spec(tensor: Tensor) -> str:
    """How a value lies, as XLA writes it: parts per dimension, copies, and the tile of each device."""
    pw.wait()
    found = _transfer.value_of(tensor).tiling
    if found is None or math.prod(found[0]) == 1:
        return "{replicated}"
    parts, tiles = found
    copies = len(tiles) // math.prod(parts)
    return f"{{devices=[{','.join(map(str, (*parts, *[copies] * (copies > 1))))}]{','.join(map(str, tiles))}}}"


def mesh(shape: tuple[int, ...], names: tuple[str, ...]) -> Any:
    from torch_xla.distributed import spmd

    return spmd.Mesh(np.arange(int(np.prod(shape))), shape, names)


def mark(tensor: Tensor, over: Any, partition: tuple[str | None, ...]) -> None:
    from torch_xla.distributed import spmd

    spmd.mark_sharding(tensor, over, partition)


def megatron(model: Net, over: Any) -> None:
    """Columns of the first layer of each pair, rows of the second, along the mesh axis ``model``."""
    block = model.block
    for layer in (block.query, block.key, block.value, block.up):
        mark(layer.weight, over, ("model", None))
        if layer.bias is not None:
            mark(layer.bias, over, ("model",))
    for layer in (block.merge, block.down):
        mark(layer.weight, over, (None, "model"))


def rows_and_columns(name: str, parameter: Tensor) -> tuple[str | None, ...] | None:
    """The same as a rule of ``pw.prepare`` and ``pw.shard``."""
    layer, kind = name.split(".")[-2:]
    if layer in ("query", "key", "value", "up"):
        return ("model", None) if kind == "weight" else ("model",)
    return (None, "model") if layer in ("merge", "down") else None


def compared(
    model: nn.Module,
    inner: Net,
    over: Any = None,
    batch_axis: Any = None,
    data: Batches | None = None,
    strategy: Any = "ddp",
) -> dict[str, Any]:
    """Trains ``model`` on the cluster and a copy of ``inner``, the same module without wrapper, here."""
    optimizer = optimizer_of(model)
    pw.prepare(model, optimizer, strategy=strategy)
    pw.wait()
    initialised = moved()
    twin = Net()
    twin.load_state_dict(values(inner.state_dict()))
    fetched = moved()["bytes_fetched"]
    data = data or batches()
    losses = train(model, optimizer, pw.prepare(data, mesh=over, batch_axis=batch_axis))
    trained = moved()
    eager = train(twin, optimizer_of(twin), data)
    final = values(inner.state_dict())
    weight = inner.block.up.weight
    return {
        "losses": losses,
        "eager": eager,
        "parameters": max(float((final[k] - v).abs().max() / v.abs().max()) for k, v in twin.state_dict().items()),
        "uploaded to initialise": initialised["bytes_uploaded"] - _before["bytes_uploaded"],
        "fetched to initialise": initialised["bytes_fetched"] - _before["bytes_fetched"],
        "uploaded to train": trained["bytes_uploaded"] - initialised["bytes_uploaded"],
        "fetched to train": trained["bytes_fetched"] - fetched,
        "weight": spec(weight),
        "state": [spec(value) for value in optimizer.state[weight].values() if value.dim() > 0],
    }


def data_parallel() -> dict[str, Any]:
    with pw.device():
        model = Net()
    return compared(model, model)


def tensor_parallel() -> dict[str, Any]:
    over = mesh((inside.device_count(),), ("model",))
    with pw.device():
        model = Net()
    megatron(model, over)
    return compared(model, model, over, batch_axis=())


def fully_sharded() -> dict[str, Any]:
    from torch_xla.experimental import spmd_fully_sharded_data_parallel as fsdp

    over = mesh((inside.device_count(), 1), ("fsdp", "model"))
    with pw.device():
        model = Net()
    model.block = fsdp.SpmdFullyShardedDataParallel(model.block, mesh=over)  # type: ignore[assignment]
    wrapped = fsdp.SpmdFullyShardedDataParallel(model, mesh=over)
    return compared(wrapped, model, over)


def data_and_tensor() -> dict[str, Any]:
    over = mesh((2, inside.device_count() // 2), ("data", "model"))
    with pw.device():
        model = Net()
    megatron(model, over)
    return compared(model, model, over)


def fully_sharded_by_strategy() -> dict[str, Any]:
    model = Net()
    return compared(model, model, strategy="fsdp")


METHODS_ON_SLICES: dict[str, tuple[str, Any, Any]] = {
    "data": ("data", "ddp", None),
    "fsdp": ("data", "fsdp", None),
    "tensor": ("model", rows_and_columns, ()),
}
"""The slice's axis, the strategy, and along what batches are divided."""


def two_slices() -> dict[str, Any]:
    """Two models at once on two slices that share no device, a step of one after a step of the other, in three ways."""
    found = {}
    for method, (axis, strategy, batch_axis) in METHODS_ON_SLICES.items():
        with pw.cluster().slice((2,), (axis,)) as first, pw.cluster().slice((2,), (axis,)) as second:
            loops, eager = [], []
            for number, place in enumerate((first, second)):
                model = Net()
                data = batches(STEPS + number)[number:]
                twin = copy.deepcopy(model)
                eager.append(train(twin, optimizer_of(twin), data))
                optimizer = optimizer_of(model)
                model, optimizer, loader = pw.prepare(
                    model, optimizer, data, slice=place, strategy=strategy, batch_axis=batch_axis
                )
                loops.append((model, optimizer, iter(loader), twin))
            losses: list[list[Tensor]] = [[], []]
            for _ in range(STEPS):
                for number, (model, optimizer, loader, _) in enumerate(loops):
                    tokens, labels = next(loader)
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
                    loss.backward()
                    optimizer.step()
                    losses[number].append(loss.detach())
            found[method] = {
                "devices": [list(first.devices), list(second.devices)],
                "torch devices": [str(loops[0][0].head.weight.device), str(loops[1][0].head.weight.device)],
                "weights": [spec(model.block.up.weight) for model, _, _, _ in loops],
                "states": [
                    [spec(value) for value in optimizer.state[model.block.up.weight].values() if value.dim() > 0]
                    for model, optimizer, _, _ in loops
                ],
                "losses": [torch.stack(some).tolist() for some in losses],
                "eager": eager,
                "parameters": [_distance(model, twin) for model, _, _, twin in loops],
            }
            for _, _, loader, _ in loops:
                loader.close()
    return found


def _distance(model: nn.Module, twin: nn.Module) -> float:
    final = values(dict(model.state_dict()))
    return max(float((final[k] - v).abs().max() / v.abs().max()) for k, v in twin.state_dict().items())


def laid_out_by_hand() -> dict[str, Any]:
    """pw.shard of parameters under an optimizer that has state, and of activations, in the middle of a training."""
    over = Mesh((2, inside.device_count() // 2), ("data", "model"))
    model = Net()
    twin = copy.deepcopy(model)
    optimizer, data = optimizer_of(model), batches()
    pw.prepare(model, optimizer)
    losses = train(model, optimizer, pw.prepare(data[:5]))
    before, parameters = moved(), list(model.parameters())
    version = model.block.up.weight._version
    pw.shard(model, rows_and_columns, over)
    pw.wait()
    after = moved()
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    assert model.block.up.weight._version == version
    lies = [spec(model.block.up.weight), spec(model.block.down.weight), spec(model.head.weight)]
    seen: list[Tensor] = []

    def divide(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        seen.append(pw.shard(output, ("data", None, "model"), over))
        return seen[-1]

    model.block.up.register_forward_hook(divide)
    losses += train(model, optimizer, pw.prepare(data[5:], mesh=over))
    eager = train(twin, optimizer_of(twin), data)
    with torch.no_grad():
        (tokens,) = pw.prepare([data[0][0]])
        model(tokens)
    pw.step()
    return {
        "losses": losses,
        "eager": eager,
        "parameters": _distance(model, twin),
        "passed the client": [after[key] - before[key] for key in ("bytes_uploaded", "bytes_fetched")],
        "lies": lies,
        "activation": spec(seen[-1]),
        "weight": spec(model.block.up.weight),
    }


def made_on_the_cpu() -> dict[str, Any]:
    """Batches whose size no number of devices divides, too."""
    model = Net()
    uneven = batches(4, 7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compared(model, model, data=uneven)
    result["warnings"] = [str(one.message) for one in caught if one.category.__name__ == "UnevenBatchWarning"]
    return result


def digests(model: nn.Module) -> list[str]:
    return [hashlib.sha1(value.numpy().tobytes()).hexdigest() for value in values(dict(model.state_dict())).values()]


def initialised() -> dict[str, Any]:
    """Digests of parameters made from seeds in four ways, which must not depend on the number of devices."""
    found = {}
    torch.manual_seed(11)
    with pw.device():
        model = Net()
    pw.prepare(model)
    found["plain"] = digests(model)
    torch.manual_seed(12)
    with torch.device("meta"):
        model = Net()
    model.to_empty(device=pw.device())
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding):
            module.reset_parameters()
    pw.prepare(model)
    found["meta"] = digests(model)
    torch.manual_seed(11)
    with pw.device():
        model = Net()
    if inside.device_count() > 1:
        megatron(model, mesh((inside.device_count(),), ("model",)))
        said = inside.sharding_of(model.block.up.weight)
        assert said.startswith("{devices="), said
    pw.prepare(model)
    found["marked"] = digests(model)
    pw.manual_seed(11)
    with pw.device():
        model = Net()
    pw.prepare(model)
    found["again"] = digests(model)
    return found


def seeded() -> list[list[float]]:
    """Losses of a model with dropout, made and trained after pw.seed(), twice; and what Python and NumPy drew."""
    runs = []
    for _ in range(2):
        pw.seed(5)
        with pw.device():
            model = nn.Sequential(
                nn.Embedding(WORDS, WIDTH), nn.Dropout(0.4), nn.Flatten(), nn.Linear(LENGTH * WIDTH, 8)
            )
        model, optimizer = pw.prepare(model, optimizer_of(model))
        loader = DataLoader(TensorDataset(*batches(1, 10 * BATCH)[0]), batch_size=BATCH, shuffle=True)
        losses = []
        for tokens, labels in pw.prepare(loader):
            optimizer.zero_grad()
            hidden = F.dropout(model(tokens), 0.1)
            loss = F.cross_entropy(hidden, labels[:, 0] % 8)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        runs.append([*torch.stack(losses).tolist(), random.random(), float(np.random.rand())])
    return runs


def a_batch_enters_in_parts() -> dict[str, Any]:
    """A batch of 4 MiB: what the client sent, and how many bytes more each host holds."""
    connection = inside.connection()

    def held() -> list[int]:
        pw.wait()
        status = json.loads(connection.session.status_json(10.0))
        return [sum(device["used"] for device in host["memory"]) for host in status["hosts"]]

    before, sent = held(), moved()["bytes_uploaded"]
    (batch,) = pw.prepare([torch.ones(4096, 256)])
    total = float(batch.sum())
    after, sent = held(), moved()["bytes_uploaded"] - sent
    return {"sum": total, "sent": sent, "held": [b - a for a, b in zip(before, after, strict=True)]}


def resumed() -> list[float]:
    """Optimizer state of a checkpoint, of sharded parameters: it lies as they do."""
    over = mesh((inside.device_count(),), ("model",))
    first = Net()
    optimizer = optimizer_of(first)
    data = batches(6)
    train(first, optimizer, data[:2])
    weights, state = copy.deepcopy(first.state_dict()), copy.deepcopy(optimizer.state_dict())
    eager = train(first, optimizer, data[2:])
    with pw.device():
        model = Net()
    megatron(model, over)
    pw.prepare(model)
    model.load_state_dict(weights)
    again = optimizer_of(model)
    again.load_state_dict(state)
    pw.prepare(model, again)
    assert spec(again.state[model.block.up.weight]["exp_avg"]) == spec(model.block.up.weight)
    losses = train(model, again, pw.prepare(data[2:], mesh=over, batch_axis=()))
    return [abs(a - b) / b for a, b in zip(losses, eager, strict=True)]


def a_dimension_that_does_not_divide() -> dict[str, Any]:
    """10 rows marked over 4 devices: PyTorch/XLA pads the last ones."""
    count = inside.device_count()
    with pw.device():
        layer = nn.Linear(6, 10)
    mark(layer.weight, mesh((count,), ("model",)), ("model", None))
    pw.prepare(layer)
    here = nn.Linear(6, 10)
    here.load_state_dict(values(layer.state_dict()))
    x = torch.arange(12.0).reshape(2, 6)
    (there,) = pw.prepare([x], batch_axis=())
    error = float((layer(there).detach().cpu() - here(x).detach()).abs().max())
    return {"weight": spec(layer.weight), "difference": error}


def refused() -> dict[str, str]:
    """Mistakes, and what is said about them."""
    count = inside.device_count()
    over = mesh((count,), ("rows",))
    layer = nn.Linear(2, count).to(pw.device())
    small, freed = pw.cluster().slice((1,)), pw.cluster().slice((2,))
    freed.release()
    attempts: dict[str, Callable[[], Any]] = {
        "axis": lambda: pw.prepare(batches(1), mesh=over),
        "name": lambda: pw.prepare(batches(1), mesh=over, batch_axis="data"),
        "mesh": lambda: pw.prepare(batches(1), mesh=(count,)),
        "meta": lambda: pw.prepare(nn.Linear(2, 2, device="meta")),
        "strategy": lambda: pw.prepare(nn.Linear(2, 2), strategy="zero"),  # type: ignore[call-overload]
        "rule": lambda: pw.prepare(layer, strategy=lambda name, p: ("rows", None)),
        "spec": lambda: pw.shard(layer, lambda name, p: ("x", None), over),
        "odd": lambda: pw.shard(torch.ones(count + 1, 2, device=pw.device()), ("rows", None), over),
        "here": lambda: pw.shard(torch.ones(count), ("data",)),
        "freed": lambda: pw.prepare(nn.Linear(2, 2), slice=freed),
        "other mesh": lambda: mark(torch.ones(2, 2, device=small.device), over, ("rows", None)),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def odd_devices() -> dict[str, Any]:
    """Three devices on hosts with different numbers of them; batches of 6."""
    with pw.device():
        model = Net()
    result = compared(model, model, data=batches(4, 6))
    return {**result, "devices": [len(host.devices) for host in pw.cluster().hosts]}


METHODS = (data_parallel, tensor_parallel, fully_sharded, data_and_tensor, fully_sharded_by_strategy)
SLICES = (two_slices, laid_out_by_hand)
ENTRY = (initialised, a_batch_enters_in_parts)
OTHERS = (resumed, a_dimension_that_does_not_divide, refused)
SCENARIOS: dict[tuple[int, int], tuple[Callable[[], Any], ...]] = {
    (1, 1): (data_parallel, initialised, seeded),
    (1, 4): (*METHODS, *SLICES, *ENTRY, *OTHERS, made_on_the_cpu, seeded),
    (2, 2): (*METHODS, *SLICES, *ENTRY, *OTHERS, seeded),
    (4, 1): (*METHODS, *SLICES, *ENTRY),
}


def main() -> None:
    global _before
    chosen: tuple[Callable[[], Any], ...] = (odd_devices,)
    if len(sys.argv) == 2:
        pw.init(sys.argv[1])
    else:
        hosts, devices = map(int, sys.argv[1:])
        pw.init(hosts=hosts, devices_per_host=devices)
        chosen = SCENARIOS[hosts, devices]
    results: dict[str, Any] = {}
    for index, scenario in enumerate(chosen):
        torch.manual_seed(100 + index)
        _before = moved()
        start = time.monotonic()
        try:
            results[scenario.__name__] = scenario()
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
        print(f"{scenario.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
