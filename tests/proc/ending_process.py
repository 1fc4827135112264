"""Stands for the process that checks operators: some of its samples end it, or never end."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path


def main() -> None:
    for operator, dtype, left_out, _ in json.loads(Path(sys.argv[1]).read_text()):
        done = 0
        for sample in range(3):
            if sample in left_out:
                continue
            print(f"sample {sample} ", flush=True)
            if operator == "ends the CPU" and sample == 1:
                os.kill(os.getpid(), signal.SIGFPE)
            print("device", flush=True)
            if operator == "ends" and sample == 1:
                os.kill(os.getpid(), signal.SIGSEGV)
            if operator == "hangs" and sample == 0:
                threading.Event().wait()
            done += 1
        row = {"counts": {"right": done}, "client": [], "problems": []}
        print(json.dumps({"operator": operator, "dtype": dtype, **row}), flush=True)


if __name__ == "__main__":
    main()
