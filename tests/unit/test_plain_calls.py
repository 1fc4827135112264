"""Which calls of a wrapped kernel stay out of Python: those that its wrapper would hand on as they are, no others."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from ptpathways import native
from ptpathways.frontend import kernels
from ptpathways.frontend.kernels.calls import _checks, _refusals, _texts
from ptpathways.frontend.xla import _plain, _xla
from ptpathways.frontend.xla._plain import Plain, hands_on

needs_torch_kernels = pytest.mark.skipif(native.find_torch_kernels() is None, reason="built without torch's headers")


WRAPPED = ("WRAPPED", "WRAPPED_ABOVE_AUTOGRAD", "WRAPPED_FUNCTIONALIZATION")


def _tensors() -> Iterator[Any]:
    for dtype, shape in itertools.product(
        (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64),
        ((2, 3), (3,), (), (0, 3), (1, 2, 3)),
    ):
        yield torch.zeros(shape, dtype=dtype)


def _means(plain: Plain, arguments: tuple[Any, ...]) -> bool:
    """What ``Plain`` says, once more."""
    if int(plain) == Plain.UNTIL_REFUSED:
        return True
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    whole = [item for item in arguments if isinstance(item, int) and not isinstance(item, bool)]
    numbers = whole + [item for item in arguments if isinstance(item, float | complex)]
    of_tensors: dict[Plain, Callable[[Any], bool]] = {
        Plain.FLOATING: lambda tensor: tensor.dtype.is_floating_point,
        Plain.REAL: lambda tensor: not tensor.dtype.is_complex,
        Plain.WIDE: lambda tensor: tensor.dtype not in (torch.float16, torch.bfloat16),
        Plain.NO_DOUBLE: lambda tensor: tensor.dtype != torch.float64,
        Plain.WITH_DIMENSIONS: lambda tensor: tensor.dim() > 0,
        Plain.NONEMPTY: lambda tensor: tensor.numel() > 0,
    }
    held = [all(map(check, tensors)) for flag, check in of_tensors.items() if flag in plain]
    if Plain.DIMENSIONS_NAMED in plain:
        held.append(len(arguments) > 1 and isinstance(arguments[1], list) and bool(arguments[1]))
    if Plain.UNIT_FACTORS in plain:
        held.append(all(number == 1 for number in numbers))
    if Plain.NONNEGATIVE in plain:
        held.append(all(number >= 0 for number in whole))
    if Plain.SAME_TYPES in plain:
        first = 1 if Plain.MASKED in plain else 0
        held.append(len({item.dtype for item in arguments[first:] if isinstance(item, torch.Tensor)}) <= 1)
    if Plain.SMALL_NUMBERS in plain:
        held.append(all(tensor.dtype != torch.bool for tensor in tensors))
        held.append(all(not isinstance(number, complex) and number in range(128) for number in numbers))
        floats = len(arguments) == 2 and isinstance(arguments[1], float)
        held.append(not floats or arguments[0].dtype.is_floating_point)
    if Plain.FITS in plain:
        kinds = [_kind(item) for item in (*tensors, *numbers)]
        held.append(max(kinds) == kinds[0])
    if Plain.KEEPS_SHAPE in plain:
        held.append(all(_fits(tuple(tensor.shape), tuple(arguments[0].shape)) for tensor in tensors[1:]))
    if Plain.NO_STATISTICS in plain:
        held.append(arguments[3] is None and arguments[4] is None)
    if Plain.NO_NUMBER in plain:
        held.append(arguments[0].dim() > 0)
    if Plain.AT_MOST_MATRICES in plain:
        held.append(arguments[0].dim() <= 2)
    if Plain.MATRICES in plain:
        held.append(isinstance(arguments[0], torch.Tensor) and arguments[0].dim() >= 2)
    return all(held) and not any(isinstance(number, complex) for number in numbers)


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether a tensor of ``shape`` can be broadcast to another one."""
    try:
        return tuple(torch.broadcast_shapes(shape, into)) == into
    except RuntimeError:
        return False


def _kind(item: Any) -> int:
    """Of booleans, integers, floats and complex numbers."""
    dtype = item.dtype if isinstance(item, torch.Tensor) else torch.result_type(torch.tensor(True), item)
    if dtype.is_complex or dtype.is_floating_point:
        return 3 if dtype.is_complex else 2
    return int(dtype != torch.bool)


def _wrappers() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for loaded in map(importlib.import_module, kernels.find_modules()):
        found |= {name: wrapper for table in WRAPPED for name, wrapper in getattr(loaded, table, {}).items()}
    said = {name: _plain.of_wrapper(wrapper) for name, wrapper in found.items()}
    handing_on = {name for name, plain in said.items() if plain is not None and Plain.NORMALIZATION not in plain}
    return {name: found[name] for name in handing_on}


def test_each_operator_has_one_kernel_of_a_dispatch_key() -> None:
    loaded = list(map(importlib.import_module, kernels.find_modules()))
    keys = kernels._KEYS.items()
    names = [(key, name) for module in loaded for table, key in keys for name in getattr(module, table, {})]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", sorted(_refusals.CHECKED))
def test_nothing_that_is_plain_is_refused(name: str) -> None:
    refusal = _refusals.CHECKED[name]
    tensors = list(_tensors())
    for given in itertools.product([item for item in tensors if item.dim() == 2], [*tensors, 1, 2.5, 1j], [1, -1]):
        if refusal.plain is not None and _means(refusal.plain, given):
            refusal.check(name, given, {})


def test_what_is_refused_reaches_no_kernel() -> None:
    reached: list[str] = []

    @hands_on(Plain.WIDE)
    def wrapper(kernel: Callable[..., Any], x: Any, y: Any) -> Any:
        reached.append("wrapper")

    refusal = _refusals.Refusal(booleans=True, mixed=True)
    checked = _checks.before("mm", refusal, wrapper)
    assert _plain.of_wrapper(checked) == Plain.WIDE | Plain.SMALL_NUMBERS | Plain.SAME_TYPES
    floats = torch.ones(2, 2)
    for other, text in (
        (floats.double(), "same dtype, got torch.float32 and torch.float64"),
        (floats > 0, "torch.bool"),
    ):
        with pytest.raises(RuntimeError, match=text):
            checked(None, floats, other)
    assert not reached
    checked(None, floats, floats)
    assert reached == ["wrapper"]


def _choices(kind: str, name: str) -> list[Any]:
    """Values of a type of torch's schemas, of which some are plain and some are not."""
    if kind == "Tensor":
        return list(_tensors())
    if kind == "Optional[Tensor]":
        return [None, torch.ones(3), torch.ones((), dtype=torch.bfloat16)]
    if kind.startswith("Optional["):
        return [None, *_choices(kind[len("Optional[") : -1], name)[:3]]
    by_kind: dict[str, list[Any]] = {
        "int": [0, -1] if name == "dim" else [1, 0, -1],
        "SymInt": [1, 0, -2],
        "float": [1.0, 0.5],
        "number": [1, 2.5, 3.0, 1j],
        "bool": [False, True],
        "str": ["sum"],
        "Device": [torch.device("cpu")],
        "List[int]": [[0], [], [0, 1]],
        "List[SymInt]": [[1], []],
        "List[bool]": [[True, True, True]],
    }
    return by_kind[kind]


@pytest.mark.parametrize("name", sorted(_wrappers()))
def test_a_wrapper_hands_on_what_it_says(name: str) -> None:
    wrapper = _wrappers()[name]
    plain = _plain.of_wrapper(wrapper)
    assert plain is not None
    operator, _, overload = name.partition(".")
    schema = getattr(getattr(torch.ops.aten, operator), overload or "default")._schema
    kinds = [_choices(str(argument.type), argument.name) for argument in schema.arguments]
    # All of the first three, which are what wrappers look at, with the first of each of the others.
    rest = [choices[0] for choices in kinds[3:]]
    handed_on = 0
    for given in itertools.product(*kinds[:3]):
        arguments = (*given, *rest)
        if not _means(plain, arguments):
            continue
        made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def kernel(*words: Any, made: list[Any] = made, **named: Any) -> Any:
            made.append((words, named))
            return made

        positional = [item for item, at in zip(arguments, schema.arguments, strict=True) if not at.kwarg_only]
        named = {at.name: item for item, at in zip(arguments, schema.arguments, strict=True) if at.kwarg_only}
        assert wrapper(kernel, *positional, **named) is made, f"{name} returns something else for {arguments}"
        ((words, keywords),) = made
        for index, (item, at) in enumerate(zip(arguments, schema.arguments, strict=True)):
            is_word = not at.kwarg_only and index < len(words)
            got = words[index] if is_word else keywords.get(at.name, at.default_value)
            if at.name == "dtype" and item is None and plain & Plain.OWN_TYPE:
                item = arguments[0].dtype
            same = got is item if isinstance(item, torch.Tensor) else got == item
            assert same, f"{name} hands on {got!r} as {at.name}, got {item!r}"
        handed_on += 1
    assert handed_on > 0, "no call was plain"


OF_ONE_OPERATION = Plain.NORMALIZATION | Plain.NO_STATISTICS | Plain.UNTIL_REFUSED
SEVERAL = Plain.WIDE | Plain.REAL | Plain.WITH_DIMENSIONS | Plain.DIMENSIONS_NAMED


@needs_torch_kernels
@pytest.mark.parametrize("plain", [*(flag for flag in Plain if flag not in OF_ONE_OPERATION), SEVERAL])
def test_plain_calls_stay_out_of_python(plain: Plain) -> None:
    space = f"plain_{int(plain)}"
    library = torch.library.Library(space, "DEF")
    library.define("f.with_more(Tensor x, int[]? dims, Scalar a, int n, *, Tensor? y=None) -> Tensor")
    reached: list[str] = []

    def wrapped(x: Any, dims: Any, a: Any, n: Any, *, y: Any = None) -> Any:
        reached.append("wrapped")
        return torch.full((), 1.0)

    library.impl("f.with_more", wrapped, "CPU")
    remembered = _plain.Remembered(f"{space}::f.with_more", "CPU")

    def wrapper(x: Any, dims: Any, a: Any, n: Any, *, y: Any = None) -> Any:
        reached.append("wrapper")
        return torch.full((), 2.0)

    library.impl("f.with_more", wrapper, "CPU", allow_override=True)
    remembered.hand_on(plain)
    operator = getattr(torch.ops, space).f.with_more
    both = set()
    others = (None, torch.ones((), dtype=torch.bfloat16))
    for given in itertools.product(_tensors(), (None, [], [0]), (1, 2.5, 1j), (1, 0, -1), others):
        *positional, y = given
        result = operator(*positional, y=y)
        expected = "wrapped" if _means(plain, given) else "wrapper"
        assert reached.pop() == expected, given
        assert result.item() == (1.0 if expected == "wrapped" else 2.0)
        both.add(expected)
    assert both == {"wrapped", "wrapper"}
    library._destroy()


@needs_torch_kernels
@pytest.mark.parametrize("plain", [Plain.UNTIL_REFUSED, Plain.UNTIL_REFUSED | Plain.FLOATING])
def test_what_a_kernel_refuses_is_its_wrappers(plain: Plain) -> None:
    cases: dict[Plain, tuple[str, list[Any], list[Any]]] = {
        Plain.UNTIL_REFUSED: ("linalg_cross", [torch.ones(2, 3)] * 2, [torch.ones(2, 4)] * 2),
        Plain.UNTIL_REFUSED | Plain.FLOATING: (
            "_fft_r2c",
            [torch.ones(2, 4), [1], 0, True],
            [torch.ones(2, 4), [7], 0, True],
        ),
    }
    name, good, bad = cases[plain]
    operator = getattr(torch.ops.aten, name)
    expected = operator(*good)
    reached: list[tuple[Any, ...]] = []
    remembered = _plain.Remembered(f"aten::{name}", "CPU")
    library = torch.library.Library("aten", "IMPL")

    def wrapper(*given: Any, **named: Any) -> Any:
        reached.append(given)
        raise ValueError(f"refused: {tuple(given[0].shape)}")

    library.impl(name, wrapper, "CPU", allow_override=True)
    _kept.append(library)
    remembered.hand_on(plain)
    assert torch.equal(operator(*good), expected)
    assert not reached
    with pytest.raises(ValueError, match=r"refused: \(2, 4\)"):
        operator(*bad)
    (((values, *_),)) = reached
    assert values is bad[0] or torch.equal(values, bad[0])
    assert torch.equal(operator(*good), expected)


_kept: list[torch.library.Library] = []
"""What is registered stays, because what stands before it does."""


@needs_torch_kernels
def test_an_operation_that_torch_does_not_have_is_named() -> None:
    with pytest.raises(RuntimeError, match="aten::no_such_thing cannot be wrapped"):
        _plain.Remembered("aten::no_such_thing", "CPU")


def test_what_is_not_refused_by_torch_is_raised_as_it_was() -> None:
    def kernel(*given: Any) -> Any:
        raise RuntimeError("host 3 was lost")

    told = _texts.in_torchs_words("add.Tensor", _checks.as_it_is)
    assert _plain.of_wrapper(told) == Plain.UNTIL_REFUSED
    with pytest.raises(RuntimeError, match="host 3 was lost"):
        told(kernel, torch.ones(2, 3), torch.ones(3))
    with pytest.raises(
        RuntimeError, match=r"The size of tensor a \(3\) must match the size of tensor b \(2\)"
    ) as found:
        told(kernel, torch.ones(2, 3), torch.ones(2))
    assert "host 3" in str(found.value.__cause__)


def test_without_the_library_every_call_goes_through_python_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_torch_kernels", lambda: None)
    _plain.native_library.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=r"required beside the C\+\+ extension, got: there is none"):
            remembered = _plain.Remembered("aten::sqrt", "XLA")
        remembered.hand_on(Plain.REAL)
    finally:
        _plain.native_library.cache_clear()


def test_a_wrapper_keeps_what_was_said_of_it() -> None:
    @hands_on(Plain.REAL)
    def wrapper(kernel: Callable[..., Any], x: Any) -> Any:
        return kernel(x)

    assert _plain.of_wrapper(wrapper) == Plain.REAL
    assert callable(_xla.wrap_kernels)
