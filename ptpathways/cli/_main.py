"""The parser, and the way to each subcommand."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from ptpathways import core, native, platforms
from ptpathways.cli import _kubernetes


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="ptpathways", description="One ordinary PyTorch program drives many hosts' devices."
    )
    parser.add_argument("--version", action="version", version=f"ptpathways {core.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a script on a cluster of its own",
        description="Starts a cluster on this machine, or with --launcher ray on the nodes of a Ray cluster, runs the "
        "script with PTPATHWAYS_ADDRESS set, so that its ptpathways.init() joins it, and shuts all down when the "
        "script ends. The exit code is the script's.",
    )
    run.add_argument(
        "--launcher", default="local", choices=core.LAUNCHERS, help="who places the workers (default: local)"
    )
    run.add_argument("--hosts", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    run.add_argument("--devices-per-host", type=int, default=1, metavar="M", help="devices of each (default: 1)")
    _add_platform(run)
    run.add_argument("--memory-per-device", default="", metavar="SIZE", help="limit of each device, e.g. 512MiB")
    run.add_argument("--log-level", default="warning", choices=core.LOG_LEVELS, help="of controller and workers")
    run.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds to wait for the workers (default: 60)"
    )
    run.add_argument("script", help="a Python script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments")

    worker = commands.add_parser(
        "worker",
        help="serve this host's devices to a cluster",
        description="Joins a controller and serves this host's devices until the controller ends, or Ctrl-C.",
    )
    worker.add_argument(
        "--join", required=True, metavar="ADDRESS", help="the controller: HOST:PORT, tcp://... or ipc://..."
    )
    _add_platform(worker)
    worker.add_argument("--devices", type=int, default=1, metavar="N", help="devices to offer (CPU only; default: 1)")
    worker.add_argument("--name", default="", help="unique in the cluster (default: host name and process id)")
    worker.add_argument("--island", default="", help="hosts that share collectives (default: an island of its own)")
    worker.add_argument(
        "--island-hosts",
        type=int,
        default=0,
        metavar="N",
        help="the plugins of N hosts of the island make one client together, so that collectives are the plugin's own "
        "(GPUs, TPUs)",
    )
    worker.add_argument(
        "--island-timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="how long the first of them waits for the others",
    )
    worker.add_argument("--memory-limit", default="", metavar="SIZE", help="of each device, e.g. 16GiB")
    worker.add_argument(
        "--root",
        default=".",
        metavar="PATH",
        help="checkpoints are read and written below this folder only, links are not followed (default: the current "
        "one; /: anywhere)",
    )
    worker.add_argument(
        "--cache-dir",
        default="",
        metavar="PATH",
        help="folder where compiled programs are kept, or off (default: the user's cache folder)",
    )
    worker.add_argument(
        "--data-endpoint",
        default="",
        metavar="ENDPOINT",
        help="where peers connect for bulk bytes (default: the address from which the controller is reached)",
    )
    worker.add_argument("--advertise", default="", metavar="HOST", help="the host that peers connect to for them")
    _add_token(worker, insecure=True)
    worker.add_argument("--log-level", default="warning", choices=core.LOG_LEVELS)

    controller = commands.add_parser(
        "controller",
        help="run a standing controller that workers and clients join",
        description="Prints its address and serves until Ctrl-C. Everything is encrypted with keys made of a join "
        "token: the one given, or one made. Workers and programs of the same user on this machine find it themselves.",
    )
    controller.add_argument(
        "--bind", action="append", metavar="ENDPOINT", help="tcp://ADDRESS:PORT or ipc://PATH; repeatable"
    )
    controller.add_argument("--advertise", default="", metavar="HOST", help="the host that others connect to")
    _add_token(controller, insecure=True)
    controller.add_argument(
        "--policy",
        default="fifo",
        choices=core.POLICIES,
        help="whose computations go next (default: fifo); arrival: no common order, which deadlocks, for experiments",
    )
    controller.add_argument(
        "--queue-ms", type=float, default=20.0, metavar="MS", help="work to keep queued on a device (default: 20)"
    )
    controller.add_argument(
        "--lease",
        type=float,
        default=60.0,
        metavar="S",
        help="how long a worker or client that is silent stays a member; one that ends is lost at once (default: 60)",
    )
    controller.add_argument(
        "--overdue",
        type=float,
        default=30.0,
        metavar="S",
        help="tell of a host that has computations and finishes none for so long (default: 30; 0: never)",
    )
    controller.add_argument(
        "--no-standby",
        action="store_true",
        help="one process only: without it, a second one goes on when the controller's process is killed",
    )
    controller.add_argument("--log-level", default="info", choices=core.LOG_LEVELS)

    replay = commands.add_parser(
        "replay",
        help="run and time a saved program",
        description="Starts a local cluster on the platform, runs the program and prints what it gave and how long it "
        "took. Needs no torch.",
    )
    replay.add_argument("path", help="the file that save() of a program or captured step wrote")
    _add_platform(replay)
    replay.add_argument("--repeat", type=int, default=10, metavar="N", help="timed runs of each kind (default: 10)")
    replay.add_argument(
        "--chain",
        action="store_true",
        help="the results of a run are the next one's arguments: nothing is uploaded again",
    )
    replay.add_argument("--hosts", type=int, default=0, metavar="N", help="worker processes (default: 1)")
    replay.add_argument(
        "--devices-per-host", type=int, default=0, metavar="M", help="devices of each (default: as the slices need)"
    )
    replay.add_argument("--memory-per-device", default="", metavar="SIZE", help="limit of each device, e.g. 512MiB")
    replay.add_argument("--json", action="store_true", help="print one JSON object instead of tables")

    compile_ = commands.add_parser(
        "compile",
        help="compile a saved program for chips that are not here: does it fit, how long does it take",
        description="Compiles a saved program or captured step ahead of time and prints memory, FLOPs, "
        "collectives and an estimated time. Needs the plugin of the chips (libtpu, jax-cuda13-pjrt), no such chip, no "
        "driver and no torch. Exit code 0 when it compiles and fits, else 1.",
    )
    compile_.add_argument("path", help="the file that save() of a program or captured step wrote")
    compile_.add_argument(
        "--target",
        required=True,
        metavar="CHIP:SHAPE",
        help=f"GPUs as hosts x GPUs of each, h200:2x8; TPUs as a torus, v5e:4x4 or v5p:2x2x4. Chips: "
        f"{', '.join(platforms.CHIPS)}",
    )
    compile_.add_argument("--plugin", default="", metavar="PATH", help="the PJRT plugin, instead of the installed one")
    compile_.add_argument("--json", action="store_true", help="print one JSON object instead of tables")

    status = commands.add_parser(
        "status",
        help="show a cluster's hosts, islands, clients and queues",
        description="Asks a standing controller and prints tables.",
    )
    status.add_argument(
        "--address", default="", help="the controller: HOST:PORT, tcp://... or ipc://... (default: PTPATHWAYS_ADDRESS)"
    )
    _add_token(status, insecure=True)
    status.add_argument("--json", action="store_true", help="print the controller's answer, one JSON object")
    status.add_argument("--watch", type=float, metavar="SECONDS", help="ask again every so often, until Ctrl-C")

    doctor = commands.add_parser(
        "doctor",
        help="say what is installed, which plugins load, and what is wrong",
        description="Exit code 0 when a local CPU cluster works, 1 otherwise.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead of a table")

    bench = commands.add_parser("bench", help="measure; see `ptpathways bench --help`", add_help=False)
    bench.add_argument("arguments", nargs=argparse.REMAINDER)

    token = commands.add_parser(
        "token",
        help="make a join token: the secret of a cluster of several machines",
        description="Prints a new join token, or writes it to a new file that only this user may read.",
    )
    token.add_argument("--out", default="", metavar="PATH", help="the file to write instead of printing")
    token.add_argument(
        "--role",
        default="",
        choices=("worker", "client"),
        help="make one with which one can join as this only, out of the cluster's token",
    )
    token.add_argument(
        "--rotate",
        metavar="ADDRESS",
        help="change the token of the cluster whose controller this user runs here, while it runs: members go on, and "
        "nobody joins with the former one",
    )
    _add_token(token)

    _kubernetes.add_parser(commands)
    commands.add_parser("version", help="print the version")
    return parser


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


def _add_platform(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", default="cpu", help="cpu, cuda or tpu (default: cpu)")
    parser.add_argument("--plugin", default="", metavar="PATH", help="the PJRT plugin, instead of the installed one")


def _add_token(parser: argparse.ArgumentParser, *, insecure: bool = False) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--token",
        default="",
        metavar="-|TOKEN",
        help="the cluster's join token; - reads it from standard input (others can see a command line, so better that, "
        "--token-file or PTPATHWAYS_TOKEN)",
    )
    group.add_argument("--token-file", default="", metavar="PATH", help="a file of mode 600 that holds it")
    if insecure:
        group.add_argument(
            "--insecure", action="store_true", help="no token: every user of this machine can run code in the cluster"
        )
