"""docs/security.md: every line that promises something names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _rows(title: str) -> list[list[str]]:
    """The cells of the first table below a heading of docs/security.md, without its head."""
    text = (ROOT / "docs" / "security.md").read_text().partition(f"{title}\n")[2]
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None, f"there is no table below {title}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def test_every_promise_names_tests_that_exist() -> None:
    promises, tests = _rows("## What is promised"), _rows("### The tests")
    assert len(promises) == len(tests) > 10
    for (surface, *_), (named, where) in zip(promises, tests, strict=True):
        assert surface.startswith(named.removesuffix("...")), f"the line of tests for {surface!r} is that of {named!r}"
        for group in where.split("; "):
            file, *names = re.findall(r"`([^`]+)`", group)
            content = (ROOT / file).read_text()
            assert names, f"{surface}: no test of {file} is named"
            for name in names:
                written = f"def {name}(" if file.endswith(".py") else f"TEST({name})"
                assert written in content, f"{surface}: {file} has no test {name}"
