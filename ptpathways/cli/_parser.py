"""The parser of the command line, a function for each subcommand."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ptpathways import core, platforms
from ptpathways.cli import _kubernetes

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="ptpathways", description="One ordinary PyTorch program drives many hosts' devices."
    )
    parser.add_argument("--version", action="version", version=f"ptpathways {core.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (
        _run,
        _worker,
        _controller,
        _replay,
        _compile,
        _status,
        _doctor,
        _bench,
        _token,
        _kubernetes.add_parser,
    ):
        add(commands)
    commands.add_parser("version", help="print the version")
    return parser


def _run(commands: Commands) -> None:
    parser = commands.add_parser(
        "run",
        help="run a script on a cluster of its own",
        description="Starts a cluster on this machine, or with --launcher ray on the nodes of a Ray cluster, runs the "
        "script with PTPATHWAYS_ADDRESS set, so that its ptpathways.init() joins it, and shuts all down when the "
        "script ends. The exit code is the script's.",
    )
    parser.add_argument(
        "--launcher", default="local", choices=core.LAUNCHERS, help="who places the workers (default: local)"
    )
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument("--devices-per-host", type=int, default=1, metavar="M", help="devices of each (default: 1)")
    _add_platform_options(parser)
    parser.add_argument("--memory-per-device", default="", metavar="SIZE", help="limit of each device, e.g. 512MiB")
    parser.add_argument("--log-level", default="warning", choices=core.LOG_LEVELS, help="of controller and workers")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds to wait for the workers (default: 60)"
    )
    parser.add_argument("script", help="a Python script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments")


def _worker(commands: Commands) -> None:
    parser = commands.add_parser(
        "worker",
        help="serve this host's devices to a cluster",
        description="Joins a controller and serves this host's devices until the controller ends, or Ctrl-C.",
    )
    parser.add_argument(
        "--join", required=True, metavar="ADDRESS", help="the controller: HOST:PORT, tcp://... or ipc://..."
    )
    _add_platform_options(parser)
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="devices to offer (CPU only; default: 1)")
    parser.add_argument("--name", default="", help="unique in the cluster (default: host name and process id)")
    parser.add_argument("--island", default="", help="hosts that share collectives (default: an island of its own)")
    parser.add_argument(
        "--island-hosts",
        type=int,
        default=0,
        metavar="N",
        help="the plugins of N hosts of the island make one client together, so that collectives are the plugin's own "
        "(GPUs, TPUs)",
    )
    parser.add_argument(
        "--island-timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="how long the first of them waits for the others",
    )
    parser.add_argument("--memory-limit", default="", metavar="SIZE", help="of each device, e.g. 16GiB")
    parser.add_argument(
        "--root",
        default=".",
        metavar="PATH",
        help="checkpoints are read and written below this folder only, links are not followed (default: the current "
        "one; /: anywhere)",
    )
    parser.add_argument(
        "--cache-dir",
        default="",
        metavar="PATH",
        help="folder where compiled programs are kept, or off (default: the user's cache folder)",
    )
    parser.add_argument(
        "--data-endpoint",
        default="",
        metavar="ENDPOINT",
        help="where peers connect for bulk bytes (default: the address from which the controller is reached)",
    )
    parser.add_argument("--advertise", default="", metavar="HOST", help="the host that peers connect to for them")
    _add_token_options(parser, insecure=True)
    parser.add_argument("--log-level", default="warning", choices=core.LOG_LEVELS)


def _controller(commands: Commands) -> None:
    parser = commands.add_parser(
        "controller",
        help="run a standing controller that workers and clients join",
        description="Prints its address and serves until Ctrl-C. Everything is encrypted with keys made of a join "
        "token: the one given, or one made. Workers and programs of the same user on this machine find it themselves.",
    )
    parser.add_argument(
        "--bind", action="append", metavar="ENDPOINT", help="tcp://ADDRESS:PORT or ipc://PATH; repeatable"
    )
    parser.add_argument("--advertise", default="", metavar="HOST", help="the host that others connect to")
    _add_token_options(parser, insecure=True)
    parser.add_argument(
        "--policy",
        default="fifo",
        choices=core.POLICIES,
        help="whose computations go next (default: fifo); arrival: no common order, which deadlocks, for experiments",
    )
    parser.add_argument(
        "--queue-ms", type=float, default=20.0, metavar="MS", help="work to keep queued on a device (default: 20)"
    )
    parser.add_argument(
        "--lease",
        type=float,
        default=60.0,
        metavar="S",
        help="how long a worker or client that is silent stays a member; one that ends is lost at once (default: 60)",
    )
    parser.add_argument(
        "--overdue",
        type=float,
        default=30.0,
        metavar="S",
        help="tell of a host that has computations and finishes none for so long (default: 30; 0: never)",
    )
    parser.add_argument(
        "--no-standby",
        action="store_true",
        help="one process only: without it, a second one goes on when the controller's process is killed",
    )
    parser.add_argument("--log-level", default="info", choices=core.LOG_LEVELS)


def _replay(commands: Commands) -> None:
    parser = commands.add_parser(
        "replay",
        help="run and time a saved program",
        description="Starts a local cluster on the platform, runs the program and prints what it gave and how long it "
        "took. Needs no torch.",
    )
    parser.add_argument("path", help="the file that save() of a program or captured step wrote")
    _add_platform_options(parser)
    parser.add_argument("--repeat", type=int, default=10, metavar="N", help="timed runs of each kind (default: 10)")
    parser.add_argument(
        "--chain",
        action="store_true",
        help="the results of a run are the next one's arguments: nothing is uploaded again",
    )
    parser.add_argument("--hosts", type=int, metavar="N", help="worker processes (default: 1)")
    parser.add_argument(
        "--devices-per-host", type=int, metavar="M", help="devices of each (default: as the slices need)"
    )
    parser.add_argument("--memory-per-device", default="", metavar="SIZE", help="limit of each device, e.g. 512MiB")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _compile(commands: Commands) -> None:
    parser = commands.add_parser(
        "compile",
        help="compile a saved program for chips that are not here: does it fit, how long does it take",
        description="Compiles a saved program or captured step ahead of time and prints memory, FLOPs, "
        "collectives and an estimated time. Needs the plugin of the chips (libtpu, jax-cuda13-pjrt), no such chip, no "
        "driver and no torch. Exit code 0 when it compiles and fits, else 1.",
    )
    parser.add_argument("path", help="the file that save() of a program or captured step wrote")
    parser.add_argument(
        "--target",
        required=True,
        metavar="CHIP:SHAPE",
        help=f"GPUs as hosts x GPUs of each, h200:2x8; TPUs as a torus, v5e:4x4 or v5p:2x2x4. Chips: "
        f"{', '.join(platforms.CHIPS)}",
    )
    parser.add_argument("--plugin", default="", metavar="PATH", help="the PJRT plugin, instead of the installed one")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _status(commands: Commands) -> None:
    parser = commands.add_parser(
        "status",
        help="show a cluster's hosts, islands, clients and queues",
        description="Asks a standing controller and prints tables.",
    )
    parser.add_argument(
        "--address", default="", help="the controller: HOST:PORT, tcp://... or ipc://... (default: PTPATHWAYS_ADDRESS)"
    )
    _add_token_options(parser, insecure=True)
    parser.add_argument("--json", action="store_true", help="print the controller's answer, one JSON object")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="ask again every so often, until Ctrl-C")


def _doctor(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what is installed, which plugins load, and what is wrong",
        description="Exit code 0 when a local CPU cluster works, 1 otherwise.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def _bench(commands: Commands) -> None:
    parser = commands.add_parser("bench", help="measure; see `ptpathways bench --help`", add_help=False)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def _token(commands: Commands) -> None:
    parser = commands.add_parser(
        "token",
        help="make a join token: the secret of a cluster of several machines",
        description="Prints a new join token, or writes it to a new file that only this user may read.",
    )
    parser.add_argument("--out", default="", metavar="PATH", help="the file to write instead of printing")
    parser.add_argument(
        "--role",
        default="",
        choices=("worker", "client"),
        help="make one with which one can join as this only, out of the cluster's token",
    )
    parser.add_argument(
        "--rotate",
        metavar="ADDRESS",
        help="change the token of the cluster whose controller this user runs here, while it runs: members go on, and "
        "nobody joins with the former one",
    )
    _add_token_options(parser)


def _add_platform_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", default="cpu", help="cpu, cuda or tpu (default: cpu)")
    parser.add_argument("--plugin", default="", metavar="PATH", help="the PJRT plugin, instead of the installed one")


def _add_token_options(parser: argparse.ArgumentParser, *, insecure: bool = False) -> None:
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
