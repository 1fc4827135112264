"""Where progress is shown: a bar on a terminal, a line that is renewed in a notebook, lines of text elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Protocol, TextIO

from ptpathways import frontend


class Display(Protocol):
    """Shows ``done`` of ``total`` batches (None: nobody knows) and a text. Called by any one thread at a time."""

    interval_s: float
    """How often it wants to be told."""

    def show(self, done: int, total: int | None, text: str) -> None:
        """Replaces what was shown."""

    def close(self) -> None:
        """Leaves what was shown last."""


class Bar:
    """rich's bar."""

    interval_s = 0.5

    def __init__(self, description: str, console: Any) -> None:
        from rich import progress

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[said]}"),
            console=console,
        )
        self._task = self._progress.add_task(description, total=None, said="")
        self._progress.start()

    def show(self, done: int, total: int | None, text: str) -> None:
        self._progress.update(self._task, completed=done, total=total, said=text)

    def close(self) -> None:
        self._progress.stop()


class Notebook:
    """One output of a cell, renewed; needs no widgets."""

    interval_s = 1.0

    def __init__(self, description: str) -> None:
        from IPython import display

        show: Any = display.display
        self._description = description
        self._handle = show({"text/plain": description or "..."}, raw=True, display_id=True)

    def show(self, done: int, total: int | None, text: str) -> None:
        self._handle.update({"text/plain": _line(self._description, done, total, text)}, raw=True)

    def close(self) -> None:
        """The output stays."""


class Lines:
    """A line every ``interval_s`` seconds, for files and pipes."""

    def __init__(self, description: str, interval_s: float, file: TextIO | None = None) -> None:
        self._description = description
        self._file = file
        self._last = ""
        self.interval_s = interval_s

    def show(self, done: int, total: int | None, text: str) -> None:
        self._last = _line(self._description, done, total, text)
        print(self._last, file=self._file or sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is open."""


def choose(description: str, lines_every_s: float) -> Display:
    """The display that suits where this process runs."""
    if frontend.in_notebook():
        return Notebook(description)
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(description, console) if console.is_terminal else Lines(description, lines_every_s)


def _line(description: str, done: int, total: int | None, text: str) -> str:
    count = f"{done}/{total}" if total is not None else f"{done}"
    return " ".join(part for part in (f"{description}:" if description else "", count, text) if part)
