"""Which compilations are shown, when, and in which words."""

from __future__ import annotations

import io
from typing import Any

from ptpathways.frontend.diagnostics._compile_notice import Lines, Notice, Terminal


class Shown:
    """A display that keeps what it was told."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.ended: list[str] = []

    def show(self, text: str, seconds: float) -> None:
        self.now.append(text)

    def end(self, text: str) -> None:
        self.ended.append(text)


F = ("function 'f' (train.py:3)", ["host0"])


def test_a_compilation_is_shown_when_it_lasts_and_until_it_ends() -> None:
    shown = Shown()
    notice = Notice(2.0, shown)
    notice.look([(*F, 1.9)])
    assert not shown.now
    notice.look([(*F, 2.4), ("function 'g' (train.py:9)", ["host0"], 0.1)])
    notice.look([(*F, 3.4)])
    assert shown.now == [
        "compiling function 'f' (train.py:3) on host0: 2 s so far; 1 more after it",
        "compiling function 'f' (train.py:3) on host0: 3 s so far",
    ]
    assert not shown.ended
    notice.look([])
    notice.look([])
    notice.close()
    assert shown.ended == ["compiled function 'f' (train.py:3): about 3 s"]


def test_the_next_one_follows_and_leaving_the_cluster_ends_it() -> None:
    shown = Shown()
    notice = Notice(2.0, shown)
    notice.look([(*F, 4.0)])
    notice.look([("function 'g' (train.py:9)", ["host0", "host1"], 3.0)])
    assert shown.ended == ["compiled function 'f' (train.py:3): about 4 s"]
    assert shown.now[-1] == "compiling function 'g' (train.py:9) on host0, host1: 3 s so far"
    notice.close()
    assert shown.ended[-1] == "compiled function 'g' (train.py:9): about 3 s"


def test_a_file_gets_a_line_whenever_it_has_lasted_three_times_as_long() -> None:
    file = io.StringIO()
    lines = Lines(2.0, file)
    for seconds in range(2, 21):
        lines.show(f"{seconds}", float(seconds))
    lines.end("done")
    lines.show("2 of the next", 2.0)
    assert file.getvalue().splitlines() == [f"ptpathways: {said}" for said in ("2", "6", "18", "done", "2 of the next")]


def test_a_terminal_has_one_line_that_is_replaced_and_goes_away() -> None:
    from rich.console import Console

    file = io.StringIO()
    console: Any = Console(file=file, force_terminal=True, width=40)
    terminal = Terminal(console, Shown())
    terminal.show("compiling a: 2 s so far", 2.0)
    terminal.show("compiling a: 3 s so far and a text that is too long for the line", 3.0)
    terminal.end("compiled a")
    written = file.getvalue()
    assert "2 s so far" in written and "3 s so far" in written and "compiled a" not in written
    assert "\x1b[2K" in written, "the line is erased before it is written again"
    assert "too long for the line" not in written, "it stays one line"


def test_beside_a_bar_of_the_programs_own_it_says_so_in_lines() -> None:
    from rich.console import Console
    from rich.live import Live

    otherwise = Shown()
    outer: Any = Console(file=io.StringIO(), force_terminal=True)
    terminal = Terminal(outer, otherwise)
    with Live("a bar", console=outer, auto_refresh=False):
        terminal.show("compiling a", 2.0)
        terminal.end("compiled a")
    assert (otherwise.now, otherwise.ended) == (["compiling a"], ["compiled a"])
