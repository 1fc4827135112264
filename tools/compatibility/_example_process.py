"""Process that runs one program of pytorch/examples, as it is or edited, and notes the loss of each backward pass.

Arguments: ``plain``, ``shaken`` (plain, with weights changed by about one rounding) or ``cluster``, the repository's
folder, the example's key, steps. Prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tools.compatibility import _standins
from tools.compatibility._edits import apply
from tools.compatibility._examples import EXAMPLES, Example
from tools.compatibility._training import Counters, Trained


class Enough(BaseException):
    """Ends the program from inside: it has done its steps. No program catches it."""


class Recorder:
    """Notes what a program does at each ``backward()``, and ends the program after the last one that is asked for."""

    def __init__(self, passes: int) -> None:
        self._passes = passes
        self._backward: Any = torch.Tensor.backward
        self._losses: list[Tensor] = []
        self._times: list[float] = []
        self._counters: Counters | None = None
        self._inside = False
        self.trained = Trained()
        torch.Tensor.backward = self._recorded()  # type: ignore[method-assign]

    def _recorded(self) -> Any:
        def backward(loss: Tensor, *arguments: Any, **options: Any) -> None:
            if self._inside:  # torch calls it again below a mode, as torch.set_default_device makes one
                self._backward(loss, *arguments, **options)
                return
            self._times.append(time.perf_counter())
            if loss.device.type == "xla" and self._counters is None:
                self._counters = Counters()
            if self._counters is not None:
                self.trained.compiled.append(self._counters.compiled())
            self._losses.append(loss.detach())
            self._inside = True
            try:
                self._backward(loss, *arguments, **options)
            finally:
                self._inside = False
            if len(self._losses) == self._passes:
                raise Enough

        return backward

    def finish(self) -> Trained:
        """Fetches the losses."""
        self.trained.losses = [float(loss) for loss in self._losses]
        times = self._times
        self.trained.milliseconds = [(after - before) * 1e3 for before, after in itertools.pairwise(times)]
        if self._counters is not None:
            self.trained.fallbacks = self._counters.fallbacks()
        return self.trained


def run(example: Example, root: Path, steps: int, mode: str) -> dict[str, Any]:
    """Runs the program in this process, in a folder of its own.

    Raises:
        EditError: the program is another version than the edits are for.
        OSError: it is not there.
    """
    script = root / example.script
    text, lines = apply(script.read_text(encoding="utf8"), example.edits if mode == "cluster" else ())
    code = compile(text, str(script), "exec")
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    result: dict[str, Any] = {"key": example.key, "lines": lines, "ended": "by itself"}
    with tempfile.TemporaryDirectory(prefix="ptpathways-example-") as folder, contextlib.chdir(folder):
        _standins.install(example.data, Path(folder))
        _standins.same_randomness()
        if mode == "shaken":
            _standins.shake()
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script), *example.arguments]
        recorder = Recorder(steps * example.per_step)
        program = types.ModuleType("__main__")  # in the table of modules, where pickle looks its classes up
        program.__file__ = str(script)
        sys.modules["__main__"] = program
        try:
            exec(code, program.__dict__)
        except Enough:
            result["ended"] = "after its steps"
        except SystemExit as end:
            result["ended"] = f"by exit({end.code})"
        except Exception:
            result["error"] = traceback.format_exc()
        trained = recorder.finish()
    return result | {
        "losses": trained.losses,
        "compiled": trained.compiled,
        "milliseconds": trained.milliseconds,
        "fallbacks": trained.fallbacks,
    }


def main() -> None:
    mode, root, key, steps = sys.argv[1:]
    (example,) = (example for example in EXAMPLES if example.key == key)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the program prints is not an answer
    answers.write(json.dumps(run(example, Path(root).resolve(), int(steps), mode)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
