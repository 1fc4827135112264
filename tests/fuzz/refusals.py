"""What eager PyTorch refuses for its arguments' types: each operator of PyTorch's database, asked for what it is not
for, on the CPU and on a device.

The tensors of an operator's samples, which are of float32 (the first sample with each choice of optional tensors), are
converted to each type that the operator does not have on the CPU; one tensor of several to another type; index tensors
to smaller integers; the tensor that is changed in place, and the one given as ``out``, to types that may not hold the
result. Where the CPU computes, values and types must be the CPU's. Where it raises, the device must raise as well, but
for what the CPU merely has no kernel of: there the answer must be that of the same numbers in float64 (complex128).

``python -m tests.fuzz.refusals [NAME ...]`` prints what differs, with ``--json`` as a line for each operator.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from tests.fuzz.promotions import DTYPES, TOLERANCE, difference

SAMPLES = 6
"""Of an operator, each with other optional tensors."""
ELEMENTS_MAX = 20_000
"""Larger samples are left out."""

BATCH, BATCH_TIMEOUT_S = 20, 600.0
"""Operators in one process, and how long it may take."""

INDICES = (torch.int32, torch.int16, torch.uint8)
BESIDE = (torch.float64, torch.int32, torch.bfloat16, torch.complex64)
"""Of one tensor among those of float32."""
WRITTEN = (torch.int32, torch.float64, torch.complex64, torch.bool)
"""Of a tensor that is written."""

LACKS = re.compile(r"not implemented for|not supported on CPU|is not currently supported|Unsupported dtype")
"""Says eager PyTorch where it has no kernel. Everything else that it says of types is about what was asked for."""
LATE = "late: "
UNKEPT = re.compile(
    r"^(empty|new_empty|resize_|rand|normal|bernoulli|multinomial|poisson|binomial|cauchy|exponential|geometric|log_normal"
    r"|uniform|nn\.functional\.(rrelu|.*dropout))"
)
"""Operators whose values nobody knows."""


class Asked(NamedTuple):
    what: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    """The sample's input, arguments and named arguments."""
    floats: frozenset[int] | None
    """Which of them were of float32 in the sample; None where the question has no other form in float64."""


class Told(NamedTuple):
    verdict: str
    text: str


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}".rstrip(".")


def operators() -> list[tuple[str, Any]]:
    from tools.operators._database import database

    return [(name_of(info), info) for info in database.op_db]


def _as(item: Any, dtype: torch.dtype) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about imaginary parts
        return item.detach().to(dtype)


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    """All floats among the tensors, and the types that are named."""
    return tree_map(lambda item: _as(item, dtype) if _is_float(item) else item, tree)


def _is_float(item: Any) -> bool:
    return _is_tensor(item) and item.dtype in (torch.float32, torch.complex64)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def _is_index(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype == torch.int64


def _samples(info: Any) -> Iterator[tuple[Any, ...]]:
    dtype = torch.float32 if torch.float32 in info.dtypes else next(item for item in DTYPES if item in info.dtypes)
    torch.manual_seed(0)
    given: set[str] = set()
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
        tensors = [item for item in tree_leaves(arguments) if isinstance(item, torch.Tensor)]
        if not tensors or not any(tensor.numel() for tensor in tensors):
            continue
        if sum(tensor.numel() for tensor in tensors) <= ELEMENTS_MAX:
            leaves, spec = tree_flatten(arguments)
            kind = f"{spec} {[_is_float(item) for item in leaves]}"
            if kind not in given:
                given.add(kind)
                yield arguments
        if len(given) == SAMPLES:
            return


def asked(info: Any) -> Iterator[Asked]:
    lacking = [dtype for dtype in DTYPES if dtype not in info.dtypes]
    for number, arguments in enumerate(_samples(info)):
        leaves, spec = tree_flatten(arguments)
        floats = [place for place, item in enumerate(leaves) if _is_float(item)]
        known = frozenset(floats)
        for dtype in lacking:
            yield Asked(f"{number}: {_short(dtype)}", info.op, _cast(arguments, dtype), known)
        indices = [place for place, item in enumerate(leaves) if _is_index(item)]
        changes = [(place, dtype) for place in floats for dtype in BESIDE if len(floats) > 1 or indices]
        changes += [(place, dtype) for place in indices for dtype in INDICES if _holds(dtype, leaves[place])]
        for place, dtype in changes:
            changed = [_as(item, dtype) if at == place else item for at, item in enumerate(leaves)]
            yield Asked(f"{number}: argument {place} {_short(dtype)}", info.op, tree_unflatten(changed, spec), known)
        yield from _written(info, number, arguments)


def _holds(dtype: torch.dtype, indices: torch.Tensor) -> bool:
    return torch.equal(indices.to(dtype).to(indices.dtype), indices)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _written(info: Any, number: int, arguments: tuple[Any, ...]) -> Iterator[Asked]:
    values, rest, named = arguments
    if info.inplace_variant is not None and isinstance(values, torch.Tensor):

        def in_place(values: torch.Tensor, *rest: Any, **named: Any) -> Any:
            return info.inplace_variant(values, *rest, **named)

        for dtype in WRITTEN:
            yield Asked(f"{number}: in place {_short(dtype)}", in_place, (_as(values, dtype), rest, named), None)
    if not info.supports_out or "out" in named:
        return
    try:
        made = info.op(values, *rest, **named)
    except Exception:
        return
    if not isinstance(made, torch.Tensor):
        return

    def into(values: Any, *rest: Any, **named: Any) -> Any:
        return info.op(values, *rest, **named)

    for dtype in WRITTEN:
        if dtype != made.dtype:
            yield Asked(f"{number}: out {_short(dtype)}", into, (values, rest, named | {"out": _as(made, dtype)}), None)
    yield Asked(f"{number}: out longer", into, (values, rest, named | {"out": made.new_zeros((3, *made.shape))}), None)
    whole = _cast(arguments, torch.int32)
    yield Asked(f"{number}: int32, out int32", into, (*whole[:2], whole[2] | {"out": made.to(torch.int32)}), None)


def _on(device: Any, tree: Any) -> Any:
    copies: dict[int, torch.Tensor] = {}

    def moved(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return copies.setdefault(id(item), item.detach().clone().to(device))
        return torch.device(device) if isinstance(item, torch.device) or item == "cpu" else item

    return tree_map(moved, tree)


def _run(asked: Asked, device: Any) -> tuple[Any, str]:
    """What comes of it, on the CPU, and the error's text. ``LATE`` stands before that of an error that the call did
    not raise, and with which other values are lost."""
    called = ""
    try:
        values, rest, named = _on(device, asked.arguments)
        made = asked.call(values, *rest, **named)
        called = LATE
        return tree_map(lambda item: item.cpu() if isinstance(item, torch.Tensor) else item, made), ""
    except Exception as error:
        return None, f"{called}{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"


def _meant(asked: Asked, found: Any) -> bool:
    """Whether it is the answer to the same question in float64; integers and booleans need be equal to it."""
    leaves, spec = tree_flatten(asked.arguments)
    if asked.floats is None:
        return False
    wide = torch.complex128 if any(_is_tensor(item) and item.is_complex() for item in leaves) else torch.float64
    kept = [
        _as(item, wide if at in asked.floats else torch.int64)
        if (_is_tensor(item) and item.dtype != torch.bool) or at in asked.floats
        else item
        for at, item in enumerate(leaves)
    ]
    expected, error = _run(asked._replace(arguments=tree_unflatten(kept, spec)), "cpu")
    if error:
        return False
    for one, other in zip(tree_leaves(expected), tree_leaves(found), strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        if one.shape != other.shape or (one.is_complex() and not other.is_complex()):
            return False
        tolerance = 0.0 if not (other.is_floating_point() or other.is_complex()) else TOLERANCE.get(other.dtype, 1e-4)
        if other.dtype in INDICES or other.dtype == torch.int8:
            one = torch.where(one.isfinite(), one, 0).to(torch.int64).to(other.dtype)  # which wraps around
        left, right = one.resolve_conj().to(torch.complex128), other.resolve_conj().to(torch.complex128)
        if not torch.allclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True):
            return False
    return True


def _rounded(asked: Asked, *results: Any) -> tuple[Any, ...]:
    """Results of 16-bit floats are no more exact than these, whatever their type."""
    short = [item.dtype for item in tree_leaves(asked.arguments) if _is_tensor(item) and item.dtype.itemsize == 2]
    floats = [dtype for dtype in short if dtype.is_floating_point]
    kinds = [[item.dtype for item in tree_leaves(result) if _is_tensor(item)] for result in results]
    if not floats or any(kind != kinds[0] for kind in kinds):
        return results
    return tuple(tree_map(lambda item: item.to(floats[0]) if _is_float(item) else item, result) for result in results)


def judged(name: str, asked: Asked, device: Any) -> Told | None:
    """What there is to tell: ``wrong``, ``unanswered``, ``late`` (refused when the result is read, not at the call),
    ``answered`` (the CPU refuses it), or ``more`` (so it does, for want of a kernel, and the answer is right)."""
    expected, refused = _run(asked, "cpu")
    found, error = _run(asked, device)
    if error.startswith("HostLost"):
        os._exit(1)  # the one who watches tells it
    if error.startswith(LATE):
        return Told("late", error.removeprefix(LATE))
    if error:
        return None if refused else Told("unanswered", error)
    leaves = [item for item in tree_leaves(found) if isinstance(item, torch.Tensor)]
    answer = ", ".join(f"{_short(item.dtype)} {item.flatten()[:3].tolist()}" for item in leaves[:2])
    if refused:
        right = LACKS.search(refused) is not None and _meant(asked, found)
        return Told("more" if right else "answered", f"{refused} | {answer}")
    try:
        differs = difference(*_rounded(asked, expected, found))
    except Exception as failure:
        differs = f"{type(failure).__name__}: {str(failure).splitlines()[0][:100]}"
    if not differs or (UNKEPT.match(name) and differs.startswith("[")):
        return None
    return Told("wrong", differs)


def differences(
    name: str, info: Any, device: Any, left_out: Collection[str] = (), say: bool = False
) -> dict[str, Told]:
    """By what was asked. ``say`` prints each question before it is asked, for those who watch this process."""
    told: dict[str, Told] = {}
    try:
        for one in asked(info):
            if one.what in left_out:
                continue
            if say:
                print(json.dumps({"asks": [name, one.what]}), flush=True)
            told_of_it = judged(name, one, device)
            if told_of_it is not None:
                told[one.what] = told_of_it
    except Exception as error:
        told["samples"] = Told("unasked", f"{type(error).__name__}: {error}"[:160])
    return told


def _child(names: Collection[str], left_out: dict[str, list[str]]) -> None:
    """Prints a line for each question, and one for each operator."""
    import ptpathways as pw

    warnings.simplefilter("ignore")
    pw.init(hosts=1, devices_per_host=1)
    for name, info in operators():
        if name in names:
            found = differences(name, info, pw.device(), left_out.get(name, ()), say=True)
            print(json.dumps({"name": name, "told": found}), flush=True)


def run(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Told]]]:
    """What there is to tell of each operator, from processes of a few each; what ends one of them is told, too."""
    waiting = list(dict.fromkeys(name for name, _ in operators() if not names or name in names))
    left_out: dict[str, list[str]] = {}
    while waiting:
        batch = waiting[:BATCH]
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--child", json.dumps(left_out), *batch]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        timer = threading.Timer(BATCH_TIMEOUT_S, child.kill)
        timer.start()
        asks: list[str] = []
        assert child.stdout is not None
        for line in child.stdout:
            row = json.loads(line) if line.startswith("{") else {}
            asks = row.get("asks", asks)
            if "told" in row:
                lost = {
                    what: Told("ended", "the process ended, or took too long") for what in left_out.get(row["name"], ())
                }
                yield row["name"], lost | {what: Told(*told) for what, told in row["told"].items()}
                waiting.remove(row["name"])
        timer.cancel()
        child.wait()
        if waiting and waiting[0] in batch:
            if not asks or asks[0] != waiting[0]:
                raise RuntimeError(f"the process for {waiting[0]} did not begin")
            left_out.setdefault(asks[0], []).append(asks[1])


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return _child(sys.argv[3:], json.loads(sys.argv[2]))
    for name, found in run([word for word in sys.argv[1:] if word != "--json"]):
        if "--json" in sys.argv:
            print(json.dumps({"name": name, "told": found}), flush=True)
            continue
        print(f"{name}: {sum(told.verdict != 'more' for told in found.values())}", flush=True)
        for what, (verdict, text) in found.items():
            print(f"    {what}: {verdict}: {text}", flush=True)


if __name__ == "__main__":
    main()
