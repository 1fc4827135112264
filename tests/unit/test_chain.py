"""Which results of a saved program are the arguments of its next run."""

from __future__ import annotations

import pytest

from ptpathways import core, ir
from ptpathways.programs._chain import chain


def _program(results: str) -> ir.Program:
    return ir.parse(
        f"""program train at "train.py:1"
slice s [x=2]
slice t [x=2]
function step on s (f32[4]{{x}}, f32[2], f32[4]{{x}}) -> (f32[4]{{x}}, f32[2], f32[4]{{x}}) hlo ca97 at "train.py:4"
%w = argument : f32[4]{{x}} on s
%x = argument : f32[2] on s
%m = argument : f32[4]{{x}} on s
%a, %b, %c = compute step(%w, %x, %m) : f32[4]{{x}} on s, f32[2] on s, f32[4]{{x}} on s at "train.py:9"
%c.t = transfer %c : f32[4]{{x}} on t
result {results}
"""
    )


@pytest.mark.parametrize(
    ("results", "donated", "expected"),
    [
        ("%a, %b, %c", (0, 2), {0: 0, 2: 2}),  # what is not given up keeps its value
        ("%c, %b, %a", (0, 2), {0: 0, 2: 2}),  # by order
        ("%b, %a", (0,), {0: 1}),
        ("%b, %c.t, %a", (0,), {0: 2}),  # another slice's is none
        ("%a, %b, %c", (), {0: 0, 1: 1, 2: 2}),
        ("%a", (), {0: 0}),
        ("%a, %b", (0, 2), {0: 0}),
    ],
)
def test_results_follow_arguments_of_their_type(
    results: str, donated: tuple[int, ...], expected: dict[int, int]
) -> None:
    assert chain(_program(results), donated) == expected


@pytest.mark.parametrize(("results", "donated"), [("%b", (2,)), ("%c.t", (0,)), ("%c.t", ())])
def test_a_program_without_such_results_is_refused(results: str, donated: tuple[int, ...]) -> None:
    with pytest.raises(core.InvalidOption, match=r"train\.py:1.*none has"):
        chain(_program(results), donated)


def test_what_is_known_of_a_program_is_not_guessed() -> None:
    program = _program("%a, %b, %c")
    assert chain(program, (0, 2), {0: 2, 2: 0, 1: 1}) == {0: 2, 1: 1, 2: 0}
    with pytest.raises(core.InvalidOption, match="must write state that it reads"):
        chain(program, (0, 2), {})
    with pytest.raises(core.InvalidOption, match="result b must have the type, layout and slice of argument w"):
        chain(program, (0, 2), {0: 1})
