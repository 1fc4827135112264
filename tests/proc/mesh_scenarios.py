"""Training on a mesh of all devices of all hosts, against eager PyTorch on the CPU. A program of its own: one process.

    python mesh_scenarios.py HOSTS DEVICES_PER_HOST      the scenarios of SCENARIOS for a cluster of that shape
    python mesh_scenarios.py ADDRESS                     odd_devices, on a cluster that stands

Prints one JSON object: for each scenario what it returned, or {"error": ...}.
"""

from __future__ import annotations

import copy
import hashlib
import json
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
from ptpathways.frontend import _state, _xla

STEPS, BATCH, LENGTH, WORDS, WIDTH, HEADS = 20, 8, 6, 32, 16, 4
Batches = list[tuple[Tensor, Tensor]]

_before: dict[str, int] = {}
"""What had been moved when the scenario began."""


class Block(nn.Module):
    """A transformer block on (batch, length, WIDTH): attention, then a hidden layer, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        # A bias of the keys changes nothing after the softmax: its gradient is rounding, which AdamW would follow.
        self.query, self.key, self.value, self.merge = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = (
            layer(y).unflatten(2, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(3)
        x = x + self.merge((weights @ value).transpose(1, 2).flatten(2))
        hidden: Tensor = self.down(F.gelu(self.up(x)))
        return x + hidden


class Net(nn.Module):
    """Tokens (batch, length) to logits (batch, length, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.block = Block()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(self.embedding(tokens)))
        return logits


def batches(count: int = STEPS, rows: int = BATCH) -> Batches:
    generator = torch.Generator().manual_seed(1)
    tokens = [torch.randint(0, WORDS, (rows, LENGTH), generator=generator) for _ in range(count)]
    return [(x, (x * 5 + 3) % WORDS) for x in tokens]


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
    fetched = _xla.binding()._xla_get_cpu_tensors(list(tensors.values()))
    return {name.replace("_orig_module.", ""): value for name, value in zip(tensors, fetched, strict=True)}


def moved() -> dict[str, int]:
    connection = _state.runtime().connection
    assert connection is not None
    return connection.transfer_stats()


def spec(tensor: Tensor) -> str:
    return str(_xla.binding()._get_xla_sharding_spec(tensor))


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


def compared(
    model: nn.Module, inner: Net, over: Any = None, batch_axis: Any = None, data: Batches | None = None
) -> dict[str, Any]:
    """Trains ``model`` on the cluster and a copy of ``inner``, the same module without wrapper, here."""
    optimizer = optimizer_of(model)
    pw.prepare(model, optimizer)
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
    over = mesh((_state.runtime().device_count,), ("model",))
    with pw.device():
        model = Net()
    megatron(model, over)
    return compared(model, model, over, batch_axis=())


def fully_sharded() -> dict[str, Any]:
    from torch_xla.experimental import spmd_fully_sharded_data_parallel as fsdp

    over = mesh((_state.runtime().device_count, 1), ("fsdp", "model"))
    with pw.device():
        model = Net()
    model.block = fsdp.SpmdFullyShardedDataParallel(model.block, mesh=over)  # type: ignore[assignment]
    wrapped = fsdp.SpmdFullyShardedDataParallel(model, mesh=over)
    return compared(wrapped, model, over)


def data_and_tensor() -> dict[str, Any]:
    over = mesh((2, _state.runtime().device_count // 2), ("data", "model"))
    with pw.device():
        model = Net()
    megatron(model, over)
    return compared(model, model, over)


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
    if _state.runtime().device_count > 1:
        megatron(model, mesh((_state.runtime().device_count,), ("model",)))
        nothing_waits = spec(model.block.up.weight).startswith("{devices=")
        assert nothing_waits, spec(model.block.up.weight)
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
    connection = _state.runtime().connection
    assert connection is not None

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
    over = mesh((_state.runtime().device_count,), ("model",))
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
    count = _state.runtime().device_count
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
    count = _state.runtime().device_count
    over = mesh((count,), ("rows",))
    attempts: dict[str, Callable[[], Any]] = {
        "device": lambda: pw.device(0),
        "axis": lambda: pw.prepare(batches(1), mesh=over),
        "name": lambda: pw.prepare(batches(1), mesh=over, batch_axis="data"),
        "mesh": lambda: pw.prepare(batches(1), mesh=(count,)),
        "meta": lambda: pw.prepare(nn.Linear(2, 2, device="meta")),
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


METHODS = (data_parallel, tensor_parallel, fully_sharded, data_and_tensor)
ENTRY = (initialised, a_batch_enters_in_parts)
OTHERS = (resumed, a_dimension_that_does_not_divide, refused)
SCENARIOS: dict[tuple[int, int], tuple[Callable[[], Any], ...]] = {
    (1, 1): (data_parallel, initialised, seeded),
    (1, 4): (*METHODS, *ENTRY, *OTHERS, made_on_the_cpu, seeded),
    (2, 2): (*METHODS, *ENTRY, *OTHERS, seeded),
    (4, 1): (*METHODS, *ENTRY),
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
