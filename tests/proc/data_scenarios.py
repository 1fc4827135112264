"""Loops over input pipelines on the workers' hosts. A program of its own: ``python data_scenarios.py HOSTS DEVICES``.

Prints one JSON object: for each scenario what it saw, or the error.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import ptpathways as pw
from tests import inside

SAMPLES = 22
BATCH = 8


class Unprintable(LookupError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Augmented(Dataset[Any]):
    """Tells which sample it is, with random numbers of all kinds."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.fault == "raise" and index == 9:
            raise LookupError(f"sample {index} is not there")
        if self.fault == "long" and index == 9:
            raise LookupError("sample 9 " + "x" * 10_000_000)
        if self.fault == "unprintable" and index == 9:
            raise Unprintable
        if self.fault == "exit" and index == 9:
            os._exit(7)
        if self.fault == "hang" and index == 9:
            time.sleep(600)
        return {"index": index, "drawn": torch.rand(3) + random.random()}


def stream() -> Iterator[torch.Tensor]:
    for index in range(SAMPLES):
        yield torch.tensor([float(index), random.random()])


def seen(loader: Any) -> list[Any]:
    """Every batch of an epoch: indices, and sums of the random numbers."""
    batches = list(loader)
    return [[batch["index"].tolist(), [round(x, 4) for x in batch["drawn"].sum(1).tolist()]] for batch in batches]


def order() -> dict[str, Any]:
    """Two epochs, the second resumed in its middle; the uneven last batch goes to every device."""
    before = bytes_uploaded()
    loader = pw.data.remote(Augmented, batch_size=BATCH, seed=5)
    first, second = seen(loader), seen(loader)
    asked = [loader.order(0), loader.order(1)]
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = seen(iterator)
    again = loader
    if inside.device_count() == 1:
        loader.close()
        again = pw.data.remote(Augmented, batch_size=BATCH, seed=5, num_workers=2)
    again.load_state_dict(state)
    position = again.position
    resumed = seen(again)
    after = [again.position, len(again)]
    again.set_epoch(0)
    return {
        "epochs": [first, second],
        "asked": asked,
        "position": position,
        "rest": rest,
        "resumed": resumed,
        "uploaded": bytes_uploaded() - before,
        "after": after,
        "first again": seen(again),
        "sharding": inside.sharding_of(next(iter(again))["drawn"]),
    }


def on_a_slice() -> dict[str, Any]:
    """On two devices of one host: the same batches, made by that host alone; also when ``prepare`` says the slice."""
    with pw.cluster().slice((2,), ("data",), hosts=1) as place:
        loader = pw.data.remote(Augmented, batch_size=BATCH, seed=5, device=place.device)
        first = next(iter(loader))["drawn"]
        assert first.device == place.device
        given = pw.prepare(pw.data.remote(Augmented, batch_size=BATCH, seed=5), slice=place)
        assert loader._pipeline is not None
        found = {
            "hosts": loader._pipeline.hosts,
            "host": [host.devices[0] <= place.devices[0] <= host.devices[-1] for host in pw.cluster().hosts].index(
                True
            ),
            "sharding": inside.sharding_of(first),
            "epochs": [seen(given), seen(given)],
        }
        loader.close()
        given.close()
    return found


def bytes_uploaded() -> int:
    connection = inside.connection()
    return int(connection.transfer_stats()["bytes_uploaded"])


def training() -> dict[str, Any]:
    """A prepared loop over remote batches, and the same over a DataLoader in this process."""

    def loop(make: Callable[[], Any]) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model, optimizer, loader = pw.prepare(model, optimizer, make())
        losses = []
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad()
                loss = (model(batch["drawn"]).flatten() - batch["index"].float()).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        return [float(loss) for loss in losses]

    def fixed() -> Any:
        return [{"index": index, "drawn": torch.full((3,), index / 10)} for index in range(SAMPLES)]

    before = bytes_uploaded()
    for _ in pw.prepare(DataLoader(TensorDataset(torch.zeros(16, 1024)), batch_size=8)):
        pass
    return {
        "sent": bytes_uploaded() - before,
        "remote": loop(lambda: pw.data.remote(fixed, batch_size=BATCH, shuffle=False)),
        "here": loop(lambda: DataLoader(fixed(), batch_size=BATCH)),
    }


def streamed() -> dict[str, Any]:
    """An iterable dataset, resumed in the middle."""
    loader = pw.data.remote(stream, batch_size=BATCH)
    whole = [batch.tolist() for batch in loader]
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batch": 1})
    resumed = [batch.tolist() for batch in loader]
    loader.close()
    return {"whole": whole, "resumed": resumed}


def fault(kind: str) -> dict[str, Any]:
    """How the loop hears of it, after how many batches; and what a value computed from the batch says."""
    given: list[Any] = []
    loader = pw.data.remote(lambda: Augmented(kind), batch_size=4, shuffle=False, timeout_s=2.0, prefetch=1)
    message = name = value = ""
    position = (-1, -1)
    try:
        for batch in loader:
            given.append(batch["drawn"].sum())
    except pw.PathwaysError as error:
        message, name, position = str(error), type(error).__name__, loader.position
    good = [bool(torch.isfinite(total)) for total in given[:2]]
    try:
        for total in given[2:3]:
            total.item()
    except RuntimeError as error:
        value = f"{type(error).__name__}: {error}"
    return {
        "error": name,
        "message": message,
        "given": len(given),
        "position": position,
        "good": good,
        "value": value,
    }


def faults() -> dict[str, Any]:
    return {kind: fault(kind) for kind in ("raise", "exit", "hang", "long", "unprintable")}


def refusals() -> dict[str, Any]:
    """What cannot be: datasets and arguments."""

    def said(function: Callable[[], Any]) -> str:
        try:
            function()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return {
        "shuffled stream": said(lambda: next(iter(pw.data.remote(stream, shuffle=True)))),
        "no function": said(lambda: pw.data.remote([1])),  # type: ignore[arg-type]
        "batch size": said(lambda: pw.data.remote(stream, batch_size=0)),
        "state": said(
            lambda: pw.data.remote(Augmented, batch_size=4).load_state_dict(
                {**pw.data.remote(Augmented, batch_size=8).state_dict(), "epoch": 1}
            )
        ),
    }


def lost_worker() -> dict[str, Any]:
    """A worker is killed; its pipeline's process goes with it, and the loop is told of the host."""
    connection = inside.connection()
    loader = pw.data.remote(Augmented, batch_size=BATCH)
    batches = iter(loader)
    next(batches)
    worker = connection.host_pids()[-1]
    children = [int(pid) for task in os.listdir(f"/proc/{worker}/task") for pid in _children(worker, task)]
    watched = [os.pidfd_open(pid) for pid in children]
    os.kill(worker, signal.SIGKILL)
    gone = [bool(select.select([one], [], [], 20)[0]) for one in watched]
    try:
        seen(batches)
        seen(loader)
    except RuntimeError as error:
        return {"children": len(children), "gone": gone, "error": type(error).__name__, "message": str(error)}
    return {"children": len(children), "gone": gone, "error": ""}


def _children(process: int, task: str) -> list[str]:
    with open(f"/proc/{process}/task/{task}/children") as file:
        return file.read().split()


def of_torch_xla() -> dict[str, Any]:
    """PyTorch/XLA's own loader reads in the loop's thread, and hands on what the one that it wraps raises."""
    from torch_xla.distributed import parallel_loader

    wrapped: Any = parallel_loader.MpDeviceLoader
    parallel: Any = parallel_loader.ParallelLoader
    threads: list[str] = []

    class Watched(Dataset[Any]):
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, index: int) -> torch.Tensor:
            threads.append(threading.current_thread().name)
            return torch.tensor([float(index)])

    plain = DataLoader(Watched(), batch_size=BATCH)
    loader = wrapped(plain, pw.device())
    batches = [(str(batch.device), batch.flatten().tolist()) for batch in loader]
    failing = wrapped(DataLoader(Augmented("raise"), batch_size=BATCH), pw.device())
    got, error = 0, ""
    try:
        for _ in failing:
            got += 1
    except LookupError as raised:
        error = str(raised)
    with_threads = wrapped(plain, pw.device(), loader_prefetch_size=2, batches_per_execution=3)
    many = [batch.flatten().tolist() for batch in with_threads]
    ended = ""
    try:  # the threads of PyTorch/XLA, which hand on an error as its loop looks for it
        there_too = parallel(DataLoader(Augmented("raise"), batch_size=BATCH), [pw.device()])
        for _ in there_too.per_device_loader(pw.device()):
            pass
    except LookupError as raised:
        ended = str(raised)
    refused = []
    bad: list[dict[str, Any]] = [{"loader_prefetch_size": 0}, {"host_to_device_transfer_threads": 0}, {"prefetch": 1}]
    makers: list[Callable[[dict[str, Any]], Any]] = [
        lambda settings: iter(wrapped(plain, pw.device(), **settings)),
        lambda settings: parallel(plain, [pw.device()], **settings),
    ]
    for settings in bad:
        for make in makers:
            try:
                make(settings)
            except (TypeError, ValueError) as error_said:
                refused.append(str(error_said))
    there = pw.device(3)
    left = iter(wrapped(plain, there))
    kept = next(left) * 2
    del left  # no submission in the middle of whatever comes then
    whole = [value for _, values in batches for value in values]
    return {
        "right": whole == list(range(SAMPLES)) and {device for device, _ in batches} == {str(pw.device())},
        "threads": sorted(set(threads)),
        "same": loader.dataset is plain.dataset,
        "failing": [got, error],
        "with settings": [value for values in many for value in values] == whole,
        "of threads": ended,
        "refused": refused,
        "kinds": _kinds(wrapped),
        "last of a stream": _last_of_a_stream(),
        "on a slice": [str(kept.device) == str(there), kept.flatten().tolist()],
    }


class Pair(NamedTuple):
    x: torch.Tensor
    name: str


class Named(dict[str, Any]):
    """Of a library's, as a tokenizer's batch."""


def _kinds(wrapped: Any) -> list[str]:
    """What kinds of batches come out as other kinds than they were."""
    ones = torch.ones(4)
    there = pw.device()
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 1), torch.ones(2, 1)])
    batches: list[Any] = [
        Pair(ones, "a"),
        (ones, None),
        [ones, 1.5],
        Named(x=ones),
        OrderedDict(x=(ones, "text")),
        np.ones(3),
        nn.Parameter(ones),
        ones.to(there),
        packed,
    ]
    wrong = []
    for batch, given in zip(batches, wrapped(batches, there), strict=True):
        parts = zip(_tensors(batch), _tensors(given), strict=True)
        kind = type(batch) if not isinstance(batch, nn.Parameter) else torch.Tensor
        same = all(g.device == there and torch.equal(w.detach().cpu(), g.cpu()) for w, g in parts)
        if type(given) is not kind or not same:
            wrong.append(f"{type(batch).__name__}: {given!r}")
    return wrong


def _last_of_a_stream() -> list[int]:
    """Of each batch of a stream, how many rows accelerate gathers for metrics of a value for each of a full batch."""
    from accelerate import Accelerator

    accelerator = Accelerator()
    loader = accelerator.prepare(DataLoader(Stream(), batch_size=BATCH))
    return [len(accelerator.gather_for_metrics(batch.new_ones(BATCH))) for batch in loader]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(float(SAMPLES)))


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, PackedSequence):
        return [batch.data]
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return [one for part in batch for one in _tensors(part)]
    return [batch] if isinstance(batch, torch.Tensor) else []


SCENARIOS: dict[str, list[Callable[[], Any]]] = {
    "1x1": [order, streamed, faults, refusals],
    "2x2": [order, training, on_a_slice, of_torch_xla],
    "4x1": [order, lost_worker],
}


def main(hosts: int, devices: int) -> None:
    pw.init(hosts=hosts, devices_per_host=devices)
    results: dict[str, Any] = {}
    for scenario in SCENARIOS[f"{hosts}x{devices}"]:
        began = time.monotonic()
        try:
            results[scenario.__name__] = scenario()
        except Exception:
            results[scenario.__name__] = {"failure": traceback.format_exc()}
        results[scenario.__name__]["seconds"] = round(time.monotonic() - began, 1)
    connection = inside.connection()
    results["pids"] = connection.host_pids()
    pw.shutdown()
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
