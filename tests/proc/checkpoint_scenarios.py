"""Checkpoints on a real cluster. A program of its own: one process, one use.

    python checkpoint_scenarios.py together DIRECTORY   2 hosts x 2 devices, together: saves, loads, what goes wrong
    python checkpoint_scenarios.py resume DIRECTORY     goes on from what `together` left, in a process of its own
    python checkpoint_scenarios.py alone DIRECTORY      the same on a single device; then looks at what was killed
    python checkpoint_scenarios.py one_by_one DIRECTORY 2 hosts, devices one by one, a captured step; a worker is killed
    python checkpoint_scenarios.py killed DIRECTORY     the client is killed while it saves

Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
from ptpathways.testing import stop_process
from tests import inside

Results = dict[str, Any]


class Loop:
    """A loop with everything that has state: dropout, batch normalisation, AdamW, a schedule, shuffled batches."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        data = torch.Generator().manual_seed(5)
        rows = TensorDataset(torch.randn(32, 16, generator=data), torch.randint(0, 4, (32,), generator=data))
        loader = DataLoader(rows, batch_size=8, shuffle=True)
        self.model, self.optimizer, self.loader = pw.prepare(self.model, self.optimizer, loader)
        self.step = 0

    def run(self, until: int) -> list[Tensor]:
        """Losses of the steps up to number ``until``. Draws from every generator that there is."""
        losses = []
        while self.step < until:
            for images, labels in self.loader:
                self.optimizer.zero_grad()
                noise = random.random() + float(np.random.rand())
                loss = F.cross_entropy(self.model(images), labels) * (1 + noise)
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                losses.append(loss.detach())
                if self.step == until:
                    break
        return losses

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
        }

    def save(self, path: Path) -> Any:
        return pw.save(path, **self.parts(), step=self.step, note={"by": ("a test", 1)})

    def load(self, path: Path) -> Any:
        loaded = pw.load(path, **self.parts())
        self.step = loaded["step"]
        return loaded


def numbers(losses: list[Tensor]) -> list[float]:
    return [float(loss) for loss in losses]


def traffic() -> dict[str, int]:
    connection = inside.connection()
    return connection.transfer_stats()


def moved(before: dict[str, int]) -> list[int]:
    return [traffic()[key] - before[key] for key in ("bytes_uploaded", "bytes_fetched")]


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except (pw.PathwaysError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


# --- all devices together, on two hosts


def resuming(root: Path) -> Results:
    loop = Loop()
    loop.run(6)  # in the middle of the second epoch
    pw.wait()
    before = traffic()
    saving = loop.save(root / "run")
    saving.wait(60)
    saved = moved(before)
    went_on = numbers(loop.run(12))
    pw.wait()
    before = traffic()
    loaded = loop.load(root / "run")
    read = moved(before)
    again = numbers(loop.run(12))
    fresh = Loop(seed=99)
    fresh.load(root / "run")
    anew = numbers(fresh.run(12))
    (root / "expected.json").write_text(json.dumps(went_on))
    tensors = sum(p.numel() * 4 for p in loop.model.state_dict().values()) * 3
    return {
        "went on": went_on, "again": again, "anew": anew, "note": loaded["note"], "step": loaded["step"],
        "saved": saved, "read": read, "tensors": tensors, "bytes read": loaded.bytes_read,
    }  # fmt: skip


def shardings(root: Path) -> Results:
    import torch_xla.distributed.spmd as xs
    from safetensors.torch import load_file

    mesh = xs.Mesh(np.arange(4), (2, 2), ("data", "model"))

    def model(marks: dict[str, tuple[Any, ...]]) -> Any:
        with pw.device():
            made: Any = nn.Module()
            made.up, made.down = nn.Linear(8, 12), nn.Linear(9, 7)
            made.register_buffer("big", torch.zeros(3000, 1000))
            made.register_buffer("three", torch.full((), 3.0))
            made.register_buffer("also", torch.full((), 3.0))
        for name, spec in marks.items():
            xs.mark_sharding(made.get_parameter(name), mesh, spec)
        return pw.prepare(made)

    first = model({"up.weight": ("model", None), "down.weight": (("data", "model"), None), "up.bias": ("data",)})
    with torch.no_grad():
        first.big.copy_(torch.arange(3_000_000.0).view(3000, 1000))
    expected = {key: value.cpu().clone() for key, value in first.state_dict().items()}
    pw.save(root / "sharded", model=first).wait(60)
    found: dict[str, list[list[int]]] = {}
    bytes_by_host: dict[str, int] = {}
    for file in sorted((root / "sharded").glob("data-*.safetensors")):
        for name, tensor in load_file(file).items():
            found.setdefault(name.partition("[")[0], []).append(list(tensor.shape))
            host = file.name.split("-")[2]
            bytes_by_host[host] = bytes_by_host.get(host, 0) + tensor.numel() * tensor.element_size()
    second = model({"up.weight": (None, "data"), "down.weight": (None, "model"), "down.bias": (("data", "model"),)})
    before = traffic()
    pw.load(root / "sharded", model=second)
    read = moved(before)
    same = {key: torch.equal(value.cpu(), expected[key]) for key, value in second.state_dict().items()}
    pw.save(root / "sharded.safetensors", model=second).wait(60)
    plain = {key: torch.equal(value, expected[key]) for key, value in load_file(root / "sharded.safetensors").items()}
    other = torch.full((), 3.0, device=pw.device()).item()  # the number itself is still what it was
    three = torch.zeros((), device=pw.device())
    return {
        "shapes": found,
        "bytes": bytes_by_host,
        "same": same,
        "plain": plain,
        "read": read,
        "numbers": [other, three.item()],
    }


def files_of_others(root: Path) -> Results:
    from safetensors.torch import save_file

    def model(dtype: torch.dtype = torch.float32) -> Any:
        torch.manual_seed(1)
        made = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 6, dtype=dtype), nn.Linear(6, 10, bias=False))
        made[2].weight = made[0].weight  # tied
        return made

    eager = model()
    state = {key: torch.randn(value.shape) for key, value in eager.state_dict().items() if key != "2.weight"}
    prepared = pw.prepare(model())

    def same(target: Any) -> bool:
        return all(
            torch.allclose(target.state_dict()[key].cpu().float(), value, atol=2e-2) for key, value in state.items()
        )

    results: Results = {}
    save_file(state, root / "one.safetensors")
    pw.load(root / "one.safetensors", model=prepared)
    results["safetensors"] = same(prepared)
    (root / "hub").mkdir()
    halves = dict(list(state.items())[:1]), dict(list(state.items())[1:])
    for number, half in enumerate(halves):
        save_file(half, root / f"hub/model-{number}.safetensors")
    weights = {key: f"model-{number}.safetensors" for number, half in enumerate(halves) for key in half}
    (root / "hub/model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    index = pw.prepare(model())
    pw.load(root / "hub", model=index)
    results["index"] = same(index)
    strided = state | {"1.weight": state["1.weight"].t().contiguous().t()}
    torch.save({"model": strided, "epoch": 3}, root / "one.pt")
    torches = pw.prepare(model())
    before = traffic()
    loaded = pw.load(root / "one.pt", model=torches)
    results["torch"] = [same(torches), loaded["epoch"], moved(before)[0] <= state["1.weight"].numel() * 4 * 4]
    torch.save(state, root / "bare.pt")
    rounded = pw.prepare(model(torch.bfloat16))
    pw.load(root / "bare.pt", model=rounded)
    results["bfloat16"] = [same(rounded), str(rounded[1].weight.dtype)]
    torch.save(torches.state_dict(), root / "ours.pt")
    results["ours"] = torch.equal(torch.load(root / "ours.pt", map_location="cpu")["1.bias"].cpu(), state["1.bias"])
    optimizer = torch.optim.AdamW(eager.parameters())
    eager(torch.arange(4)).sum().backward()
    optimizer.step()
    torch.save({"model": eager.state_dict(), "optimizer": optimizer.state_dict()}, root / "both.pt")
    ours = torch.optim.AdamW(torches.parameters())
    pw.load(root / "both.pt", model=torches, optimizer=ours)
    moments = ours.state[torches[1].weight]["exp_avg"]
    results["optimizer"] = [
        moments.device.type,
        torch.allclose(moments.cpu(), optimizer.state[eager[1].weight]["exp_avg"]),
    ]
    return results


def mistakes(root: Path) -> Results:
    model: Any = pw.prepare(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    good = root / "good"
    pw.save(good, model=model, optimizer=optimizer, step=1).wait(60)
    kept = [value.cpu().clone() for value in model.state_dict().values()]
    results: Results = {}
    results["another"] = refusal(
        lambda: pw.load(good, model=pw.prepare(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(4, 2))))
    )
    results["no such"] = refusal(lambda: pw.load(root / "nothing", model=model))
    results["no object"] = refusal(lambda: pw.load(good, model=model, scheduler=optimizer))
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    results["other optimizer"] = refusal(lambda: pw.load(good, optimizer=pw.prepare(other)))

    broken = root / "broken"
    shutil.copytree(good, broken)
    data = max(broken.glob("data-*"), key=lambda file: file.stat().st_size)
    content = data.read_bytes()
    data.write_bytes(content[:-4])
    results["cut off"] = refusal(lambda: pw.load(broken, model=model))
    data.unlink()
    results["missing file"] = refusal(lambda: pw.load(broken, model=model))
    manifest = json.loads((broken / "manifest.json").read_text())
    (broken / "manifest.json").write_text(json.dumps(manifest | {"version": 9}))
    results["newer"] = refusal(lambda: pw.load(broken, model=model))
    (root / "short.safetensors").write_bytes(b"\x10")
    results["short"] = refusal(lambda: pw.load(root / "short.safetensors", model=model))
    (root / "file").write_text("")
    results["no directory"] = refusal(lambda: pw.save(root / "file" / "a", model=model))
    pickled = root / "odd"
    pw.save(pickled, odd=Path("x")).wait(60)
    results["pickle"] = refusal(lambda: pw.load(pickled))

    connection = inside.connection()
    pids = connection.host_pids()
    with torch.no_grad():
        model[0].weight.add_(1)
    pw.wait()
    for pid in pids:  # what a full disk does
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    full = pw.save(good, model=model, optimizer=optimizer, step=2)
    results["full"] = refusal(lambda: full.wait(60))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unseen = pw.save(good, model=model, step=2)
        while not unseen.done():
            pw.wait()
        pw.save(root / "elsewhere", step=1).wait(60)  # the thread has told of the one before
    results["warned"] = [str(warning.message) for warning in caught if warning.category is pw.CheckpointWarning]
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    results["left"] = sorted(file.name.partition("-")[0] for file in good.iterdir())
    results["step"] = pw.load(good, model=model)["step"]
    results["unchanged"] = all(map(torch.equal, kept, (value.cpu() for value in model.state_dict().values())))
    return results


class Meter:
    """Has a tensor of its own and a list, and a state that it refuses only when it has changed half of itself."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.seen = [count]
        self.total = torch.full((3,), float(count))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "seen": self.seen, "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen[:] = state["seen"]
        self.count = state["count"]
        self.total = state["total"]
        if self.count == 13:
            raise ValueError("thirteen")


class Noted(nn.Linear):
    """A module with a state beside its tensors."""

    note: Any = "of before"

    def get_extra_state(self) -> Any:
        return self.note

    def set_extra_state(self, state: Any) -> None:
        self.note = state


def refused_late(root: Path) -> Results:
    """What an object says no to when the others have their contents leaves all of them as they were."""

    samples = TensorDataset(torch.arange(8))

    def everything(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model: Any = pw.prepare(nn.Sequential(Noted(4, 4), nn.Linear(4, 2)))
        low = pw.prepare(nn.Linear(3, 2).to(torch.bfloat16 if seed else torch.float32))  # to be converted
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        made = {"model": model, "low": low, "optimizer": optimizer, "meter": Meter(seed)}
        made["schedule"] = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        made["loader"] = pw.prepare(DataLoader(samples, batch_size=2))
        for _ in range(seed + 1):
            model(torch.ones(1, 4).to(pw.device())).sum().backward()
            optimizer.step()
            made["schedule"].step()
        return made

    def look(objects: dict[str, Any]) -> str:
        states = {name: thing.state_dict() for name, thing in objects.items() if name != "loader"}
        leaves = torch.utils._pytree.tree_leaves(states)
        values = [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return repr([*values, torch.get_rng_state().sum().item(), random.getstate()[1][0]])

    saved = everything(0)
    saved["model"][0].note = "saved"
    pw.save(root / "late", **saved).wait(60)
    saved["last"] = Meter(13)
    pw.save(root / "late13", **saved).wait(60)
    mine = everything(2)
    mine["last"] = Meter(7)
    before, position = look(mine), mine["loader"].position
    identities = [id(parameter) for parameter in mine["model"].parameters()]
    results: Results = {"said": refusal(lambda: pw.load(root / "late13", **mine))}
    results["unchanged"] = [look(mine) == before, mine["model"][0].note, mine["loader"].position == position]
    results["identities"] = identities == [id(parameter) for parameter in mine["model"].parameters()]
    other = pw.prepare(DataLoader(samples, batch_size=4))
    results["loader"] = refusal(lambda: pw.load(root / "late", **(mine | {"last": None, "loader": other})))
    results["still"] = look(mine) == before
    del mine["last"]
    pw.load(root / "late", **mine)
    results["then"] = [look(mine) != before, mine["model"][0].note, mine["meter"].count]
    return results


def rotation(root: Path) -> Results:
    dead = root / "turns/step0005"
    dead.mkdir(parents=True)
    (dead / "data-0123456789ab-host0-0.safetensors.partial").write_text("left over")
    value = pw.prepare(nn.Linear(2, 2))
    for step in (10, 20, 30, 40):
        pw.save(root / "turns/step{step:04d}", keep=2, model=value, step=step)
    loaded = pw.load(root / "turns/step{step:04d}", model=value)
    return {"there": sorted(path.name for path in (root / "turns").iterdir()), "last": loaded["step"]}


# --- on devices one by one


def captured(root: Path) -> Results:
    """A captured step whose model lies on devices of two hosts goes on with what was loaded, without a new trace."""
    torch.manual_seed(0)
    first, second = nn.Linear(6, 6).to(pw.device(0)), nn.Linear(6, 1).to(pw.device(1))
    both = nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(both.parameters(), 1e-2)

    @pw.program
    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = second(pw.transfer(torch.tanh(first(x.to(pw.device(0)))), pw.device(1))).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.randn(4, 6)
    for _ in range(5):
        step(x)
    saving = pw.save(root / "parts", model=both, optimizer=optimizer, step=5)  # while the loop goes on
    went_on = [float(step(x)) for _ in range(3)]
    saving.wait(60)
    identities = [id(value) for value in optimizer.state[first.weight].values()]
    pw.load(root / "parts", model=both, optimizer=optimizer)
    again = [float(step(x)) for _ in range(3)]
    kept = identities == [id(value) for value in optimizer.state[first.weight].values()]
    return {"went on": went_on, "again": again, "kept": kept}


def worker_killed(root: Path) -> Results:
    model = nn.ModuleList([nn.Linear(8, 8).to(pw.device(0)), nn.Linear(8, 8).to(pw.device(1))])
    pw.save(root / "of a worker", model=model, step=1).wait(60)
    connection = inside.connection()
    victim = connection.host_pids()[1]
    stop_process(victim)
    half = pw.save(root / "of a worker", model=model, step=2)
    os.kill(victim, signal.SIGKILL)
    return {"error": refusal(lambda: half.wait(60))}


def kill_client(root: Path) -> Results:
    """What is on the disk is looked at by `after`."""
    model = nn.ModuleList([nn.Linear(8, 8).to(pw.device(0)), nn.Linear(8, 8).to(pw.device(1))])
    pw.save(root / "of a client", model=model, step=1).wait(60)
    connection = inside.connection()
    stop_process(connection.host_pids()[1])
    pw.save(root / "of a client", model=model, step=2)
    print("{}", flush=True)
    os.kill(connection.host_pids()[1], signal.SIGKILL)  # who is stopped does not see that its client is gone
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def after_kills(root: Path) -> Results:
    results: Results = {}
    for name in ("of a worker", "of a client"):
        directory = root / name
        model = pw.prepare(nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]))
        loaded = pw.load(directory, model=model)
        before = {file.name for file in directory.glob("data-*")}
        pw.save(directory, model=model, step=3).wait(60)
        named = {file["name"] for file in json.loads((directory / "manifest.json").read_text())["files"]}
        after = {file.name for file in directory.glob("data-*")}
        results[name] = {"step": loaded["step"], "clean": after == named, "new": not before & after}
    return results


def from_checkpoint(root: Path) -> Results:
    loop = Loop(seed=7)
    loop.load(root / "run")
    return {"expected": json.loads((root / "expected.json").read_text()), "got": numbers(loop.run(12))}


SCENARIOS: dict[str, tuple[dict[str, Any], list[Callable[[Path], Results]]]] = {
    "together": (
        {"hosts": 2, "devices_per_host": 2},
        [resuming, shardings, files_of_others, mistakes, refused_late, rotation],
    ),
    "resume": ({"hosts": 2, "devices_per_host": 2}, [from_checkpoint]),
    "alone": ({"hosts": 1, "devices_per_host": 1}, [from_checkpoint]),
    "after": ({"hosts": 1, "devices_per_host": 1}, [after_kills]),
    "one_by_one": ({"hosts": 2, "devices_per_host": 1}, [captured, worker_killed]),
    "killed": ({"hosts": 2, "devices_per_host": 1}, [kill_client]),
}


def main() -> None:
    mode, root = sys.argv[1], Path(sys.argv[2])
    options, scenarios = SCENARIOS[mode]
    pw.init(**options)
    results: Results = {}
    for scenario in scenarios:
        try:
            results[scenario.__name__] = scenario(root)
        except Exception:
            results[scenario.__name__] = {"error": traceback.format_exc()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
