"""Pieces of loops whose tensors have one memory, or had it: results, what a step leaves behind, arguments, buffers."""

from __future__ import annotations

from tests.fuzz.pieces import Piece

_TWO = "b1 = torch.ones(3, device=place)\nb2 = {}"
_BOTH = "loss = loss * (b1 + 2 * b2).mean()"
_START = "seen = []\nt.h = torch.zeros((), device=place)"
_SEEN = "\nseen.append(t.h.detach().clone())"

SHARED = (
    Piece(
        "kept result, written",
        _START,
        last="t.h = loss.detach()",
        after="if n % 3 == 1: loss.mul_(0.5)\nif n % 4 == 2: t.h.add_(1)" + _SEEN,
    ),
    Piece(
        "kept result, read and written",
        _START,
        loss="loss = loss + 0.1 * t.h",
        last="t.h = loss.detach()",
        after="if n % 3 == 1: loss.mul_(0.5)\nif n % 5 == 2: losses[n - 1].add_(1)" + _SEEN,
    ),
    Piece(
        "kept result in a list",
        "seen, rows = [], [torch.zeros((), device=place)]",
        last="rows[0] = loss.detach()",
        after="if n % 4 == 1: rows[0].mul_(0.5)\nseen.append(rows[0].clone())",
    ),
    Piece(
        "parts left behind",
        "t.h, t.c = torch.zeros(6, device=place).chunk(2)",
        last="both = torch.cat([t.h, t.c]) * 0.5 + loss.detach()\nt.h, t.c = both.detach().chunk(2)",
        after="if n % 5 == 4: t.c.add_(1)",
    ),
    Piece(
        "state that becomes an earlier result",
        _START,
        loss="loss = loss + 0.1 * t.h",
        last="t.h = loss.detach()",
        after="if n == 6: t.h = losses[2]\nif n == 10: t.h.data = losses[4]\nif n == 12: losses[4].add_(1)" + _SEEN,
    ),
    Piece(
        "state on another's memory",
        _START + "\ntheirs = torch.zeros((), device=place)",
        last="t.h = loss.detach() * 2",
        after="if n % 5 == 2: t.h.data = theirs" + _SEEN,
    ),
    Piece(
        "result of one kind of call",
        _START,
        argument="keeps=n % 3 != 2",
        last="t.h = loss.detach()\nif not keeps: return t.h * 2",
        after="if n % 4 == 1: loss.mul_(0.5)" + _SEEN,
    ),
    Piece(
        "gradient left behind",
        last="t.g = model[0].weight.grad.detach()",
        after="if n % 4 == 1: t.g.mul_(0.5)",
    ),
    Piece(
        "argument that is a state",
        "t.rows = torch.zeros(4, 1, device=place)",
        argument="given=t.rows if n < 7 else t.rows + 1",
        loss="loss = loss + (model(x) * given * t.rows).mean()",
        last="t.rows = (t.rows + 0.1).detach()",
    ),
    Piece(
        "argument that was a constant",
        "k = torch.full((4, 1), 0.5, device=place)",
        argument="given=k if n < 8 else torch.full((4, 1), 0.1 * n, device=place)",
        loss="loss = loss + (model(x) * given + k).mean()",
    ),
    Piece(
        "argument that is a parameter",
        argument="given=model[2].weight.detach() if n % 9 < 6 else torch.ones(1, 16, device=place)",
        loss="loss = loss + (given * model[2].weight).mean()",
    ),
    Piece(
        "argument that is a gradient",
        argument="given=model[2].weight.grad.detach() if 4 < n < 10 else torch.ones(1, 16, device=place)",
        loss="loss = loss + (given * model[2].weight).mean()",
    ),
    Piece(
        "argument that is a result",
        argument="given=losses[-1] if n % 7 else torch.zeros((), device=place)",
        loss="loss = loss + 0.1 * given",
    ),
    Piece(
        "buffers that part",
        _TWO.format("b1.detach()"),
        loss=_BOTH,
        loop="if n == 8: b2.data = torch.zeros(3, device=place)\nif n == 12: b1.data = torch.full((3,), 3.0).to(place)",
    ),
    Piece(
        "buffers that join",
        _TWO.format("b1 * 2"),
        "b1.add_(0.1)",
        loss=_BOTH,
        loop="if n == 7: b2.data = b1.data\nif n == 12: b2.data = torch.zeros(3, device=place)",
    ),
    Piece(
        "buffers of one",
        "b1, b2 = torch.ones(6, device=place).chunk(2)",
        "b1.add_(0.1)",
        loss=_BOTH,
        loop="if n == 9: b2.mul_(2)",
    ),
)
