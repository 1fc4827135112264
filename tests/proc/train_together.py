"""Data-parallel training over the devices of all hosts, against the same steps in this process without them."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

import ptpathways as pw


def _train(together: bool) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    if together:
        model, optimizer, loader = pw.prepare(model, optimizer, loader)
    losses = []
    for _ in range(5):
        for features, wanted in loader:
            optimizer.zero_grad()
            loss = ((model(features) - wanted) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [float(loss) for loss in losses]


def main() -> None:
    """Prints how many hosts took part, when the losses are alike."""
    cluster = pw.init()
    ours = torch.tensor(_train(together=True))
    torch.testing.assert_close(ours, torch.tensor(_train(together=False)), rtol=1e-4, atol=1e-6)
    print("TOGETHER hosts", len(cluster.hosts), "islands", len({host.island for host in cluster.hosts}), flush=True)


if __name__ == "__main__":
    main()
