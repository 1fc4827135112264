"""What Lightning's Trainer is asked for that a cluster cannot do, and mixed precision: prints an error a line."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw
import ptpathways.lightning

WHERE: dict[str, Any] = {"accelerator": "pathways"}
QUIET: dict[str, Any] = {
    "enable_model_summary": False,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "max_epochs": 1,
}


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.types: set[torch.dtype] = set()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        made: torch.Tensor = self.layer(batch[0])
        self.types.add(made.dtype)
        return made.float().square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(**options: Any) -> Model:
    model = Model()
    data = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4)
    pl.Trainer(**{**WHERE, **QUIET, **options}).fit(model, data)
    return model


def main() -> None:
    pw.init(hosts=2)
    other = pl.strategies.SingleDeviceStrategy(device=torch.device("cpu"))
    for options in ({"devices": 4}, {"num_nodes": 2}, {"precision": "16-mixed"}, {"strategy": other}):
        try:
            fit(**options)
        except pw.InvalidOption as error:
            print(error)
    model = fit(precision="bf16-mixed")
    print(model.types)


if __name__ == "__main__":
    main()
