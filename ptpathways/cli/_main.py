"""The way to each subcommand."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from ptpathways import core, native
from ptpathways.cli import _kubernetes
from ptpathways.cli._parser import build_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.

    What the user can mend is one line on standard error. A traceback is shown for what only we can mend.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    command = "ptpathways"
    try:
        if given[:1] == ["bench"]:  # it has a parser of its own
            from ptpathways import bench

            command = "ptpathways bench"
            code = bench.main(given[1:])
        else:
            arguments = build_parser().parse_args(given)
            command = f"ptpathways {arguments.command}"
            with native.translated("connecting"):
                code = _run_command(arguments)
        sys.stdout.flush()
        return code
    except core.InvalidOption as error:
        return _say(command, str(error), 2)
    except (core.PathwaysError, native.NativeUnavailable) as error:
        return _say(command, str(error), 1)
    except KeyboardInterrupt:
        return _say(command, "interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:
        # What is still in Python's buffer would be written at the exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _say(command, "standard output must stay open until all is written, got a closed pipe", 1)
    except MemoryError as error:
        return _say(command, f"memory of this process must do for what was asked, got: {error or 'none left'}", 1)
    except OSError as error:
        place = repr(error.filename) if error.filename else "a file or socket"
        return _say(command, f"{place} must be usable, got: {error.strerror or error}", 1)


def _say(command: str, text: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed, too
        print(f"{command}: {text}", file=sys.stderr, flush=True)
    return code


def _run_command(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "run":
            from ptpathways.cli import _run

            return _run.main(arguments)
        case "worker":
            from ptpathways.cli import _worker

            return _worker.main(arguments)
        case "controller":
            from ptpathways.cli import _controller

            return _controller.main(arguments)
        case "replay":
            from ptpathways.cli import _replay

            return _replay.main(arguments)
        case "compile":
            from ptpathways.cli import _compile

            return _compile.main(arguments)
        case "status":
            from ptpathways.cli import _status

            return _status.main(arguments)
        case "token":
            from ptpathways.cli import _token

            return _token.main(arguments)
        case "kubernetes":
            return _kubernetes.main(arguments)
        case "doctor":
            from ptpathways.cli import _doctor

            return _doctor.main(as_json=arguments.json)
        case _:
            print(core.__version__)
            return 0
