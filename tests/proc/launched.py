"""What the tests of launchers run on rank 0: a cluster of all ranks, used without torch_xla."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

from ptpathways import core, launch, native


def main(mode: str) -> None:
    """Uses every device, says what it found as one line, and ends as ``mode`` says."""
    options = core.Options.from_environment(hosts=9)
    assert launch.serves(options.address), "the controller is this process's own"
    with native.Session.connect("", "launched", 20.0, token=options.token) as session:
        array = np.arange(200_000, dtype=np.float32)
        value = session.put(array, 0)
        for device in range(1, session.device_count):
            value = value.copy_to(device)
        assert (value.result(30.0) == array).all()
        names = [f"{host['name']}@{host['island']}x{len(host['devices'])}" for host in session.hosts()]
        machines = len({host["machine"] for host in session.hosts()})
        pids = [str(host["pid"]) for host in session.hosts()]
        print("FOUND", *names, "machines", machines, "pids", *pids, flush=True)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if mode == "raise" or (mode == "raise-once" and attempt == "0"):
            raise ValueError("the script failed")
        if mode.startswith("exit"):
            sys.exit(int(mode.removeprefix("exit")))
        if mode == "kill-worker":
            os.kill(int(pids[-1]), signal.SIGKILL)
            value.copy_to(0).result(30.0)
        if mode == "wait":
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
