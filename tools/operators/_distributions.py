"""Randomised operators: whether their numbers have the distribution of the CPU's, and follow the seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import ptpathways as pw

COUNT = 40_000
KOLMOGOROV = 2.2
"""The two-sample statistic times sqrt(n / 2) is above this once in 8000 times. Seeds are fixed, so it is not chance."""

PREFIX = "distribution of "


@dataclass(frozen=True)
class Draw:
    """A way to draw ``COUNT`` numbers, or some more, of a type on a device."""

    call: Callable[[str | torch.device, torch.dtype], torch.Tensor]
    dtypes: tuple[str, ...] = ("float32",)


_FLOATS = ("float32", "float64", "bfloat16", "float16")


def _ones(device: str | torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (COUNT,), dtype=dtype, device=device)


def _weights(device: str | torch.device, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0.1, 0.0, 0.4, 0.2, 0.3], dtype=dtype).to(device).expand(COUNT // 2, 5)


DRAWS: dict[str, Draw] = {
    "torch.rand": Draw(lambda d, t: torch.rand(COUNT, dtype=t, device=d), _FLOATS),
    "torch.rand_like": Draw(lambda d, t: torch.rand_like(_ones(d, t)), _FLOATS),
    "torch.randn": Draw(lambda d, t: torch.randn(COUNT, dtype=t, device=d), _FLOATS),
    "torch.randn_like": Draw(lambda d, t: torch.randn_like(_ones(d, t)), _FLOATS),
    "torch.randint": Draw(lambda d, t: torch.randint(-3, 9, (COUNT,), dtype=t, device=d), ("int64", "float32")),
    "torch.randint_like": Draw(lambda d, t: torch.randint_like(_ones(d, t), 2, 30), ("int64", "float32")),
    "torch.randperm": Draw(lambda d, t: torch.randperm(COUNT, dtype=t, device=d), ("int64",)),
    "torch.bernoulli": Draw(lambda d, t: torch.bernoulli(_ones(d, t) * 0.3), _FLOATS),
    "Tensor.bernoulli_": Draw(lambda d, t: _ones(d, t).bernoulli_(0.3), (*_FLOATS, "int64", "bool")),
    "torch.normal(tensor, tensor)": Draw(lambda d, t: torch.normal(_ones(d, t), _ones(d, t) * 2), _FLOATS),
    "torch.normal(tensor, number)": Draw(lambda d, t: torch.normal(_ones(d, t), 2.0), _FLOATS),
    "torch.normal(number, tensor)": Draw(lambda d, t: torch.normal(1.0, _ones(d, t)), _FLOATS),
    "Tensor.normal_": Draw(lambda d, t: _ones(d, t).normal_(1.0, 2.0), _FLOATS),
    "Tensor.uniform_": Draw(lambda d, t: _ones(d, t).uniform_(-2.0, 3.0), _FLOATS),
    "Tensor.random_": Draw(lambda d, t: _ones(d, t).random_(0, 11), ("int64", "float32")),
    "Tensor.exponential_": Draw(lambda d, t: _ones(d, t).exponential_(2.0), _FLOATS),
    "Tensor.cauchy_": Draw(lambda d, t: _ones(d, t).cauchy_(1.0, 0.5), _FLOATS),
    "Tensor.geometric_": Draw(lambda d, t: _ones(d, t).geometric_(0.2), (*_FLOATS, "int64")),
    "Tensor.log_normal_": Draw(lambda d, t: _ones(d, t).log_normal_(0.5, 0.25), _FLOATS),
    "torch.poisson": Draw(lambda d, t: torch.poisson(_ones(d, t) * 4), ("float32",)),
    "torch.binomial": Draw(lambda d, t: torch.binomial(_ones(d, t) * 9, _ones(d, t) * 0.3), ("float32",)),
    "torch._standard_gamma": Draw(lambda d, t: torch._standard_gamma(_ones(d, t) * 1.5), ("float32",)),
    "torch.multinomial": Draw(lambda d, t: torch.multinomial(_weights(d, t), 2), ("float32",)),
    "torch.multinomial, replaced": Draw(lambda d, t: torch.multinomial(_weights(d, t), 2, True), ("float32",)),
    "dropout": Draw(lambda d, t: F.dropout(_ones(d, t), 0.3), _FLOATS),
    "alpha_dropout": Draw(lambda d, t: F.alpha_dropout(_ones(d, t), 0.3, True)),
    "feature_alpha_dropout": Draw(lambda d, t: F.feature_alpha_dropout(_ones(d, t, COUNT // 2, 2), 0.3, True)),
    "dropout1d": Draw(lambda d, t: F.dropout1d(_ones(d, t, COUNT // 2, 2, 3), 0.3)[..., 0]),
    "dropout2d": Draw(lambda d, t: F.dropout2d(_ones(d, t, COUNT // 2, 2, 3, 1), 0.3)[..., 0, 0]),
    "dropout3d": Draw(lambda d, t: F.dropout3d(_ones(d, t, COUNT // 2, 2, 3, 1, 1), 0.3)[..., 0, 0, 0]),
    "rrelu": Draw(lambda d, t: F.rrelu(-_ones(d, t), 0.1, 0.4, True)),
    "gumbel_softmax": Draw(lambda d, t: F.gumbel_softmax(_ones(d, t, COUNT // 2, 2), 0.7)[:, 0]),
    "trunc_normal_": Draw(lambda d, t: torch.nn.init.trunc_normal_(_ones(d, t), 0.0, 1.0, -1.5, 2.0)),
}


def check(name: str, dtype: torch.dtype, device: torch.device) -> str:
    """What is wrong with a draw; empty if nothing is."""
    call = DRAWS[name].call
    torch.manual_seed(0)
    expected = call("cpu", dtype).detach()
    drawn = []
    for seed in (1, 1, 2):
        pw.manual_seed(seed)
        drawn += [call(device, dtype).detach().cpu(), call(device, dtype).detach().cpu()]
    first, second, again, again_second, other, _ = drawn
    if first.shape != expected.shape or first.dtype != expected.dtype:
        return f"{first.dtype} of {tuple(first.shape)} instead of {expected.dtype} of {tuple(expected.shape)}"
    if not torch.equal(first, again) or not torch.equal(second, again_second):
        return "the same seed gives other numbers"
    if torch.equal(first, other) or torch.equal(first, second):
        return "another seed, or a second call, gives the same numbers"
    if what := _support(expected, first):
        return what
    return _distribution(expected, first) or _independence(first, second)


def _support(expected: torch.Tensor, found: torch.Tensor) -> str:
    """Numbers that should not be there: nan, infinity where the CPU has none, or others than its few."""
    if not bool(torch.isfinite(found.double()).all()) and bool(torch.isfinite(expected.double()).all()):
        return "numbers that are not finite"
    known, new = expected.double().unique(), found.double().unique()
    if len(known) <= 16 and not bool(torch.isin(new, known).all()):
        return f"values {new[~torch.isin(new, known)][:4].tolist()}, which the CPU does not give"
    return ""


def _distribution(expected: torch.Tensor, found: torch.Tensor) -> str:
    one, other = expected.double().flatten().sort().values, found.double().flatten().sort().values
    places = torch.cat([one, other])
    share = [torch.searchsorted(values, places, right=True) / len(values) for values in (one, other)]
    statistic = float((share[0] - share[1]).abs().max()) * (len(one) / 2) ** 0.5
    if statistic > KOLMOGOROV:
        means = f"means {float(other.mean()):.4g} and {float(one.mean()):.4g}"
        return f"another distribution than the CPU's: Kolmogorov-Smirnov {statistic:.1f}, {means}"
    return ""


def _independence(first: torch.Tensor, second: torch.Tensor) -> str:
    """Ranks, because some distributions have no variance."""
    one, other = (values.double().flatten().argsort().argsort().double() for values in (first, second))
    limit = 5 / len(one) ** 0.5
    for what, left, right in (("neighbours", one[:-1], one[1:]), ("two calls", one, other)):
        found = float(torch.corrcoef(torch.stack([left, right]))[0, 1])
        if abs(found) > limit and len(first.unique()) > 100:
            return f"{what} are correlated: {found:.3f}"
    return ""
