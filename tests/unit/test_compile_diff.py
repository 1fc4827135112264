"""Why a computation was compiled again, and which lines wait: the pure parts."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ptpathways.frontend.diagnostics._compile_diff import Instruction, Module, cause_of, most_alike
from ptpathways.frontend.loops._read_warnings import Lines

MATMUL: Instruction = ("dot", "f32[8,4]", "#1", "")


def module(*instructions: Instruction, parameters: str = "f32[8,6] f32[6,4]", results: int = 1) -> Module:
    own = tuple(("parameter", type, str(at), "") for at, type in enumerate(parameters.split()))
    return Module("step", tuple(parameters.split()), ("f32[8,4]",) * results, (*own, *instructions), "a.py:1")


def constant(value: str, type: str = "f32[]") -> Instruction:
    return ("constant", type, value, "")


BASE = module(MATMUL, constant("0.5"))


@pytest.mark.parametrize(
    ("now", "kind", "text"),
    [
        (module(MATMUL, parameters="f32[8,7] f32[6,4]"), "shape", "`x` was f32[8,6] and is f32[8,7] (dimension 1: 6"),
        (module(MATMUL, parameters="bf16[8,6] f32[6,4]"), "dtype", "was f32[8,6] and is bf16[8,6]"),
        (module(MATMUL, parameters="f32[8] f32[6,4]"), "shape", "was f32[8,6] and is f32[8]"),
        (module(MATMUL, constant("0.25")), "number", "was 0.5 and is 0.25"),
        (module(MATMUL, constant("#99", "f32[900]")), "shape", "was f32[] and is f32[900]"),
        (module(("dot", "f32[8,4]", "#2", ""), constant("0.5")), "structure", "`dot` of f32[8,4] has other options"),
        (module(("dot", "bf16[8,4]", "#1", ""), constant("0.5")), "dtype", "was f32[8,4] and is bf16[8,4]"),
        (module(MATMUL, constant("0.5"), results=3), "kept", "leaves 3 tensors and left 1: 2 more"),
        (module(MATMUL, MATMUL, MATMUL, constant("0.5")), "structure", "has 6 operations"),
    ],
)  # fmt: skip
def test_the_cause_is_named(now: Module, kind: str, text: str) -> None:
    cause = cause_of(now, BASE, lambda type: "`x`")
    assert cause.kind == kind and text in cause.text
    assert cause.hint


def test_a_number_that_becomes_one_is_told_from_one_that_was() -> None:
    lazy = module(MATMUL, parameters="f32[8,6] f32[6,4] f32[]")
    baked = module(MATMUL, constant("1"))
    assert "is now exactly 1" in cause_of(baked, lazy).text
    assert "is now an input of the computation and was before exactly 1" in cause_of(lazy, baked).text


def test_slices_and_numbers_are_found_whatever_the_order() -> None:
    many = [MATMUL] * 30
    old = module(*many, ("slice", "f32[8,2]", "0:8, 0:2", ""), constant("1"))
    assert cause_of(module(("slice", "f32[8,2]", "0:8, 2:4", ""), *many, constant("1")), old).text == (
        "a slice took [0:8, 0:2] and takes [0:8, 2:4]"
    )
    moved = cause_of(module(constant("-1"), *many, ("slice", "f32[8,2]", "0:8, 0:2", "")), old)
    assert "was 1 and is -1" in moved.text and "0, 1 and -1" in moved.hint


def test_the_same_operations_connected_otherwise_is_said() -> None:
    assert "connected in another way" in cause_of(BASE, BASE).text


def test_a_line_that_the_module_knows_is_given() -> None:
    now = module(MATMUL, ("constant", "f32[]", "0.75", "model.py:7"))
    assert cause_of(now, BASE).line == "model.py:7"


def test_the_most_alike_is_of_the_same_line_and_operations() -> None:
    other = Module("step", BASE.parameters, BASE.results, BASE.instructions, "b.py:9")
    assert most_alike(BASE, [BASE, other]) is BASE
    assert most_alike(BASE, [other, module(("sine", "f32[1]", "", ""), parameters="f32[1]")]) is other
    assert most_alike(BASE, []) is None


def test_lines_are_told_of_once_when_they_wait_often_and_long() -> None:
    lines = Lines()
    told = [lines.note(("a.py", 1), step, step + 0.1, cuts=step) for step in range(20)]
    assert [at for at, notice in enumerate(told) if notice] == [7]
    notice = told[7]
    assert notice is not None and notice.count == 5
    assert notice.mean_s == pytest.approx(0.1) and notice.share == pytest.approx(0.1)
    assert not any(lines.note(("a.py", 2), step, step + 0.001, cuts=step) for step in range(200)), "it costs little"
    assert not any(lines.note(("a.py", 3), step * 10, step * 10 + 0.3, cuts=step) for step in range(200))
    assert not any(lines.note(("a.py", 4), step, step + 0.1, cuts=7) for step in range(200)), "no step waits for it"
