"""One sample of an operator, on the device and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import ptpathways as pw
from ptpathways import frontend
from tools.operators import _compare, _database, _unique

RIGHT, CLIENT, RANDOM, REFUSED, UNCLEAR, WRONG, NOT_ON_CPU = (
    "right",
    "client",
    "random",
    "refused",
    "unclear",
    "wrong",
    "not on the CPU",
)
CLEAR_ERRORS = (NotImplementedError, pw.PathwaysError)
CLEAR_MESSAGES = (
    "expected tensor_indices_or_sections to be on cpu",
    "Type not supported: ComplexHalf",
    "not supported: f16",
)
"""torch's own for every device but the CPU, and PyTorch/XLA's. Others say nothing that a user could go by."""

_OTHER_SEEDS = (1, 2, 3)
"""A randomised operator gives something else for one of them; a small pool's maximum may be the same for some."""


@dataclass(frozen=True)
class Verdict:
    """What came of a sample."""

    kind: str
    what: str = ""
    client: tuple[str, ...] = ()
    """The operations that the client computed."""


@dataclass
class _Results:
    forward: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)

    def leaves(self) -> list[tuple[str, Any]]:
        forward = [(f"result {number}", item) for number, item in enumerate(self.forward)]
        return forward + [(f"gradient {number}", item) for number, item in enumerate(self.gradients)]


class _Mismatch(Exception):
    """A result that cannot be compared."""


def at_device() -> None:
    """Called when the CPU is done and the device begins. Tells whoever watches the process which of them ended it."""
    print("device", flush=True)


def _evaluate(operator: Any, call: Callable[..., Any], sample: Any, device: Any, gradient: bool) -> _Results:
    """The results, and the gradients of a weighted sum of them with respect to the sample's tensors."""
    given, arguments, named = _database.moved((sample.input, sample.args, sample.kwargs), device)
    made = call(given, *arguments, **named)
    results = _Results(tree_leaves(made))
    wanted = [
        item for item in tree_leaves((given, arguments, named)) if isinstance(item, torch.Tensor) and item.requires_grad
    ]
    if not gradient or not wanted:
        return results
    processed = sample.output_process_fn_grad(made)
    sources = [item for item in tree_leaves(processed) if isinstance(item, torch.Tensor) and item.requires_grad]
    if sources:
        weights = [_weights(source).to(device) for source in sources]
        results.gradients = list(torch.autograd.grad(sources, wanted, weights, allow_unused=True))
    return results


def _weights(source: torch.Tensor) -> torch.Tensor:
    """What is given to a backward pass: other numbers than ones, whose gradient is often zero."""
    count = torch.arange(source.numel(), dtype=torch.float64)
    values = torch.cos(count) + 0.25
    if source.is_complex():
        return torch.complex(values, torch.sin(count)).to(source.dtype).reshape(source.shape)
    return values.to(source.dtype).reshape(source.shape)


def _fetched(results: _Results) -> _Results:
    pw.step()
    return _Results(_on_cpu(results.forward), _on_cpu(results.gradients))


def _on_cpu(items: list[Any]) -> list[Any]:
    return [item.detach().cpu() if isinstance(item, torch.Tensor) else item for item in items]


def _client_counts() -> dict[str, int]:
    return dict(frontend.client_operations())


def check(operator: Any, name: str, sample: Any, dtype: torch.dtype, device: torch.device) -> Verdict:
    """Compares the device's results and gradients with the CPU's."""
    gradient = _database.differentiable(operator, dtype)
    return _judge(operator, name, operator, sample, dtype, device, gradient)


def check_in_place(operator: Any, name: str, sample: Any, dtype: torch.dtype, device: torch.device) -> Verdict:
    """As ``check``, of the variant that changes its first argument."""

    def call(given: Any, *arguments: Any, **named: Any) -> Any:
        mine = given.detach().clone()
        operator.inplace_variant(mine, *_detached(arguments), **_detached(named))
        return mine

    return _judge(operator, name, call, sample, dtype, device, False)


def check_out(operator: Any, name: str, sample: Any, dtype: torch.dtype, device: torch.device) -> Verdict:
    """As ``check``, of the variant that writes into tensors which it is given."""

    def call(given: Any, *arguments: Any, **named: Any) -> Any:
        given, arguments, named = _detached((given, arguments, named))
        out = tree_map(torch.zeros_like, operator(given, *arguments, **named))
        operator(given, *arguments, **named, out=out)
        return out

    return _judge(operator, name, call, sample, dtype, device, False)


def _detached(tree: Any) -> Any:
    return tree_map(lambda item: item.detach() if isinstance(item, torch.Tensor) else item, tree)


def _judge(
    operator: Any,
    name: str,
    call: Callable[..., Any],
    sample: Any,
    dtype: torch.dtype,
    device: torch.device,
    gradient: bool,
) -> Verdict:
    try:
        others = []
        for seed in _OTHER_SEEDS:
            torch.manual_seed(seed)
            others.append(_evaluate(operator, call, sample, "cpu", False).forward)
        torch.manual_seed(0)
        expected = _detached_results(_evaluate(operator, call, sample, "cpu", gradient))
    except Exception:
        return Verdict(NOT_ON_CPU)
    shapes_only = name in _database.UNINITIALISED
    random = not shapes_only and any(_differ(expected.forward, other) for other in others)
    before = _client_counts()
    at_device()
    try:
        pw.manual_seed(0)
        found = _fetched(_evaluate(operator, call, sample, device, gradient))
        what = ""
        if random:
            what = _random_difference(operator, call, sample, device, expected, found, gradient)
    except Exception as error:
        return refusal(error)
    after = _client_counts()
    client = tuple(sorted(key for key, count in after.items() if count != before.get(key, 0)))
    if not random:
        what = _difference(operator, name, call, sample, dtype, gradient, expected, found, shapes_only)
    if what:
        return Verdict(WRONG, what, client)
    return Verdict(RANDOM if random else CLIENT if client else RIGHT, "", client)


def refusal(error: Exception) -> Verdict:
    """Of what the device raised and the CPU did not."""
    text = str(error).strip().splitlines()
    clear = isinstance(error, CLEAR_ERRORS) or any(message in str(error) for message in CLEAR_MESSAGES)
    return Verdict(REFUSED if clear else UNCLEAR, f"{type(error).__name__}: {text[0][:200] if text else ''}")


def _detached_results(results: _Results) -> _Results:
    return _Results(_detached(results.forward), _detached(results.gradients))


def _differ(left: list[Any], right: list[Any]) -> bool:
    """By more than a library's order of sums, which may depend on its threads."""
    return any(_compare.difference(one, other, (1e-5, 1e-6)) for one, other in zip(left, right, strict=True))


def _random_difference(
    operator: Any,
    call: Callable[..., Any],
    sample: Any,
    device: torch.device,
    expected: _Results,
    found: _Results,
    gradient: bool,
) -> str:
    """Shapes and types as on the CPU, and the same values for the same seed."""
    if what := _all_differences(expected, found, _compare.shape_difference):
        return what
    pw.manual_seed(0)
    again = _fetched(_evaluate(operator, call, sample, device, gradient))
    what = _all_differences(found, again, lambda one, other: _compare.difference(one, other, (0.0, 0.0)))
    return what and f"the same seed gives other values: {what}"


def _difference(
    operator: Any,
    name: str,
    call: Callable[..., Any],
    sample: Any,
    dtype: torch.dtype,
    gradient: bool,
    expected: _Results,
    found: _Results,
    shapes_only: bool,
) -> str:
    if shapes_only:
        return _all_differences(expected, found, _compare.shape_difference)

    def apart(one: Any, other: Any, wide: Any = None) -> str:
        kind = one.dtype if isinstance(one, torch.Tensor) else dtype
        mine, stated = _database.tolerance(operator, kind), _database.tolerance(operator, dtype)
        return _compare.difference(one, other, (max(mine[0], stated[0]), max(mine[1], stated[1])), wide)

    what = _all_differences(expected, found, apart)
    if not what:
        return ""
    wide = _wide(operator, call, sample, dtype, gradient) if dtype.is_floating_point or dtype.is_complex else None
    return _judged(name, sample, expected, found, wide, apart)


def _judged(
    name: str, sample: Any, expected: _Results, found: _Results, wide: _Results | None, apart: Callable[..., str]
) -> str:
    """What differs, with the answers in a wider type, and only of what is unique."""
    counts = {(len(item.forward), len(item.gradients)) for item in (expected, found, wide or expected)}
    if len(counts) > 1:
        return _all_differences(expected, found, apart)
    wider = wide or _Results([None] * len(expected.forward), [None] * len(expected.gradients))
    what = _first("result", expected.forward, found.forward, wider.forward, apart)
    if what and name in _unique.JUDGES:
        what = _unique.JUDGES[name](sample, expected.forward, found.forward, apart)
    if not what and _unique.has_ties(name, sample):
        return ""  # which of the equal elements gets the gradient is as open as their order
    return what or _first("gradient", expected.gradients, found.gradients, wider.gradients, apart)


def _first(what: str, expected: list[Any], found: list[Any], wide: list[Any], apart: Callable[..., str]) -> str:
    triples = enumerate(zip(expected, found, wide, strict=True))
    return next((f"{what} {number}: {text}" for number, (a, b, c) in triples if (text := apart(a, b, c))), "")


def _wide(operator: Any, call: Callable[..., Any], sample: Any, dtype: torch.dtype, gradient: bool) -> _Results | None:
    """The CPU's results in a wider type; nothing where it has none."""
    from torch.testing._internal.opinfo.core import SampleInput

    given, arguments, named = _database.widened((sample.input, sample.args, sample.kwargs), dtype)
    try:
        wide = SampleInput(given, args=arguments, kwargs=named, output_process_fn_grad=sample.output_process_fn_grad)
        torch.manual_seed(0)
        return _detached_results(_evaluate(operator, call, wide, "cpu", gradient))
    except Exception:
        return None


def _all_differences(expected: _Results, found: _Results, apart: Callable[..., str]) -> str:
    if len(expected.leaves()) != len(found.leaves()):
        return f"{len(found.leaves())} results and gradients instead of {len(expected.leaves())}"
    pairs = zip(expected.leaves(), found.leaves(), strict=True)
    return next((f"{where}: {text}" for (where, a), (_, b) in pairs if (text := apart(a, b))), "")
