"""The simplest training loop on the first host's devices, and its result moved to the last host."""

from __future__ import annotations

import torch

import ptpathways as pw


def main() -> None:
    """Prints the loss, and what the last device has got."""
    cluster = pw.init(hosts=5)
    torch.manual_seed(0)
    first, last = pw.device(0), pw.device(cluster.device_count - 1)
    model = torch.nn.Linear(8, 1).to(first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(32, 8)
    wanted = inputs.sum(1, keepdim=True).to(first)
    inputs = inputs.to(first)
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
    moved = pw.transfer(model.weight.detach(), last)
    assert torch.equal(moved.cpu(), model.weight.detach().cpu())
    machines = len({host.name for host in cluster.hosts if host.alive})
    print("TRAINED", "loss", f"{loss.item():.6f}", "hosts", machines, flush=True)


if __name__ == "__main__":
    main()
