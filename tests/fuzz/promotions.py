"""Operators of several tensors, and of tensors and numbers, whose types differ: each pair of types against the CPU.

PyTorch's database of operators gives all arguments of a sample one type, and PyTorch/XLA's kernels often take the first
one's. ``python -m tests.fuzz.promotions [NAME ...]`` prints what differs, with ``--json``
as an object.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
)
NUMBERS = (True, 2, -3, 300, 2.5, 0.1, float("inf"), 1 + 2j)
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-6}

CANNOT_HOLD = "can't be cast to the desired output type"
"""Says eager PyTorch of operations in place."""

Operator = Callable[..., Any]


def _binary() -> dict[str, Operator]:
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo

    found: dict[str, Operator] = {}
    for info in op_db:
        if isinstance(info, BinaryUfuncInfo) and not info.name.startswith(("_refs", "jiterator")):
            found[f"{info.name}.{info.variant_test_name}".rstrip(".")] = info.op
            if info.inplace_variant is not None:
                found[f"{info.name}_.{info.variant_test_name}".rstrip(".")] = info.inplace_variant
    return found


def operators() -> dict[str, Operator]:
    """By name, of two tensors, or of a tensor and a number."""
    functional = torch.nn.functional
    mask = torch.tensor([[True, False, True], [False, True, False]])

    def where(x: Any, y: Any) -> Any:
        device = next(item.device for item in (x, y) if isinstance(item, torch.Tensor))
        return torch.where(mask.to(device), x, y)

    others: dict[str, Operator] = {
        "where": where,
        "addcmul": lambda x, y: torch.addcmul(x, y, y, value=2),
        "addcmul.swapped": lambda x, y: torch.addcmul(y, x, y, value=2),
        "addcdiv": lambda x, y: torch.addcdiv(x, y, y, value=2),
        "lerp": lambda x, y: torch.lerp(x, y, 0.5),
        "clamp": lambda x, y: torch.clamp(x, min=y),
        "clamp.both": lambda x, y: torch.clamp(x, y, y),
        "cat": lambda x, y: torch.cat([x, y]),
        "stack": lambda x, y: torch.stack([x, y]),
        "masked_fill": lambda x, y: x.masked_fill(mask.to(x.device), y),
        "index_put": lambda x, y: x.index_put((torch.tensor([0], device=x.device),), y[:1]),
        "setitem": lambda x, y: x.clone().__setitem__(0, y[0]),
        "copy_": lambda x, y: x.clone().copy_(torch.as_tensor(y, device=x.device)),
        "mse_loss": lambda x, y: functional.mse_loss(x, y),
        "l1_loss": lambda x, y: functional.l1_loss(x, y),
        "smooth_l1_loss": lambda x, y: functional.smooth_l1_loss(x, y),
        "cumsum": lambda x, y: x.cumsum(0),
        "cumprod": lambda x, y: x.cumprod(0),
        "sum": lambda x, y: x.sum(0),
        "prod": lambda x, y: x.prod(0),
        "cummax": lambda x, y: x.cummax(0),
        "logcumsumexp": lambda x, y: x.logcumsumexp(0),
        "linspace": lambda x, y: x.add(y, alpha=2),
        "addmm": lambda x, y: torch.addmm(x[:, :2], x, y.t()),
        "matmul": lambda x, y: x @ y.t(),
        "full_like": lambda x, y: torch.full_like(x, y) if not isinstance(y, torch.Tensor) else y,
        "add.number_first": lambda x, y: y + x,
        "sub.number_first": lambda x, y: y - x,
        "div.number_first": lambda x, y: y / x,
        "pow.number_first": lambda x, y: y**x,
    }
    return _binary() | others


def _values(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """(2, 3), with no zero, and of both signs where there are."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (2, 3), generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 1 if dtype == torch.uint8 else -5
        drawn = torch.randint(low, 6, (2, 3), generator=generator)
        drawn = torch.where(drawn == 0, 3, drawn)
        if seed % 2 == 0:  # what another type of eight bits does not hold
            drawn[0, 0] = 250 if dtype == torch.uint8 else -100
        return drawn.to(dtype)
    drawn = torch.randn((2, 3), generator=generator).abs() + 0.3
    return (drawn * torch.tensor([1.0, -1.0, 1.0])).to(dtype)


def arguments() -> Iterator[tuple[str, tuple[Any, Any]]]:
    for one, other in itertools.product(DTYPES, DTYPES):
        x, y = _values(one, 1), _values(other, 2)
        name = f"{str(one)[6:]}, {str(other)[6:]}"
        yield name, (x, y)
        yield f"{name}[]", (x, y[0, 0])
        yield f"{str(one)[6:]}[], {str(other)[6:]}", (x[0, 1], y)
    for one, number in itertools.product(DTYPES, NUMBERS):
        if one.is_complex and number == float("inf"):
            continue  # the CPU multiplies it by a complex 1 on its way, and gets what is no number
        yield f"{str(one)[6:]}, {number}", (_values(one, 1), number)
        yield f"{str(one)[6:]}[], {number}", (_values(one, 1)[0, 1], number)


def _on(device: Any, values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.clone().to(device), values)


def difference(expected: Any, found: Any) -> str:
    """Empty if there is none."""
    for one, other in zip(tree_leaves(expected), tree_leaves(found), strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        other = other.cpu()
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{one.dtype} {tuple(one.shape)}, got {other.dtype} {tuple(other.shape)}: {other.flatten()[:3]}"
        tolerance = TOLERANCE.get(one.dtype, 1e-4)
        wide = torch.complex128 if one.is_complex() else torch.float64
        left, right = one.detach().resolve_conj().to(wide), other.detach().resolve_conj().to(wide)
        if not torch.allclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{one.flatten()[:6].tolist()}, got {other.flatten()[:6].tolist()}"
    return ""


def differences(name: str, operator: Operator, device: Any) -> dict[str, str]:
    """By arguments. What eager PyTorch refuses is not compared, but for results that a tensor cannot hold; what only
    the device refuses is told."""
    made: list[tuple[str, Any, Any]] = []
    told: dict[str, str] = {}
    for what, given in arguments():
        try:
            mine = _on("cpu", given)
            expected = operator(*mine)
        except Exception as error:
            if CANNOT_HOLD not in str(error):
                continue
            expected = None
        try:
            theirs = _on(device, given)
            found = operator(*theirs)
        except Exception as error:
            if expected is not None:
                told[what] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
            continue
        if expected is None:
            told[what] = f"torch refuses it, got {tree_leaves(found)[0].dtype}"
            continue
        made.append((what, (expected, mine), (found, theirs)))
    import torch_xla

    torch_xla.sync()
    for what, expected, found in made:
        try:
            differs = difference(expected, found)
        except Exception as error:
            differs = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
        if differs:
            told[what] = differs
    return told


def main() -> None:
    import ptpathways as pw

    warnings.simplefilter("ignore")
    pw.init(hosts=1, devices_per_host=1)
    chosen = [word for word in sys.argv[1:] if word != "--json"]
    found: dict[str, dict[str, str]] = {}
    for name, operator in operators().items():
        if chosen and name not in chosen:
            continue
        found[name] = differences(name, operator, pw.device())
        if "--json" in sys.argv:
            continue
        print(f"{name}: {len(found[name])}", flush=True)
        for what, differs in found[name].items():
            print(f"    {what}: {differs}", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
