"""Loops whose arrays grow: one computation for all lengths. A program of its own.

    python length_scenarios.py HOSTS DEVICES [NAME ...]

Prints one JSON object: for each scenario how far it is from the CPU, and in which runs of its lines something was
compiled again.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ptpathways as pw

ROUNDS = 24
Tensors = tuple[torch.Tensor, ...]


def a_cache_grows(device: torch.device) -> Tensors:
    """What a decoder does with each token: appends to its cache, and attends to all of it."""
    torch.manual_seed(0)
    keys, values, query = (nn.Linear(8, 8, bias=False).to(device) for _ in range(3))
    token = torch.randn(2, 1, 8).to(device)
    cache = torch.zeros(2, 0, 8, device=device), torch.zeros(2, 0, 8, device=device)
    seen = []
    with torch.no_grad():
        for _ in range(ROUNDS):
            cache = torch.cat((cache[0], keys(token)), 1), torch.cat((cache[1], values(token)), 1)
            weights = torch.softmax(query(token) @ cache[0].transpose(1, 2) / 8**0.5, -1)
            token = weights @ cache[1] + 0.5 * token
            seen.append(token.sum().item())
    return token, *cache, torch.tensor(seen)


def heads_attend_with_a_mask(device: torch.device) -> Tensors:
    torch.manual_seed(1)
    state = torch.randn(1, 2, 1, 4).to(device)
    keys = torch.randn(1, 2, 3, 4).to(device)
    values = torch.randn(1, 2, 3, 4).to(device)
    seen = []
    for step in range(ROUNDS):
        keys, values = torch.cat((keys, state), 2), torch.cat((values, state * 0.5), 2)
        places = torch.arange(keys.shape[2], device=device)
        mask = torch.where(places > step + 1, -1e9, 0.0)[None, None, None]
        state = torch.tanh(F.scaled_dot_product_attention(state, keys, values, attn_mask=mask))
        seen.append(float(state.mean()))
    return state, keys, values, torch.tensor(seen)


def numbers_are_chosen_and_appended(device: torch.device) -> Tensors:
    """Greedy decoding without a cache: the ids, their mask and their embeddings grow."""
    torch.manual_seed(2)
    embedding, head = nn.Embedding(11, 6).to(device), nn.Linear(6, 11).to(device)
    ids = torch.tensor([[1, 4, 2]]).to(device)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        for _ in range(ROUNDS):
            hidden = (embedding(ids) * mask[..., None]).mean(1)
            ids = torch.cat((ids, head(hidden).argmax(-1, keepdim=True)), 1)
            mask = torch.cat((mask, mask.new_ones(1, 1)), 1)
            if bool((ids[:, -1] == 12).all()):
                break
    return ids, mask


def a_history_is_summed_up(device: torch.device) -> Tensors:
    """Losses are stacked for a plot, with their mean, largest and last."""
    history = torch.zeros(0, device=device)
    x = torch.linspace(0.1, 1, 7, device=device)
    figures = []
    for step in range(ROUNDS):
        history = torch.cat((history, (x.sin().sum() * (step + 1)).cos()[None]))
        figures.append([history.mean().item(), history.max().item(), history[-1].item(), history.sum().item()])
    return history, torch.tensor(figures)


def it_is_read_and_written_between(device: torch.device) -> Tensors:
    """Others ask for the array while it grows: the CPU, another computation, a slice, a copy."""
    history = torch.ones(3, 2, device=device)
    kept: list[torch.Tensor] = []
    for step in range(ROUNDS):
        history = torch.cat((history * 0.9, history.sum(0, keepdim=True)))
        pw.step()
        if step % 5 == 4:
            kept.append(history.cpu().clone())
            kept.append((history[1:, :1] * 2).cpu())
            twin = history.clone()
            history[0] = 7.0
            pw.step()
            kept += [twin.cpu(), history.cpu().clone()]
    return history, *(each.double().sum()[None] for each in kept)


def it_shrinks_and_grows_again(device: torch.device) -> Tensors:
    torch.manual_seed(3)
    window = torch.randn(4, 3).to(device)
    seen = []
    for step in range(ROUNDS):
        window = torch.cat((window, window.mean(0, keepdim=True) + step))
        if step % 9 == 8:
            window = window[-4:].contiguous()
        seen.append(window.std().item())
    return window, torch.tensor(seen)


def one_length_is_used_many_times(device: torch.device) -> Tensors:
    """As where sentences grow by a word from epoch to epoch."""
    torch.manual_seed(5)
    layer = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    seen = []
    for length in (5, 6, 7):
        batch = torch.linspace(-1, 1, 4 * length).reshape(1, length, 4).to(device)
        for _ in range(24):
            optimizer.zero_grad()
            loss = (layer(batch).tanh() - batch.flip(2)).square().mean()
            loss.backward()
            optimizer.step()
        seen.append(loss.item())
    return layer.weight.detach(), torch.tensor(seen)


def values_of_other_kinds_grow(device: torch.device) -> Tensors:
    """Integers, truth values, halves and complex numbers; indices into what grows."""
    whole = torch.arange(3, device=device)
    half = torch.linspace(0, 1, 3, device=device).to(torch.bfloat16)
    waves = torch.complex(torch.ones(3, device=device), torch.zeros(3, device=device))
    seen = []
    for step in range(ROUNDS):
        whole = torch.cat((whole, whole.max()[None] + 2))
        half = torch.cat((half, half[whole[:1] * 0 + 1] * 0.5))
        waves = torch.cat((waves, waves[:1] * (0.5 + 0.25j)))
        odd = whole % 2 == 1
        seen.append([int(odd.sum()), int(whole.argmin()), float(half.float().sum()), float(waves.real.sum())])
        if step % 3 == 0:
            whole = torch.where(odd, whole, whole + 1)
    return whole, half.float(), waves.real, torch.tensor(seen, dtype=torch.float64)


def a_last_batch_is_shorter(device: torch.device) -> Tensors:
    """No length: two sizes in turn."""
    torch.manual_seed(4)
    layer = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    seen = []
    for step in range(12):
        batch = torch.linspace(0, 1, 24).reshape(8, 3)[: 7 if step % 4 == 3 else 8].to(device)
        optimizer.zero_grad()
        loss = layer(batch).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return layer.weight.detach(), torch.tensor(seen)


SCENARIOS: list[Callable[[torch.device], Tensors]] = [
    a_cache_grows,
    heads_attend_with_a_mask,
    numbers_are_chosen_and_appended,
    a_history_is_summed_up,
    it_is_read_and_written_between,
    it_shrinks_and_grows_again,
    one_length_is_used_many_times,
    values_of_other_kinds_grow,
    a_last_batch_is_shorter,
]


def generated(device: torch.device | None) -> tuple[list[int], list[float]]:
    """64 tokens of a small GPT-2 by transformers' own loop, on the CPU without a device; and the seconds that the first
    call and the second took."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_head=4,
        n_embd=128,
        vocab_size=1000,
        n_positions=256,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model: Any = GPT2LMHeadModel(config)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    ids = torch.randint(1, 1000, (1, 8))
    if device is not None:
        model, ids = model.to(device), ids.to(device)
    mask, seconds = torch.ones_like(ids), []
    for _ in range(2):
        start = time.perf_counter()
        answer = model.generate(ids, attention_mask=mask, max_new_tokens=64, min_new_tokens=64, do_sample=False).cpu()
        seconds.append(time.perf_counter() - start)
    return list(answer[0].tolist()), seconds


def off(got: Tensors, right: Tensors) -> float:
    """How far, relative to the largest element."""
    furthest = 0.0
    for a, b in zip(got, right, strict=True):
        if a.shape != b.shape:
            return float("inf")
        distance = (a.detach().cpu().double() - b.detach().double()).abs().max()
        furthest = max(furthest, float(distance / (1 + b.detach().double().abs().max())))
    return furthest


def main() -> None:
    hosts, devices, *names = sys.argv[1:]
    pw.init(hosts=int(hosts), devices_per_host=int(devices))
    device = torch.device("xla")
    found: dict[str, Any] = {}
    for scenario in SCENARIOS:
        if names and scenario.__name__ not in names:
            continue
        before = len(pw.recompiles())
        entry: dict[str, Any] = {"error": None}
        try:
            entry["off"] = off(scenario(device), scenario(torch.device("cpu")))
        except Exception:
            entry["error"] = traceback.format_exc()
        entry["again"] = [each.run for each in pw.recompiles()[before:]]
        found[scenario.__name__] = entry
    if not names or "generated" in names:
        before = len(pw.recompiles())
        (got, seconds), (right, on_cpu) = generated(device), generated(None)
        again = [each.run for each in pw.recompiles()[before:]]
        found["generated"] = {"error": None, "same": got == right, "again": again, "s": seconds, "s on CPU": on_cpu}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
