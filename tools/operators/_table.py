"""docs/operators.md, from what the processes found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tools.operators._database import DTYPES, TOLERANCES, Case
from tools.operators._distributions import COUNT, PREFIX

Row = Mapping[str, Any]

BAD = ("wrong", "crash", "hang", "unclear")
_WORST_FIRST = ("crash", "hang", "wrong", "unclear", "refused", "client", "random", "right", "not on the CPU")

TEXT = """# Operators

Every operator of PyTorch's own database (`torch.testing._internal.common_methods_invocations.op_db`) on a cluster's
device and on the CPU: results, gradients, shapes and types, and of the first samples the variants in place and with
`out=`. A command writes this file, and exits with 1 when anything is wrong:

```bash
make operators                                                  # all samples and types: hours on two cores
python -m tools.operators --only nn.functional.elu --types float32 --output /dev/stdout
```

{date}; {versions}; {machine}; one CPU worker; {command}. {samples} samples of {operators} operators.

- **right**: the CPU's values, within the tolerance.
- **client**: right, but the client computes at least a part of it, because PyTorch/XLA has no form of it, or a
  wrong one. The line waits for its arguments, with a `ClientFallbackWarning`. Avoid it in hot loops.
- **random**: shapes and types are the CPU's, and the same seed gives the same values; see Distributions.
- **refused**: the device raises an error that gives the reason. The CPU does not.
- **unclear**: the device raises an error without a clear reason.
- **wrong**, **crash**, **hang**: as named. A crash ends the user's process.

| samples | {header} |
| --- | {rule} |
{totals}

| operators by their worst sample | {header} |
| --- | {rule} |
{worst}

## How results are compared

Relative and absolute tolerance: {tolerances}; integers and booleans exactly; or what the database states for an
operator where that is more. A value outside the tolerance is also right if its distance from the answer in float64 or
complex128 is at most twice that of the CPU's own value. Gradients are of a weighted sum of all results, so that none
is zero by symmetry. Values of `empty` and its relatives are not compared.

Where a result is not unique, the common properties of all right results are compared. For `eigh`, `svd` and `qr`
these are the product of the factors and the orthonormality of columns (signs and phases may differ, those of
gradients do not matter). For `sort`, `argsort`, `topk`, `kthvalue`, `median` and `mode` they are the elements to
which the indices point.

The database gives all arguments of a sample one type. `python -m tests.fuzz.promotions` compares each pair of types,
tensors without dimensions, and Python numbers. The only differences are refusals: complex numbers of 16 bits, powers of
booleans and complex powers of integers.

Calls that torch refuses for their types are refused, too. `python -m tests.fuzz.refusals` calls each operator with
unsupported types, tensors of two types, small indices, and results that `out=` or a tensor in place cannot hold. Two
exceptions are computed as intended: `int16` and `uint8` as indices of operators such as `take`, and `out=` of a
wider type than the result, which some of torch's own kernels refuse. Types for which the CPU lacks a kernel are
computed.

Calls that torch refuses for shapes and numbers are refused when the operator is called
(`python -m tests.fuzz.error_inputs` calls the database's own list). These are not checked: values on devices
(probabilities; a read at an index out of range is NaN), `out=` in the memory of an argument, and more than 64
dimensions. Masks that are not booleans in `masked_fill` and `where`, and an `output_padding` that is too large, are
accepted.

The database does not cover these differences:

- Where a window of `max_pool` has nan, or only minus infinity, its index differs from torch's (the value is right;
  `max_unpool` is not).
- XLA's CPU compiler treats numbers below 1.2e-38 as zero.
- `sort`, `argsort`, `topk` and `kthvalue` have equal elements, such as 0.0 and -0.0, in another order unless
  `stable=True` asks for theirs (torch leaves it open).
- `lerp` is `a + w * (b - a)` for every `w`, so next to infinities it, `quantile` and `nanquantile` give infinity for
  NaN or the reverse.
- `relu`, `elu`, `celu`, `sign` and `maximum` may give the other zero for -0.0; `abs` of a complex infinity with NaN is
  NaN; on their branch cuts `asin`, `acos` and `asinh` take no notice of a zero's sign.
- `torch.where(mask, halves, number)` refuses a number beyond float16's range, of which the CPU makes infinity.
- Integers divided by a tensor's element that is zero give -1, where the CPU raises; the number zero is refused.
- XLA treats a boolean times a float as a choice: false times infinity, or times NaN, is zero.
- A float that an integer type does not hold becomes the nearest integer that it does, and NaN zero, where C++ leaves
  open what a CPU makes of it; also where `masked_fill` takes a number from the device, which the CPU refuses.
- A view whose dimensions were changed in place (`part.t_()`) cannot be written where gradients are computed of it:
  torch refuses ("is a view and is being modified inplace"). Take the view that `part.t()` makes.

None of this was run on other platforms than the CPU.

## Refused, and what to do

{refused}

## On the client

Types are omitted where all types of the operator behave alike.

{client}

## Distributions

{count} numbers of each are compared with the CPU's: the Kolmogorov-Smirnov distance, impossible values, equal numbers
for equal seeds and different ones for different seeds, and the absence of correlation between neighbors and between
two calls.

{distributions}

## Not right

{bad}
"""


def worst_of(row: Row) -> str:
    """The verdict that a case is known by."""
    return next((kind for kind in _WORST_FIRST if row["counts"].get(kind)), "not on the CPU")


def document(rows: Mapping[Case, Row], about: Mapping[str, str]) -> str:
    """The text; ``about`` has date, versions, machine and command."""
    database = {case: row for case, row in rows.items() if not case.operator.startswith(PREFIX)}
    draws = {case: row for case, row in rows.items() if case.operator.startswith(PREFIX)}
    shown = [kind for kind in _WORST_FIRST[::-1] if kind != "not on the CPU"]
    return TEXT.format(
        **about,
        samples=f"{sum(sum(row['counts'].values()) for row in database.values()):,}",
        operators=len({case.operator for case in database}),
        header=" | ".join(shown),
        rule=" | ".join("---" for _ in shown),
        totals=_by_type(database, shown, lambda row: Counter(row["counts"])),
        worst=_by_type(database, shown, lambda row: Counter([worst_of(row)])),
        tolerances=", ".join(f"{str(dtype)[6:]} {a:g} and {b:g}" for dtype, (a, b) in TOLERANCES.items()),
        refused=_problems(rows, ("refused",)) or "Nothing.",
        client=_client(database) or "Nothing.",
        count=f"{COUNT:,}",
        distributions=_distributions(draws) or "Not in this run.",
        bad=_problems(rows, BAD) or "Nothing.",
    )


def _by_type(rows: Mapping[Case, Row], shown: list[str], count: Any) -> str:
    lines = []
    for dtype in DTYPES:
        found: Counter[str] = sum((count(row) for case, row in rows.items() if case.dtype == dtype), Counter())
        if found:
            lines.append(f"| {dtype} | " + " | ".join(f"{found[kind]:,}" for kind in shown) + " |")
    return "\n".join(lines)


def _problems(rows: Mapping[Case, Row], kinds: tuple[str, ...]) -> str:
    """The messages, each with the operators and types that it is of."""
    found: dict[str, dict[str, set[str]]] = {}
    for case, row in rows.items():
        for kind, _, variant, text in row["problems"]:
            if kind in kinds:
                name = f"`{case.operator}`" + (f" ({variant})" if variant else "")
                key = text if kind == "refused" else f"{kind}: {text}"
                found.setdefault(_short(key), {}).setdefault(name, set()).add(case.dtype)
    lines = []
    for text, names in sorted(found.items()):
        listed = ", ".join(f"{name} {_types(dtypes)}" for name, dtypes in sorted(names.items()))
        lines.append(f"- {listed}: {text}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return " ".join(text.split())[:220].replace("|", "/")


def _types(dtypes: set[str]) -> str:
    return ", ".join(dtype for dtype in DTYPES if dtype in dtypes)


def _client(rows: Mapping[Case, Row]) -> str:
    """The operators, with the operations of torch's table that the client computed for them."""
    operators: dict[str, dict[str, set[str]]] = {}
    there: dict[str, set[str]] = {}
    for case, row in rows.items():
        there.setdefault(case.operator, set()).add(case.dtype)
        for operation in row["client"]:
            operators.setdefault(case.operator, {}).setdefault(operation.removeprefix("aten::"), set()).add(case.dtype)
    lines = []
    for name, operations in sorted(operators.items()):
        every = there[name]
        parts = [
            f"`{operation}`" + ("" if dtypes == every else f" ({_types(dtypes)})")
            for operation, dtypes in sorted(operations.items())
        ]
        lines.append(f"| `{name}` | {', '.join(parts)} |")
    return "\n".join(["| operator | by |", "| --- | --- |", *lines]) if lines else ""


def _distributions(rows: Mapping[Case, Row]) -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for case, row in rows.items():
        outcome = "right" if worst_of(row) == "random" else worst_of(row)
        outcome += ", on the client" if row["client"] else ""
        found.setdefault((case.operator.removeprefix(PREFIX), outcome), []).append(case.dtype)
    lines = [f"| `{name}` | {_types(set(dtypes))} | {outcome} |" for (name, outcome), dtypes in found.items()]
    return "\n".join(["| draw | types | |", "| --- | --- | --- |", *lines]) if lines else ""
