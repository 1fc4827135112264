"""Metrics of loops on a cluster. A program of its own: one process, all scenarios. Prints one JSON object.

    python metrics_scenarios.py together|single FOLDER

together: a prepared loop over two devices; single: one device, and a captured step.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw
from tests import inside

Sent = list[tuple[int, dict[str, float]]]
FOLDER = Path()
FIRST_CAME = threading.Event()


def compiles() -> int:
    return inside.counter("UncachedCompile")


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(8, 6, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(count)]


def send_here() -> Sent:
    sent: Sent = []
    FIRST_CAME.clear()

    def note(step: int, values: dict[str, float]) -> None:
        sent.append((step, values))
        FIRST_CAME.set()

    pw.metrics.to(pw.metrics.Callback(note), every=5)
    return sent


def a_loop_that_logs(where: str) -> dict[str, Any]:
    """Trains; the averages that came, those of losses fetched one by one, and what waited and was compiled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = pw.prepare(model, optimizer, batches(23))
    sent = send_here()
    kept: list[torch.Tensor] = []
    running = torch.zeros((), device=pw.device())
    compiled, waits = [], []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            running += loss
        if where == "before the cut":
            pw.log({"loss": loss, "running": running, "half": 0.5})
        optimizer.step()
        if where == "after the cut":
            pw.log({"loss": loss, "running": running, "half": torch.tensor(0.5)})
        kept.append(loss.detach())
        compiled.append(compiles())
        waits.append(pw.wait_stats().count)
    came = where == "never" or FIRST_CAME.wait(60)
    pw.metrics.flush()
    return {
        "sent": sent,
        "came": came,
        "losses": torch.stack(kept).tolist(),
        "compiled": compiled,
        "waits": waits[-1] - waits[0],
    }


def logged_before_the_cut() -> dict[str, Any]:
    return a_loop_that_logs("before the cut")


def logged_after_the_cut() -> dict[str, Any]:
    return a_loop_that_logs("after the cut")


def not_logged() -> dict[str, Any]:
    return a_loop_that_logs("never")


def captured_steps() -> dict[str, Any]:
    """Results of replays: no trace is cut, and the numbers are those of each step."""
    model = nn.Linear(6, 1).to(pw.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    @pw.program
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(pw.device())), y.to(pw.device()))
        loss.backward()
        optimizer.step()
        return loss

    sent = send_here()
    kept = []
    for x, y in batches(22):
        loss = step(x, y)
        pw.log({"loss": loss})
        kept.append(loss)
    pw.metrics.flush()
    return {"sent": sent, "losses": [float(loss) for loss in kept], "replays": step.replays + step.audits}


def steps_and_every() -> dict[str, Any]:
    """Given steps; values that are sent at once; a name that is logged by itself."""
    sent = send_here()
    for step in range(100, 160, 10):
        pw.log({"a": step}, step)
        if step == 120:
            pw.log({"validation": torch.tensor(3)}, every=1)
    pw.metrics.flush()
    return {"sent": sent, "latest": pw.metrics.latest()}


def sinks() -> dict[str, Any]:
    """TensorBoard's file and lines of JSON, beside a sink that always fails."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Broken(pw.metrics.Callback):
        """Raises."""

    def fail(step: int, values: dict[str, float]) -> None:
        raise OSError("no space left on device")

    lines = FOLDER / "logs" / "metrics.jsonl"
    pw.metrics.to(Broken(fail), pw.metrics.TensorBoard(FOLDER / "board"), pw.metrics.JsonLines(lines), every=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in (1.0, 3.0, 5.0, float("nan")):
            pw.log({"loss": torch.tensor(value, device=pw.device())})
            pw.step()
        pw.metrics.flush()
        pw.metrics.to(every=10)
    accumulator: Any = EventAccumulator
    board = accumulator(str(FOLDER / "board"))
    board.Reload()
    return {
        "board": [(event.step, str(event.value)) for event in board.Scalars("loss")],
        "lines": [json.loads(line) for line in lines.read_text().splitlines()],
        "warnings": [str(warning.message) for warning in caught if warning.category is pw.MetricsWarning],
    }


def weights_and_biases() -> dict[str, Any]:
    """A run of wandb that is kept on this machine, fed by a callback."""
    import wandb

    settings = wandb.Settings(silent=True)
    run = wandb.init(project="digits", mode="offline", dir=str(FOLDER), settings=settings)
    pw.metrics.to(pw.metrics.Callback(lambda step, values: run.log(values, step=step, commit=True)))
    for value in range(1, 26):
        pw.log({"loss": torch.tensor(float(value), device=pw.device())})
        pw.step()
    pw.metrics.flush()
    pw.metrics.to()
    kept = dict(run.summary)
    run.finish()
    return {"loss": kept["loss"], "step": kept["_step"], "runs": len(list(FOLDER.glob("wandb/offline-run-*")))}


def refused() -> list[str]:
    said = []
    for value in (torch.ones(2, device=pw.device()), torch.ones(3), "text", None):
        try:
            pw.log({"odd": value})
        except (TypeError, ValueError) as error:
            said.append(str(error))
    sink: Any = print
    wrongs: tuple[Callable[[], None], ...] = (lambda: pw.metrics.to(sink), lambda: pw.log({}, every=0))
    for wrong in wrongs:
        try:
            wrong()
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return said


def progress_in_lines() -> dict[str, Any]:
    """What is written where there is no terminal."""
    (loader,) = (pw.prepare(batches(6)),)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        shown = pw.progress(loader, "epoch 1", lines_every_s=1000)
        for x, _ in shown:
            pw.log({"mean": x.mean()}, every=1)
            pw.step()
        pw.metrics.flush()
        next(iter(shown))
    return {"lines": said.getvalue().splitlines(), "length": len(shown), "computed": pw.frontend.device_seconds()}


def lost() -> dict[str, Any]:
    """Values that cannot be had, because their host is gone, are told of with that reason, and nothing hangs."""
    import os
    import signal

    sent = send_here()
    here = torch.tensor(2.0, device=pw.device())
    pw.step()
    pw.wait()
    connection = inside.connection()
    for pid in connection.host_pids():
        os.kill(pid, signal.SIGSTOP)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = ""
        pw.log({"loss": here * 2, "plain": 1.0})
        pw.step()
        for pid in connection.host_pids():
            os.kill(pid, signal.SIGKILL)
        try:
            for _ in range(2):
                pw.log({"loss": here * 2, "plain": 1.0})
                pw.step()
        except RuntimeError as error:
            said = str(error)
        try:
            pw.metrics.flush(30)
        except RuntimeError as error:
            said = str(error)
        pw.metrics.flush(30)
    return {"sent": sent, "raised": said, "warnings": [str(warning.message) for warning in caught]}


SCENARIOS = {
    "together": (logged_before_the_cut, logged_after_the_cut, not_logged, steps_and_every, sinks, refused,
                 progress_in_lines),
    "single": (logged_after_the_cut, captured_steps, lost),
    "tracked": (weights_and_biases,),
}  # fmt: skip


def main() -> None:
    global FOLDER
    mode, folder = sys.argv[1:]
    FOLDER = Path(folder)
    pw.init(hosts=1, devices_per_host={"together": 2}.get(mode, 1))
    results: dict[str, Any] = {}
    for scenario in SCENARIOS[mode]:
        try:
            results[scenario.__name__] = scenario()
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
    json.dump(results, sys.stdout)
    print(flush=True)


if __name__ == "__main__":
    main()
