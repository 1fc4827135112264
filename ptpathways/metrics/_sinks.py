"""Where metrics go. A sink is called by one thread of its own, in order; it may block."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from ptpathways import core


@runtime_checkable
class Sink(Protocol):
    """Takes metrics. What it raises is reported once and does not stop the training."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Averages of a window whose last step is ``step``."""

    def flush(self) -> None:
        """Makes what was written last, as far as the sink can."""

    def close(self) -> None:
        """There will be no more."""


class Callback:
    """Calls ``function(step, values)`` with a number and a dictionary of numbers, on the thread of the metrics.

    Raises:
        TypeError: it is no function.
    """

    def __init__(self, function: Callable[[int, dict[str, float]], Any]) -> None:
        if not callable(function):
            raise TypeError(f"pw.metrics.Callback takes a function (step, values), got {function!r}")
        self._function = function

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Calls the function."""
        self._function(step, dict(values))

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing is open."""


class JsonLines:
    """Appends a line ``{"step": 10, "time": 1e9, "loss": 0.5}`` to a file; what is no finite number is text.

    Raises:
        OSError: the file cannot be opened for writing.
        TypeError, ValueError: ``path`` is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = core.path_text(path)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = open(path, "a", buffering=1)  # noqa: SIM115 - closed by close()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a line."""
        shown = {name: value if math.isfinite(value) else str(value) for name, value in values.items()}
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 3), **shown}) + "\n")

    def flush(self) -> None:
        """Gives what was written to the file system."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """Scalars for TensorBoard in ``log_dir``, by torch's own writer.

    Args:
        options: further arguments of ``torch.utils.tensorboard.SummaryWriter``.

    Raises:
        ImportError: the package ``tensorboard`` is not installed.
        TypeError, ValueError: ``log_dir`` is no path.
    """

    def __init__(self, log_dir: str | os.PathLike[str], **options: Any) -> None:
        log_dir = core.path_text(log_dir, "log_dir")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                f"pw.metrics.TensorBoard needs the package tensorboard, and importing it failed: {error}; "
                "pip install tensorboard, or use pw.metrics.JsonLines"
            ) from error
        self._writer: Any = SummaryWriter(log_dir, **options)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a scalar per name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Writes the file."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()
