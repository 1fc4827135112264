"""What a notebook's user does beside running cells in order. A program of its own: ``notebook_scenarios.py KIND``.

    interrupts     one device; Ctrl-C while the main thread waits in several ways
    interrupts-spmd    the same with two devices used together
    again          a backward pass on the CPU, init twice, cells that run again, a broken step, shutdown and another
                   cluster, a lost one

Prints one JSON object: what was seen, by scenario.
"""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw
from ptpathways.frontend.capture.recording import _outcome
from ptpathways.testing import stop_process
from tests import inside

seen: dict[str, Any] = {}


def worker() -> int:
    connection = inside.connection()
    pid: int = connection.host_pids()[0]
    return pid


def interrupt(
    name: str, wait: Callable[[], Any], value: Callable[[], Any], *, after_s: float = 0.2, warm: bool = True
) -> None:
    """Presses Ctrl-C while ``wait`` waits for a stopped worker, and notes how it ended; then what ``value`` gives."""
    sent = [0.0]

    def press() -> None:
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    def give_up() -> None:
        os.kill(pid, signal.SIGCONT)  # else a wait that ignores Ctrl-C would be one for ever

    if warm:
        value()  # compiled now: on several devices an interrupt waits for that
        pw.wait(60)
    pid = worker()
    stop_process(pid)
    timers = [threading.Timer(after_s, press), threading.Timer(20.0, give_up)]
    for timer in timers:
        timer.start()
    try:
        wait()
        ended: Any = "it returned"
    except KeyboardInterrupt as error:
        ended = {
            "seconds": time.monotonic() - sent[0],
            "line": "wait()" in "".join(traceback.format_tb(error.__traceback__)),
        }
    except BaseException as error:
        ended = f"{type(error).__name__}: {error}"
    for timer in timers:
        timer.cancel()
        timer.join()
    os.kill(pid, signal.SIGCONT)
    seen[name] = {"ended": ended, "value": value()}


def interrupts() -> None:
    """Values are 16 x 4 in sum; each scenario reads one after its wait was interrupted."""
    device = pw.device()
    x = torch.ones(4, 4, device=device)
    y = (x @ x).sum()
    assert y.item() == 64.0
    z = y * 2
    interrupt("item", lambda: z.item(), lambda: z.item())
    interrupt("print", lambda: repr(y + 1), lambda: float(y + 1))
    interrupt("if", lambda: bool(y > 3), lambda: bool(y > 3))
    interrupt("in place fallback", lambda: x.unique(), lambda: x.unique().tolist())
    big = torch.arange(4_000_000, dtype=torch.float32)
    on_device = big.to(device) + 0.0  # computed there: an upload's bytes may still be in this process
    pw.step()
    interrupt("large", lambda: on_device.cpu(), lambda: torch.equal(on_device.cpu(), big))
    made = []

    def submit_and_wait() -> None:
        made.append(x + 2.0)
        pw.wait(60)

    submit_and_wait()
    submit_and_wait()
    interrupt("wait", submit_and_wait, lambda: made[-1].sum().item(), warm=False)
    held = [x]

    def steps(count: float) -> None:
        done = 0
        while done < count:
            held[0] = held[0] * 1.0
            pw.step()
            done += 1

    steps(3)
    interrupt("back-pressure", lambda: steps(math.inf), lambda: held[0].sum().item(), after_s=1.0)

    replayed = captured()[0]

    def replays() -> None:
        while True:
            replayed()

    interrupt("captured back-pressure", replays, lambda: math.isfinite(replayed().item()), after_s=1.0)
    with mock.patch.object(_outcome.Audits, "due", lambda self: True):
        interrupt("audits", replays, lambda: math.isfinite(replayed().item()), after_s=0.5)

    def in_finally() -> None:
        try:
            z.item()
        finally:
            seen["in finally"] = "ran"

    interrupt("finally", in_finally, lambda: z.item())
    cluster = pw.cluster()

    @pw.function(slice=cluster.slice((1,)))
    def double(v: Any) -> Any:
        return v * 2.0

    assert double([1.0]).result().tolist() == [2.0]
    future: list[Any] = []

    def result() -> None:
        future.append(double([21.0]))
        future[0].result()

    interrupt("future", result, lambda: future[0].result().tolist(), warm=False)
    seen["alive"] = [host.alive for host in pw.cluster().hosts]
    seen["own group"] = os.getpgid(worker()) != os.getpgid(0) and os.getsid(worker()) != os.getsid(0)


def cell(steps: int, crash_at: int = -1, eager: bool = False) -> list[float]:
    """A cell that builds everything and trains, as notebooks have them."""
    torch.manual_seed(0)
    if not eager:
        pw.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(steps)]
    if not eager:
        model, optimizer = pw.prepare(model, optimizer)
        model, optimizer = pw.prepare(model, optimizer)  # the same again changes nothing
        batches = pw.prepare(batches)
    losses = []
    for number, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if number == crash_at:
            raise ZeroDivisionError("a mistake in the middle of a step")
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def in_use() -> int:
    """Bytes on the devices, as the controller accounts them."""
    gc.collect()
    pw.wait(60)
    connection = inside.connection()
    return sum(host["live_bytes"] for host in json.loads(connection.session.status_json(10.0))["hosts"])


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except (pw.PathwaysError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def captured() -> tuple[Any, torch.Tensor]:
    """A captured step that has been replayed, and a tensor that lies where its replays have put it."""
    model = nn.Linear(4, 1).to(pw.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device=pw.device())

    @pw.program
    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(6):
        step()
    pw.wait(60)
    assert step.replays > 0
    return step, model.weight.detach()


def again() -> None:
    backward, calls = torch.Tensor.backward, []
    torch.Tensor.backward = lambda *arguments: calls.append(arguments)  # type: ignore[method-assign]
    first = pw.init(hosts=1, devices_per_host=2)
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    seen["backward passes of init"] = len(calls)
    seen["eager"] = cell(6, eager=True)  # after init: autograd then knows the devices
    seen["repr"] = repr(first)
    seen["html"] = first._repr_html_()
    seen["same"] = [pw.init(hosts=1, devices_per_host=2).name == first.name, pw.init().name == first.name]
    seen["other options"] = refused(lambda: pw.init(hosts=2, devices_per_host=2))
    seen["first"] = cell(6)
    seen["second"] = cell(6)
    import torch_xla.debug.metrics as met

    def compiles() -> int:
        return int(met.counter_value("UncachedCompile"))  # type: ignore[no-untyped-call]

    before, used = compiles(), in_use()
    seen["third"] = cell(6)
    seen["third compiled"] = compiles() - before
    end = time.monotonic() + 20  # PyTorch's own threads may still hold the last graph for a moment
    while (kept_bytes := in_use() - used) > 1024 and time.monotonic() < end:
        pass
    seen["third kept bytes"] = kept_bytes
    try:
        cell(6, crash_at=3)
    except ZeroDivisionError as error:
        kept = error  # as a notebook keeps the last traceback, and so the tensors of its frames
    seen["after a mistake"] = cell(6)
    del kept
    old = torch.ones(3).to(pw.device())
    assert old.sum().item() == 3.0
    held: list[Any] = list(captured())  # nothing has asked for what the step keeps
    pw.shutdown()
    seen["no cluster"] = refused(lambda: pw.devices())
    seen["other devices"] = pw.init(hosts=1, devices_per_host=3).device_count
    seen["on other devices"] = cell(6)
    pw.shutdown()
    second = pw.init(hosts=1, devices_per_host=2)
    seen["another cluster"] = second.name != first.name
    seen["in another cluster"] = cell(6)
    seen["old fetched"] = refused(lambda: old.tolist())
    seen["old used"] = refused(lambda: (old + torch.ones(3, device=pw.device())).tolist())
    seen["old state"] = refused(lambda: held[1].tolist())
    seen["old captured step"] = refused(lambda: held[0]().item())
    held.clear()
    gc.collect()
    seen["after old"] = cell(6)
    os.kill(worker(), signal.SIGKILL)
    seen["lost"] = refused(lambda: cell(2))
    seen["init with a lost host"] = refused(lambda: pw.init(hosts=1, devices_per_host=2))
    pw.shutdown()
    pw.init(hosts=1, devices_per_host=2)
    seen["after a loss"] = cell(6)


def main() -> None:
    kind = sys.argv[1]
    if kind == "again":
        nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()  # torch's threads are started without any for the devices
        again()
    else:
        pw.init(hosts=1, devices_per_host=1 if kind == "interrupts" else 2)
        interrupts()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
