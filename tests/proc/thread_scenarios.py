"""Several threads and their devices. A program of its own: one process, one use.

Prints one JSON object: for each scenario what it found, or the error.
"""

from __future__ import annotations

import concurrent.futures
import copy
import json
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptpathways as pw

STEPS = 24
WAIT_S = 60.0
Step = Callable[[Tensor, Tensor], Tensor]


def batches(seed: int = 2) -> list[tuple[Tensor, Tensor]]:
    chance = torch.Generator().manual_seed(seed)
    return [(torch.randn(4, 8, generator=chance), torch.randn(4, 1, generator=chance)) for _ in range(STEPS)]


def network(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def step_of(model: nn.Module, place: torch.device, captured: bool = False) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.to(place), y.to(place)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if place.type == "xla" and not captured:
            pw.step(place)
        return loss.detach()

    return pw.program(step, kind="step") if captured else step


def eager(seed: int = 1) -> list[float]:
    step = step_of(network(seed), torch.device("cpu"))
    return [float(step(x, y)) for x, y in batches()]


def off(found: list[Tensor], wanted: list[float]) -> float:
    """The largest difference; of as many losses as there are."""
    assert found
    return max(abs(float(one) - other) for one, other in zip(found, wanted, strict=False))


def evaluation_without_turns(captured: bool) -> Any:
    """It comes in the middle of a step of the main thread, is refused, and the training goes on."""
    place = pw.device()
    model = network().to(place)
    step = step_of(model, place, captured)
    losses: list[Tensor] = []
    said: list[str] = []

    def evaluate() -> None:
        spinning.wait(WAIT_S)
        try:
            with torch.no_grad():
                model(torch.ones(2, 8).to(place)).sum().item()
        except pw.ConcurrentUse as error:
            said.append(str(error))
        ended.append(True)

    def beside(module: nn.Module, unused: Any) -> None:
        """In the middle of a forward pass of the main thread, which goes on with code of its own: in a join, another
        thread may stand in for it."""
        if armed.is_set() and threading.current_thread() is threading.main_thread():
            armed.clear()
            ended.clear()
            spinning.clear()
            threading.Thread(target=evaluate, name="evaluation").start()
            spinning.set()
            while not ended:
                pass

    ended: list[bool] = []
    armed, spinning = threading.Event(), threading.Event()
    spinning.set()
    handle = model[1].register_forward_pre_hook(beside)
    for number, (x, y) in enumerate(batches()):
        if number == 0:  # a second thread uses the device from here on
            first = threading.Thread(target=evaluate)
            first.start()
            first.join()
        if number == 1:
            armed.set()
        losses.append(step(x, y))
    handle.remove()
    return {"off": off(losses, eager()), "said": said, "losses": len(losses)}


def evaluation_in_turns(captured: bool) -> Any:
    place = pw.device()
    model = network().to(place)
    step = step_of(model, place, captured)
    turn, over, scores, losses = threading.Lock(), threading.Event(), [], []
    began = threading.Event()

    def evaluate() -> None:
        while not over.is_set():
            with turn, torch.no_grad():
                scores.append(model(torch.ones(2, 8).to(place)).sum().item())
            began.set()

    thread = threading.Thread(target=evaluate)
    thread.start()
    try:
        assert began.wait(WAIT_S)
        for x, y in batches():
            with turn:
                losses.append(step(x, y))
    finally:
        over.set()
        thread.join(WAIT_S)
    return {"off": off(losses, eager()), "scores": len(scores), "replays": getattr(step, "replays", 0)}


def a_slice_for_each(captured: bool) -> Any:
    cluster = pw.cluster()
    losses: list[list[Tensor]] = [[], []]
    with cluster.slice((1,)) as s, cluster.slice((1,)) as t:
        models = [network(seed).to(slice.device) for seed, slice in enumerate((s, t))]
        steps = [step_of(model, slice.device, captured) for model, slice in zip(models, (s, t), strict=True)]

        def train(number: int) -> None:
            for x, y in batches():
                losses[number].append(steps[number](x, y))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(train, range(2)))
        return {"off": max(off(losses[seed], eager(seed)) for seed in range(2))}


def a_thread_that_feeds(captured: bool) -> Any:
    place = pw.device()
    step = step_of(network().to(place), place, captured)
    coming: queue.Queue[tuple[Tensor, Tensor]] = queue.Queue(3)

    def feed() -> None:
        for x, y in batches():
            coming.put((x.to(place), y.to(place)))

    thread = threading.Thread(target=feed)
    thread.start()
    losses = [step(*coming.get(timeout=WAIT_S)) for _ in range(STEPS)]
    thread.join(WAIT_S)
    return {"off": off(losses, eager()), "replays": getattr(step, "replays", 0)}


def threads_one_after_the_other(captured: bool) -> Any:
    """The main thread has begun to compute, and waits for a thread that evaluates; threads of a pool take turns."""
    place = pw.device()
    model = network().to(place)
    frozen = copy.deepcopy(model)
    step = step_of(model, place, captured)
    losses, scores = [], []

    def evaluate() -> list[float]:
        with torch.no_grad():
            values: list[float] = frozen(torch.ones(2, 8).to(place)).cpu().flatten().tolist()
            return values

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for x, y in batches():
            losses.append(step(x, y))
            with torch.no_grad():
                doubled = frozen(torch.ones(2, 8).to(place)) * 2
            scores.append(pool.submit(evaluate).result())
            scores.append([value / 2 for value in doubled.flatten().tolist()])
    with torch.no_grad():
        wanted = network()(torch.ones(2, 8)).flatten().tolist()
    return {"off": max(off(losses, eager()), *(abs(score[0] - wanted[0]) for score in scores))}


SCENARIOS = (
    evaluation_without_turns,
    evaluation_in_turns,
    a_slice_for_each,
    a_thread_that_feeds,
    threads_one_after_the_other,
)


def main() -> None:
    pw.init(hosts=1, devices_per_host=2)
    results = {}
    for scenario in SCENARIOS:
        for captured in (False, True):
            try:
                found = scenario(captured)
            except Exception:
                found = {"error": traceback.format_exc()}
            results[f"{scenario.__name__} {'captured' if captured else 'traced'}"] = found
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
