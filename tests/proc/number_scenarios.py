"""Loops whose Python numbers move: compiled once for all of them. A program of its own.

    python number_scenarios.py HOSTS DEVICES

Prints one JSON object: for each scenario how far it is from the CPU, and the recompiles behind its sixth round.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ptpathways as pw

ROUNDS = 14


def rows_are_written_and_read(device: torch.device) -> tuple[torch.Tensor, ...]:
    """What a rollout does: writes row after row, and reads the one before."""
    observed, reward = torch.zeros(ROUNDS, 4, device=device), torch.zeros(ROUNDS, device=device)
    weight = torch.linspace(-1, 1, 16, device=device).reshape(4, 4)
    returned = []
    for step in range(ROUNDS):
        observed[step] = torch.full((4,), 0.5, device=device) @ weight + step
        reward[step] = (observed[step] * 0.9**step + step).sum()
        if step >= 2:
            reward[step] += reward[step - 1] * 0.5
            returned.append(float(observed[step - 1 : step + 1].mean() + reward[step]))
    return observed, reward, torch.tensor(returned)


def several_rows_are_written_at_moving_places(device: torch.device) -> tuple[torch.Tensor, ...]:
    table, rows = torch.zeros(16, 3, device=device), torch.linspace(0, 1, 6, device=device).reshape(2, 3)
    for step in range(ROUNDS):
        at = (step * 5) % 11 + 2
        table[at : at + 2] = rows + step
        table.narrow(0, at - 1, 2).mul_(0.5)
        table[at : at + 2, 1:2] += table[at - 1 : at + 1, 2:3]
        pw.step()
    return (table,)


def advantages_from_the_end(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Generalised advantages: one long computation, whose length stays."""
    values = torch.linspace(0, 1, ROUNDS, device=device)
    found = torch.zeros(ROUNDS, device=device)
    for _ in range(3):
        last = torch.zeros((), device=device)
        for t in reversed(range(ROUNDS - 1)):
            last = values[t + 1] * 0.99 - values[t] + 0.9 * last
            found[t] = last
        pw.step()
    return (found,)


def actions_are_drawn_and_copied(device: torch.device) -> tuple[torch.Tensor, ...]:
    """A policy that samples, and a copy of each action on the CPU; nothing else cuts."""
    policy = nn.Linear(4, 3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.fill_(0.1)
    policy = policy.to(device)
    kept, counts = torch.zeros(ROUNDS, 2, device=device), torch.zeros(3)
    for step in range(ROUNDS):
        logits = policy(torch.ones(2, 4, device=device))
        action = torch.distributions.Categorical(logits=logits).sample()
        kept[step] = logits.detach()[:, 0]
        counts += torch.bincount(action.cpu(), minlength=3)
    return kept, counts.sum()


def one_of_many_products(device: torch.device) -> tuple[torch.Tensor, ...]:
    """One computation for every index would need all the products: each is compiled by itself."""
    torch.manual_seed(1)
    weights = [torch.randn(256, 256).to(device) for _ in range(12)]
    x = torch.randn(256, 256).to(device)
    return (torch.tensor([float(torch.stack([x @ weight for weight in weights])[k].mean()) for k in range(8)]),)


def a_captured_step_takes_an_index(device: torch.device) -> tuple[torch.Tensor, ...]:
    table = torch.zeros(ROUNDS, 4, device=device)

    def step(index: int, x: torch.Tensor) -> torch.Tensor:
        table[index] = x * (index + 1)
        return table.sum()

    run = pw.program(step) if device.type == "xla" else step
    sums = [float(run(index % 5, torch.ones(4).to(device))) for index in range(ROUNDS)]
    return table, torch.tensor(sums)


def numbers_of_several_types(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Booleans, integers and floating-point numbers that PyTorch/XLA makes constants."""
    found = []
    x = torch.arange(12, dtype=torch.float32, device=device).reshape(3, 4)
    for step in range(ROUNDS):
        low = torch.clamp(x, min=step / 2, max=float(step))
        whole = torch.clamp(x.long(), max=step) + x.long().roll(step % 4, dims=1)
        found.append(low.sum() + whole.sum() + x.select(1, step % 4).sum() + x.narrow(0, step % 2, 2).mean())
        pw.step()
    return (torch.stack(found),)


SCENARIOS: tuple[Callable[[torch.device], tuple[torch.Tensor, ...]], ...] = (
    rows_are_written_and_read,
    several_rows_are_written_at_moving_places,
    advantages_from_the_end,
    actions_are_drawn_and_copied,
    one_of_many_products,
    a_captured_step_takes_an_index,
    numbers_of_several_types,
)


def a_slice_moves_between_two_numbers(cluster: pw.Cluster) -> float:
    """The numbers that were uploaded go where the slice goes."""
    part = cluster.slice(1)
    table, want = torch.zeros(8, 4, device=part.device), torch.zeros(8, 4)
    for step in range(8):
        if step == 5:
            part.move(hosts=[cluster.hosts[-1].name])
        for target in (table, want):
            target[step] = step + 1.0
        if step > 0:
            for target in (table, want):
                target[step] += target[step - 1]
        pw.step()
    return float((table.cpu() - want).abs().max())


def main() -> None:
    cluster = pw.init(hosts=int(sys.argv[1]), devices_per_host=int(sys.argv[2]))
    results: dict[str, Any] = {}
    for scenario in SCENARIOS:
        before = len(pw.recompiles())
        try:
            got = scenario(pw.device())
            pairs = zip(got, scenario(torch.device("cpu")), strict=True)
            off = max(float((one.cpu() - other).abs().max() / (1 + other.abs().max())) for one, other in pairs)
            error = ""
        except Exception:
            off, error = float("inf"), traceback.format_exc()
        again = [(each.run, each.hint) for each in pw.recompiles()[before:]]
        results[scenario.__name__] = {"error": error, "off": off, "again": again}
    if len(cluster.hosts) > 1:
        off = a_slice_moves_between_two_numbers(cluster)
        results["a_slice_moves_between_two_numbers"] = {"error": "", "off": off, "again": []}
    json.dump(results, sys.stdout)
    print(flush=True)


if __name__ == "__main__":
    main()
