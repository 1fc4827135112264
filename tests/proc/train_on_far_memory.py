"""Trains beside eager on devices of the plugin that argv names; prints "right" when everything is equal."""

from __future__ import annotations

import copy
import sys

import torch
from torch import nn

import ptpathways as pw

STEPS = 4


def main() -> None:
    cluster = pw.init(hosts=2, devices_per_host=2, platform="far", plugin=sys.argv[1])
    s, t = cluster.slice((2,), ("x",), hosts=["host0"]), cluster.slice((2,), ("y",), hosts=["host1"])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4))
    eager = copy.deepcopy(model)
    batches = [(torch.randn(8, 6), torch.randint(0, 4, (8,))) for _ in range(STEPS)]
    model.to(s.device)
    pw.shard(model, lambda name, tensor: ("x", *[None] * (tensor.dim() - 1)))
    losses = []
    for place, net in ((s.device, model), (torch.device("cpu"), eager)):
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to(place)), y.to(place))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
    torch.testing.assert_close(losses[:STEPS], losses[STEPS:])
    for own, other in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(own.detach().cpu(), other.detach())
    rows = pw.shard(torch.arange(4 * 6, dtype=torch.float32).reshape(4, 6).to(s.device), ("x", None))
    columns = pw.shard(torch.zeros(4, 6).to(t.device), (None, "y"))
    columns.copy_(rows)
    assert torch.equal(columns.cpu(), rows.cpu()), (columns.cpu(), rows.cpu())
    assert torch.equal((columns * 2).cpu(), torch.arange(4 * 6).reshape(4, 6) * 2.0)
    print("right")


if __name__ == "__main__":
    main()
