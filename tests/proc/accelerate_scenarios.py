"""What accelerate does with models on devices: compiled ones, files of tied weights, shards that it and transformers'
Trainer are asked for. Prints what came out.

``accelerate_scenarios.py before|after``: whether both are imported before ``pw.init``, or after it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import ptpathways as pw
from tests import inside


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.tanh(self.first(x)))


def trained(accelerator: Any) -> tuple[list[float], nn.Module]:
    """Losses of a few steps, and the model; without an accelerator those of eager PyTorch."""
    torch.manual_seed(0)
    model: Any = Tied()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
    if accelerator is not None:
        model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for _ in range(4):
        rows, labels = torch.randn(8, 4), torch.randint(0, 4, (8,))
        if accelerator is not None:
            rows, labels = rows.to(accelerator.device), labels.to(accelerator.device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), labels)
        loss.backward() if accelerator is None else accelerator.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, model


def refusals() -> list[str]:
    """What is raised where shards are asked for; a message that is not there is empty."""
    from accelerate import Accelerator
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from transformers import Trainer, TrainingArguments

    settings: Any = {"report_to": [], "use_cpu": False, "fsdp": "full_shard"}
    v2 = TrainingArguments("unused", **settings, fsdp_config={"xla": True, "xla_fsdp_v2": True})
    plain = TrainingArguments("unused", **settings)

    def by_environment() -> None:
        os.environ["ACCELERATE_USE_FSDP"] = "true"
        try:
            Accelerator()
        finally:
            del os.environ["ACCELERATE_USE_FSDP"]

    calls: tuple[Any, ...] = (
        lambda: Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin()),
        lambda: Accelerator(parallelism_config=ParallelismConfig(dp_shard_size=2)),
        by_environment,
        lambda: Trainer(Tied(), v2),
        lambda: Trainer(model=Tied(), args=plain),
    )
    found = []
    for call in calls:
        try:
            call()
        except ValueError as error:
            found.append(str(error))
        else:
            found.append("")
    return found


def shards_of_what_was_prepared(accelerator: Any) -> tuple[str, str]:
    """Layouts of a weight that ``pw.prepare`` has sharded, after accelerate has trained it, and a Trainer."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, rows: torch.Tensor, labels: torch.Tensor) -> Any:
            scores = self.layer(rows)
            return F.cross_entropy(scores, labels), scores

    def layout(model: Any) -> str:
        return inside.sharding_of(model.layer.weight)

    first = pw.prepare(Model(), strategy="fsdp")
    first, optimizer = accelerator.prepare(first, torch.optim.Adam(first.parameters()))
    loss, _ = first(torch.ones(4, 32).to(pw.device()), torch.arange(4).to(pw.device()))
    accelerator.backward(loss)
    optimizer.step()
    rows = [{"rows": torch.randn(32), "labels": torch.tensor(number % 4)} for number in range(16)]
    settings: Any = {"report_to": [], "max_steps": 2, "save_strategy": "no", "disable_tqdm": True}
    second = pw.prepare(Model(), strategy="fsdp")
    with tempfile.TemporaryDirectory() as folder:
        Trainer(second, TrainingArguments(folder, **settings), train_dataset=rows).train()
    return layout(first), layout(second)


def main() -> None:
    if sys.argv[1] == "before":
        import accelerate
        import transformers.trainer  # noqa: F401
    pw.init(hosts=1, devices_per_host=2)
    import accelerate
    from safetensors.torch import load_file

    accelerator = accelerate.Accelerator(dynamo_backend="inductor")
    losses, compiled = trained(accelerator)
    plain = accelerate.Accelerator()
    model = Tied().to(pw.device())
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_model(model, folder)
        (written,) = Path(folder).glob("*.safetensors")
        saved = load_file(written)
    values = {name: value.cpu() for name, value in model.state_dict().items()}
    found = {
        "eager": trained(None)[0],
        "compiled": losses,
        "is compiled": isinstance(compiled, torch._dynamo.eval_frame.OptimizedModule),
        "names": sorted(saved),
        "layouts": shards_of_what_was_prepared(plain),
        "refusals": refusals(),
        "right": all(torch.equal(value, values[name]) for name, value in saved.items()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
