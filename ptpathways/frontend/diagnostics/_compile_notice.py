"""Compilations that last: one line says what is compiled, for which line of the user's, and for how long so far."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from ptpathways.frontend.base._due import Due

Compile = tuple[str, Sequence[str], float]
"""What is compiled, on which hosts, and for how many seconds so far."""


class Display(Protocol):
    """Where the line is shown. Called by one thread."""

    def show(self, text: str, seconds: float) -> None:
        """Replaces what was shown. ``seconds``: what ``text`` says has lasted for so long."""

    def end(self, text: str) -> None:
        """It is done; ``text`` says so."""


class Notice:
    """What there is to say of compilations. Pure but for its display: the caller has the clock."""

    def __init__(self, first_s: float, display: Display) -> None:
        self._first_s = first_s
        self._display = display
        self._shown: tuple[str, float] | None = None

    def look(self, compiles: Sequence[Compile]) -> None:
        """Tells of those that are under way, the oldest first, if one has lasted."""
        if compiles and compiles[0][2] >= self._first_s:
            what, hosts, seconds = compiles[0]
            if self._shown is not None and self._shown[0] != what:
                self._end()
            more = f"; {len(compiles) - 1} more after it" if len(compiles) > 1 else ""
            text = f"compiling {what} on {', '.join(hosts)}: {seconds:.0f} s so far{more}"
            self._shown = what, seconds
            self._display.show(text, seconds)
        elif self._shown is not None:
            self._end()

    def close(self) -> None:
        """The cluster is left."""
        if self._shown is not None:
            self._end()

    def _end(self) -> None:
        assert self._shown is not None
        what, seconds = self._shown
        self._shown = None
        self._display.end(f"compiled {what}: about {seconds:.0f} s")


class Lines:
    """A line at the beginning, again when it has lasted three times as long, and at the end. For files and pipes."""

    def __init__(self, first_s: float, file: TextIO | None = None) -> None:
        self._due = Due(first_s)
        self._file = file

    def show(self, text: str, seconds: float) -> None:
        if self._due.pick([(0, "", seconds)], seconds):
            self._print(text)

    def end(self, text: str) -> None:
        self._due.pick([], 0.0)
        self._print(text)

    def _print(self, text: str) -> None:
        print(f"ptpathways: {text}", file=self._file or sys.stderr, flush=True)


class Terminal:
    """rich's live line. While it is there, what the program prints appears above it."""

    def __init__(self, console: Any, otherwise: Display) -> None:
        self._console = console
        self._otherwise = otherwise
        self._live: Any = None

    def show(self, text: str, seconds: float) -> None:
        from rich.file_proxy import FileProxy
        from rich.live import Live
        from rich.text import Text

        if self._live is None and isinstance(sys.stderr, FileProxy):  # a bar of the program's own is there
            self._otherwise.show(text, seconds)
            return
        line = Text(f"ptpathways: {text}", no_wrap=True, overflow="ellipsis", style="dim")
        if self._live is None:
            self._live = Live(line, console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(line, refresh=True)

    def end(self, text: str) -> None:
        if self._live is None:
            self._otherwise.end(text)
            return
        self._live.stop()
        self._live = None


class Cell:
    """One output of a notebook's cell, renewed."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, seconds: float) -> None:
        from IPython import display

        data = {"text/plain": text}
        if self._handle is None:
            make: Any = display.display
            self._handle = make(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": text}, raw=True)
            self._handle = None


def choose(first_s: float) -> Display:
    """The display that suits where this process runs."""
    if in_notebook():
        return Cell()
    from rich.console import Console

    console = Console(stderr=True)
    return Terminal(console, Lines(first_s)) if console.is_terminal else Lines(first_s)


def in_notebook() -> bool:
    """Whether IPython runs this process as the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
