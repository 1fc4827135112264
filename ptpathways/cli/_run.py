"""``ptpathways run``: a cluster around a script."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ptpathways import core, launch
from ptpathways.cli import _plain


def main(arguments: argparse.Namespace) -> int:
    """Runs the script; its exit code, or 128 plus the number of the signal that ended it.

    Raises:
        InvalidOption: there is no such script, or an option cannot be used.
        ConnectionFailed, DeadlineExceeded, PluginNotFound: the cluster did not start.
    """
    if not os.path.isfile(arguments.script):
        raise core.InvalidOption(f"the script must be a file, got {arguments.script!r}, which is none")
    options = core.Options(
        hosts=arguments.hosts,
        devices_per_host=arguments.devices_per_host,
        platform=arguments.platform,
        plugin=arguments.plugin,
        memory_per_device=arguments.memory_per_device,
        log_level=arguments.log_level,
        launcher=arguments.launcher,
        startup_timeout_s=arguments.timeout,
    )
    with launch.serve(options) as cluster:
        environment = {**os.environ, **cluster.environment}
        plain = ["-m", "ptpathways.cli._plain"] if _plain.is_plain(arguments.script, arguments.arguments) else []
        command = [sys.executable, *plain, arguments.script, *arguments.arguments]
        process = subprocess.Popen(command, env=environment)
        with _signals_go_to(process):
            code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_go_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The script decides what Ctrl-C means, which the terminal sends to it, too; SIGTERM is passed on."""

    def pass_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
