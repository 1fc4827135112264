"""What accelerate does with models on devices: compiled ones, and files of tied weights. Prints what came out.

``accelerate_scenarios.py before|after``: whether accelerate is imported before ``pw.init``, or after it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import ptpathways as pw


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


def main() -> None:
    if sys.argv[1] == "before":
        import accelerate
    pw.init(hosts=1, devices_per_host=2)
    import accelerate
    from safetensors.torch import load_file

    accelerator = accelerate.Accelerator(dynamo_backend="inductor")
    losses, compiled = trained(accelerator)
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
        "right": all(torch.equal(value, values[name]) for name, value in saved.items()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
