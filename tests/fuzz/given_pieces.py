"""Pieces of loops: what a step is given, and what it reads of that."""

from __future__ import annotations

from tests.fuzz.pieces import Piece

_BAG = """
import collections, dataclasses, types
@dataclasses.dataclass
class Bag:
    value: object
    level: float = 1.0
class Table(dict):
    __getattr__ = dict.__getitem__
class Tokens(collections.UserDict):
    value = property(lambda self: self["value"])
    level = property(lambda self: self["level"])
"""
_USED = "loss = loss * bag.level + (model(x) * bag.value.to(place)).mean()"
_MADE = "torch.full((4, 1), 0.1 * n), level=1.0 if n < 9 else 2.0"

GIVEN = (
    Piece("data class as a batch", _BAG, argument=f"bag=Bag({_MADE})", loss=_USED),
    Piece("table as a batch", _BAG, argument=f"bag=Table(value={_MADE})", loss=_USED),
    Piece("tokens as a batch", _BAG, argument=f"bag=Tokens(value={_MADE})", loss=_USED),
    Piece("namespace as a batch", _BAG, argument=f"bag=types.SimpleNamespace(value={_MADE})", loss=_USED),
    Piece("batches in a list", _BAG, argument=f"bags=[Bag({_MADE})]", loss="bag = bags[0]\n" + _USED),
    Piece(
        "batch on the device, written",
        _BAG,
        argument="bag=Bag(torch.full((4, 1), 0.1 * n, device=place))",
        first="bag.value.add_(1)",
        loss=_USED,
    ),
    Piece(
        "batch that grows",
        _BAG,
        argument="bag=Bag(torch.full((4, 1), 0.1 * n))",
        last="bag.level += 1",
        loss=_USED,
    ),
    Piece(
        "one object for all calls",
        _BAG + "mine = Bag(torch.zeros(4, 1, device=place))",
        argument="bag=mine",
        last="bag.value = bag.value + loss.detach()",
        loss=_USED,
        after="left_behind = mine.value",
    ),
    Piece(
        "batches that take turns",
        _BAG + "bags = (Bag(torch.full((4, 1), 0.3)), Bag(torch.full((4, 1), 0.7)))",
        argument="bag=bags[n % 2]",
        loss=_USED,
    ),
    Piece(
        "flag on the device",
        argument="flag=torch.tensor(n < 8).to(place)",
        loss="loss = loss * (2.0 if flag else 1.0)",
    ),
    Piece(
        "limit on the device",
        "limit = torch.tensor(0.5, device=place)",
        loss="loss = loss * float(limit)",
        loop="if n == 8: limit.fill_(2.0)",
    ),
    Piece(
        "parameter read on the client",
        loss="loss = loss * (1 + model[0].bias.detach().cpu().mean().to(place))",
    ),
    Piece(
        "matrix for the client",
        "matrix = torch.eye(3, device=place)",
        loss="loss = loss * torch.linalg.eigvalsh(matrix).sum()",
        loop="if n == 8: matrix.mul_(2)",
    ),
    Piece(
        "list into a tensor",
        "t.level = 1.0",
        loss="loss = loss * torch.tensor([0.5, t.level], device=place).sum()",
        loop="if n == 8: t.level = 2.0",
    ),
    Piece(
        "rows by a mask",
        argument="mask=torch.tensor([True, n % 2 == 0, True, n < 8])",
        loss="loss = loss + model(x)[mask.to(place)].sum() * 0.1",
    ),
    Piece(
        "rows by numbers",
        argument="rows=torch.tensor([0, n % 4]).to(place)",
        loss="loss = loss + model(x)[rows].sum() * 0.1",
    ),
    Piece(
        "counter of a class",
        "Trainer.turn = 0",
        "Trainer.turn = (Trainer.turn + 1) % 4",
        "loss = loss * (1 + Trainer.turn)",
    ),
    Piece("gradient's data assigned", loop="if n == 8: model[0].weight.grad.data = torch.ones(16, 8, device=place)"),
    Piece(
        "gradients set outside",
        loop="if n in (8, 13):\n    for p in model.parameters(): p.grad = torch.ones_like(p)",
    ),
    Piece(
        "momentum exchanged",
        loop="if n == 9:\n    for p in model.parameters():\n        for k, v in optimizer.state[p].items():\n"
        "            if torch.is_tensor(v) and v.dim(): optimizer.state[p][k] = v.clone() * 0.5",
    ),
    Piece(
        "momentum scaled",
        loop="if n == 9:\n    for one in optimizer.state.values():\n        for v in one.values():\n"
        "            if torch.is_tensor(v) and v.dim(): v.data.mul_(0.5)",
    ),
    Piece("weights from another", loop="if n == 8: model[2].bias.data.copy_(model[0].bias.data[:1])"),
    Piece(
        "average of gradients",
        "average = [torch.zeros_like(p) for p in model.parameters()]",
        after="for a, p in zip(average, model.parameters()): a.lerp_(p.grad, 0.1)",
    ),
    Piece(
        "numbers of NumPy",
        argument="scale=np.float64(1.0 if n < 8 else 2.0)",
        loss="loss = loss * scale",
    ),
    Piece(
        "one tensor, two names",
        argument="first=x, again=x[:]",
        loss="loss = loss + (first.to(place) * again.to(place)).mean()",
    ),
    Piece(
        "part of a batch", argument="part=x[1:3]", loss="loss = loss + part.to(place).mean() * model[0].weight.mean()"
    ),
)
