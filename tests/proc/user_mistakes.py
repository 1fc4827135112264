"""Programs of users who make a mistake, one per function; run as ``python user_mistakes.py NAME``.

Each prints what the user would see. test_user_mistakes.py says what that must be.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import ptpathways as pw


def shape_error() -> None:
    """A model whose layers do not fit together."""
    import torch

    pw.init()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(9, 2)).to(pw.device())
    try:
        model(torch.zeros(3, 4).to(pw.device()))
    except RuntimeError as error:
        print("caught:", error)
    print("still works:", torch.ones(2).to(pw.device()).sum().item())


def out_of_memory() -> None:
    """A tensor that can never fit."""
    import torch

    pw.init(memory_per_device="64MiB")
    small = torch.ones(4).to(pw.device())
    try:
        large = torch.ones(8192, 1, device=pw.device()) * torch.ones(1, 8192, device=pw.device())
        print(large[0, 0].item(), (large @ large).sum().item())
    except RuntimeError as error:
        print("caught:", error)
    print("still works:", small.sum().item())


def fallback() -> None:
    """An operation that PyTorch/XLA has not lowered."""
    import torch

    pw.init()
    values = torch.tensor([3.0, 0.0, 2.0]).to(pw.device())
    for _ in range(3):
        print("sum of R:", torch.linalg.qr(values.reshape(1, 3))[1].abs().cpu().sum().item())


def lost_values() -> None:
    """An operation that cannot be compiled, together with a step: PyTorch/XLA loses the parameters. (Torch's own
    functions are refused before; this one nobody calls.)"""
    import torch

    pw.init()
    ones, whole = torch.ones(1, 2).to(pw.device()), torch.ones(2, dtype=torch.int64).to(pw.device())

    def made() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
        model = torch.nn.Linear(2, 2).to(pw.device())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(ones).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = made()
    calls: dict[str, Callable[[], object]] = {
        "call": lambda: torch.ops.aten.gelu_backward(whole, whole).cpu(),
        "forward": lambda: model(torch.ones(1, 2).to(pw.device())),
        "step": lambda: optimizer.step(),
        "shape": lambda: model.weight.shape,
        "read": lambda: model.weight.cpu(),
    }
    for what, call in calls.items():
        try:
            print(f"{what}:", call())
        except RuntimeError as error:
            print(f"{what}:", type(error).__name__, str(error).replace("\n", " ")[:300])
    ones = torch.ones(1, 2).to(pw.device())
    model, optimizer = made()
    print("a new model works:", bool(model(ones).isfinite().all()))


def late_init() -> None:
    """init after the first XLA tensor."""
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch
    import torch_xla

    torch.ones(2).to(torch_xla.device()).cpu()
    try:
        pw.init()
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def twice() -> None:
    """init twice, for another cluster."""
    pw.init()
    try:
        pw.init(hosts=2)
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def no_init() -> None:
    """device before init."""
    try:
        pw.device()
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def wrong_address() -> None:
    """Nobody listens there."""
    try:
        pw.init("tcp://127.0.0.1:9", startup_timeout_s=1.0)
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def missing_plugin() -> None:
    """A plugin that is no file."""
    try:
        pw.init(plugin="/no/such/plugin.so")
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def broken_plugin() -> None:
    """A plugin that is no plugin."""
    import ctypes.util

    try:
        pw.init(plugin=f"/lib/x86_64-linux-gnu/{ctypes.util.find_library('m')}")
    except pw.PathwaysError as error:
        print("caught:", type(error).__name__, error)


def _train_until(event: str) -> None:
    import torch

    from tests import inside

    pw.init(hosts=2)
    connection = inside.connection()
    device = pw.device(1)
    model = torch.nn.Linear(256, 256).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(100_000):
        optimizer.zero_grad()
        loss = model(torch.ones(64, 256).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        pw.step()
        if step == 20 and event == "kill":
            os.kill(connection.host_pids()[1], signal.SIGKILL)
        if step == 20 and event == "interrupt":
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        if step % 10 == 0:
            loss.item()


def killed_worker() -> None:
    """The worker dies in the middle of a step."""
    import time

    start_s = time.monotonic()
    try:
        _train_until("kill")
    except RuntimeError as error:
        print("caught:", error)
        print("seconds:", time.monotonic() - start_s)


def interrupted() -> None:
    """Ctrl-C in the middle of a step."""
    try:
        _train_until("interrupt")
    except KeyboardInterrupt:
        print("caught: KeyboardInterrupt")


def held_back() -> None:
    """Ctrl-C in loops that too many runs in flight hold back, of a program that has read nothing."""
    import time

    import torch

    cluster = pw.init()
    over = cluster.slice((1,))

    @pw.function(slice=over)
    def slow(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x @ x * 1e-3
        return x

    @pw.function(slice=over)
    def quick(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    large, small = pw.put(torch.ones(1500, 1500), over), pw.put(torch.zeros(4), over)
    slow(large).wait()
    quick(small).wait()
    state = torch.zeros(4, device=over.device) + 1
    pw.wait()

    def call() -> None:
        nonlocal small
        small = quick(small)

    def trace() -> None:
        nonlocal state
        state = state * 2 - 1
        pw.step()

    for loop in (call, trace):
        kept = [slow(large) for _ in range(3)]
        signalled = 0.0

        def interrupt() -> None:
            nonlocal signalled
            signalled = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(1.0, interrupt)
        timer.start()
        try:
            while True:
                loop()
        except KeyboardInterrupt:
            late = time.monotonic() - signalled
            print(f"{loop.__name__}: KeyboardInterrupt {'at once' if late < 1 else f'after {late:.1f} s'}")
        kept[-1].wait()
    print("values:", small.result().tolist(), state.tolist())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
