"""What the loop computes where nothing happens: the same program, on a cluster of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
AHEAD = 50


class Reference:
    """The lines of an undisturbed loop, by step; computed when they are asked for. For any thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PTPATHWAYS_")}
        more = {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}
        more |= {"PTPATHWAYS_CACHE_DIR": str(folder.parent / "compiled"), "CHAOS_STEPS_PER_S": "1000"}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("loop.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, **more},
            cwd=ROOT,
        )
        self._lock = threading.Lock()
        self._lines: dict[int, dict[str, Any]] = {}

    def up_to(self, step: int) -> dict[int, dict[str, Any]]:
        """Its lines by step, up to this one at least.

        Raises:
            RuntimeError: the undisturbed loop failed, too.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._lock:
            if step not in self._lines:
                until = step + AHEAD
                stdin.write(json.dumps({"do": "run", "until": until}) + "\n")
                stdin.flush()
                while until not in self._lines:
                    line = json.loads(stdout.readline() or '{"error": "it ended"}')
                    if "step" not in line:
                        raise RuntimeError(f"the loop without faults failed: {line}")
                    self._lines[line["step"]] = line
            return self._lines

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait(60)
