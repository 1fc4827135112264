"""Views, copies and writes in place out of a grammar, on a device and on the CPU: which tensors share what.

``python -m tests.fuzz.views FIRST COUNT``: that many programs, and a line of JSON. A program makes tensors of others,
writes some, and all are compared at its end: a copy that is a view, or the other way round, is a wrong value. Copies
that torch would lay out like a transposed original are asked for in order, which is how a device has them.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import ptpathways as pw

_STEPS = 14
_MAX_ELEMENTS = 400
Make = Callable[[Tensor], Tensor]


def _dim(rng: random.Random, tensor: Tensor) -> int:
    return rng.randrange(tensor.dim())


def _transpose(rng: random.Random, tensor: Tensor) -> Make:
    first, second = _dim(rng, tensor), _dim(rng, tensor)
    return lambda value: value.transpose(first, second)


def _permute(rng: random.Random, tensor: Tensor) -> Make:
    order = rng.sample(range(tensor.dim()), tensor.dim())
    return lambda value: value.permute(order)


def _narrow(rng: random.Random, tensor: Tensor) -> Make:
    dim = _dim(rng, tensor)
    start = rng.randrange(tensor.shape[dim])
    length = rng.randint(1, tensor.shape[dim] - start)
    return lambda value: value.narrow(dim, start, length)


def _stride(rng: random.Random, tensor: Tensor) -> Make:
    where = (slice(None),) * _dim(rng, tensor) + (slice(None, None, rng.choice((1, 2))),)
    return lambda value: value[where]


def _select(rng: random.Random, tensor: Tensor) -> Make:
    dim = _dim(rng, tensor)
    index = rng.randrange(tensor.shape[dim])
    return lambda value: value.select(dim, index)


def _chunk(rng: random.Random, tensor: Tensor) -> Make:
    dim = _dim(rng, tensor)
    return lambda value: value.chunk(2, dim)[-1]


def _unsqueeze(rng: random.Random, tensor: Tensor) -> Make:
    dim = rng.randint(0, tensor.dim())
    return lambda value: value.unsqueeze(dim)


def _expand(rng: random.Random, tensor: Tensor) -> Make:
    count = rng.randint(1, 3)
    return lambda value: value.unsqueeze(0).expand(count, *value.shape)


def _diagonal(rng: random.Random, tensor: Tensor) -> Make:
    if tensor.dim() < 2:
        return lambda value: value
    return lambda value: value.diagonal()


def _shape(rng: random.Random, tensor: Tensor) -> list[int]:
    count = tensor.numel()
    first = rng.choice([size for size in range(1, count + 1) if count % size == 0])
    return [first, count // first] if rng.random() < 0.6 else [-1]


def _reshape(rng: random.Random, tensor: Tensor) -> Make:
    shape = _shape(rng, tensor)
    return lambda value: value.reshape(shape)


def _view(rng: random.Random, tensor: Tensor) -> Make:
    shape = _shape(rng, tensor)
    try:
        tensor.view(shape)
    except RuntimeError:
        return lambda value: value.contiguous().view(shape)
    return lambda value: value.view(shape)


def _flatten(rng: random.Random, tensor: Tensor) -> Make:
    start = _dim(rng, tensor)
    end = rng.randrange(start, tensor.dim())
    return lambda value: value.flatten(start, end)


_PLAIN: Sequence[Make] = (
    lambda value: value.contiguous(),
    lambda value: value.contiguous(),
    lambda value: value.ravel(),
    lambda value: value.squeeze(),
    lambda value: value.t() if value.dim() == 2 else value.movedim(0, -1),
    lambda value: value.clone(memory_format=torch.contiguous_format),
    lambda value: value.to(torch.float32),
    lambda value: value.to(torch.float32, copy=True, memory_format=torch.contiguous_format),
)
_MADE = (
    _transpose,
    _permute,
    _narrow,
    _stride,
    _select,
    _chunk,
    _unsqueeze,
    _expand,
    _diagonal,
    _reshape,
    _reshape,
    _view,
    _flatten,
)


def _sync() -> None:
    import torch_xla  # after init

    torch_xla.sync()


def _writable(tensor: Tensor) -> bool:
    """Whether torch writes it in place: no two elements in one place."""
    return all(size <= 1 or step > 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _assign(value: Tensor, where: object, what: Tensor | float) -> None:
    value[where] = what  # type: ignore[index]


def _write(rng: random.Random, tensor: Tensor) -> Callable[[Tensor], object]:
    amount, at, last = rng.randint(2, 5), rng.randrange(tensor.shape[0]), rng.randrange(tensor.shape[-1])
    return rng.choice(
        (
            lambda value: value.add_(amount),
            lambda value: value.mul_(amount),
            lambda value: value[at].sub_(amount),
            lambda value: value[..., last].mul_(amount),
            lambda value: value.copy_(value.flip(0)),
            lambda value: _assign(value, at, amount),
            lambda value: _assign(value, (..., last), value[..., 0] + amount),
            lambda value: _assign(value, torch.tensor([at], device=value.device), 7.0),
            lambda value: _assign(value, value > amount, 1.0),
            lambda value: value.masked_fill_(value < amount, -1.0),
            lambda value: value.index_add_(0, torch.tensor([at], device=value.device), value[:1] * amount),
            lambda value: value.clamp_(max=amount * 3.0),
            lambda value: value.narrow(-1, last, 1).fill_(amount),
            lambda value: value.zero_(),
        )
    )


def _backward(tensors: Sequence[Tensor]) -> None:
    sum((tensor * (at + 1)).sin().sum() for at, tensor in enumerate(tensors)).backward()  # type: ignore[union-attr]


def _refuses(work: Callable[..., object], argument: object) -> bool:
    """Whether torch does on the CPU: a write of one of several views, or of what a gradient needs."""
    try:
        work(argument)
    except RuntimeError:
        return True
    return False


def program(seed: int, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """All tensors of one program, as they are on the CPU and on the device at its end; of some with a gradient."""
    rng = random.Random(seed)
    shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    leaves = [torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)]
    leaves.append(leaves[0].to(device))
    with_gradient = rng.random() < 0.4
    here, there = ([leaf.requires_grad_() * 1.5 if with_gradient else leaf] for leaf in leaves)
    for _ in range(_STEPS):
        place = rng.randrange(len(here))
        tensor = here[place]
        if tensor.dim() == 0 or tensor.numel() > _MAX_ELEMENTS:
            continue
        what = rng.random()
        if what < 0.1:
            _sync()
        elif what < 0.4:
            if _writable(tensor):
                write = _write(rng, tensor)
                if _refuses(write, tensor):
                    break
                write(there[place])
        else:
            make = rng.choice(_PLAIN) if what < 0.7 else rng.choice(_MADE)(rng, tensor)
            if _refuses(lambda value, make=make: here.append(make(value)), tensor):
                break
            there.append(make(there[place]))
    if with_gradient and not _refuses(_backward, here):
        _backward(there)
        here.append(leaves[0].grad)  # type: ignore[arg-type]
        there.append(leaves[1].grad)  # type: ignore[arg-type]
    return [tensor.detach() for tensor in here], [tensor.detach().cpu() for tensor in there]


def main() -> None:
    warnings.simplefilter("ignore")
    first, count = (int(text) for text in sys.argv[1:3])
    pw.init(hosts=1, devices_per_host=1)
    wrong = []
    for seed in range(first, first + count):
        try:
            here, there = program(seed, pw.device())
        except Exception as error:
            print(seed, repr(error), file=sys.stderr)
            wrong.append(seed)
            continue
        pairs = zip(here, there, strict=True)
        if not all(mine.shape == theirs.shape and torch.allclose(mine, theirs, 1e-4, 1e-4) for mine, theirs in pairs):
            wrong.append(seed)
    print(json.dumps({"programs": count, "wrong": wrong}))


if __name__ == "__main__":
    main()
