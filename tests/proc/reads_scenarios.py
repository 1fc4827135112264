"""What is traced after a value was read. A program of its own: one process, one use.

    python reads_scenarios.py together|single|one_by_one BACKEND

Prints one JSON object: for each way to read, what the operations were before and after it.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ptpathways as pw
from ptpathways.testing import wait_until
from tests import inside


def _branch(value: Tensor) -> None:
    if value > 0:
        pass


READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda value: value.item(),
    "float": float,
    "if": _branch,
    "format": lambda value: f"{value:.3f}",
    "equal": lambda value: torch.equal(value, value + 1),
    "cpu": lambda value: value.cpu(),
    "to": lambda value: value.to("cpu"),
    "tolist": lambda value: value.tolist(),
    "copy_": lambda value: torch.empty(value.shape).copy_(value.detach()),
    "print": repr,
    "an operation on the client": lambda value: torch.nonzero(value.detach()),
}


def traced(tensors: list[Tensor]) -> str:
    """The module that would compute them now."""
    return inside.hlo_of(tensors)


def pending(tensor: Tensor) -> bool:
    torch._sync(tensor)  # type: ignore[attr-defined,no-untyped-call]
    return inside.is_traced(tensor)


def a_loss_before_its_gradient(place: Callable[[nn.Module, Tensor], Any], read: Callable[[Tensor], Any]) -> Any:
    """Whether the forward pass (a tanh) is part of the loss, and of the gradients; and how far off these are."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.randn(8, 6)
    eager = copy.deepcopy(model)
    eager(x).square().mean().backward()
    model, x = place(model, x)
    loss = model(x).square().mean()
    before = "tanh" in traced([loss])
    read(loss)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    after = "tanh" in traced(gradients)
    pairs = zip(gradients, (parameter.grad for parameter in eager.parameters()), strict=True)
    error = max(float((mine.cpu() - theirs).abs().max()) for mine, theirs in pairs if theirs is not None)
    pw.step()
    return {"before": before, "after": after, "error": error}


def a_mask_that_was_read(place: Callable[[nn.Module, Tensor], Any]) -> int:
    """In how many elements the gradient of a dropout differs from the mask that a read has fixed."""
    drop, x = place(nn.Dropout(0.5), torch.ones(64, 8))
    x.requires_grad_()
    out = drop(x)
    assert out.sum().item() > 0
    seen = out.detach().cpu()
    out.sum().backward()
    assert x.grad is not None
    return int((x.grad.cpu() != seen).sum())


def what_has_a_value(place: Callable[[nn.Module, Tensor], Any]) -> dict[str, bool]:
    """Reading what was computed before leaves the trace as it is; reading what is in it does not."""
    _, x = place(nn.Linear(1, 1), torch.ones(8))
    whole = x.sum()
    pw.wait()
    other = x * 2
    assert whole.item() == 8
    kept = pending(other)
    assert (whole + 1).item() == 9
    return {"a value": kept, "an expression": pending(other)}


COPIES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "cpu": lambda _, value: value.cpu(),
    "copy_": lambda target, value: target.copy_(value),
    "[...] =": lambda target, value: target.__setitem__(slice(3), value[:3]),
    ".data.copy_": lambda target, value: target.data.copy_(value),
    "aten.copy_": lambda target, value: torch.ops.aten.copy_(target, value),
}


def copies_of_what_could_not_be_computed() -> dict[str, str]:
    """The errors; each once ended the process, or might."""
    pw.init(hosts=1, memory_per_device="16MiB")
    value = torch.zeros(1 << 20, device=pw.device()).repeat(10)
    found = {}
    for name, copied in COPIES.items():
        try:
            copied(torch.empty(10 << 20), value)
        except Exception as error:
            found[name] = type(error).__name__
    return found


def devices_when_a_host_is_lost() -> list[str]:
    """What each device that was not used before is then, by its number."""
    pw.init(hosts=3)
    connection = inside.connection()
    os.kill(connection.host_pids()[1], signal.SIGKILL)
    wait_until(lambda: not pw.cluster().hosts[1].alive)
    found = [f"{[device.index for device in pw.devices()]}"]
    for number in range(4):
        try:
            found.append(str(torch.full((2,), float(number), device=pw.device(number)).tolist()))
        except (pw.HostLost, IndexError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def main() -> None:
    mode, backend = sys.argv[1:]
    if mode in ("refused", "lost"):
        scenario = {"refused": copies_of_what_could_not_be_computed, "lost": devices_when_a_host_is_lost}[mode]
        json.dump(scenario(), sys.stdout)
        return
    hosts, devices = {"together": (1, 4), "single": (1, 1), "one_by_one": (2, 1)}[mode]
    pw.init(hosts=hosts, devices_per_host=devices, backend=backend)
    device = pw.devices()[1] if mode == "one_by_one" else pw.device()

    def place(model: nn.Module, x: Tensor) -> Any:
        return model.to(device) if mode == "one_by_one" else pw.prepare(model), x.to(device)

    warnings.simplefilter("ignore")
    json.dump(
        {
            "reads": {name: a_loss_before_its_gradient(place, read) for name, read in READS.items()},
            "mask": a_mask_that_was_read(place),
            "values": what_has_a_value(place),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
