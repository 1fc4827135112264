"""``python -m ptpathways.launch script.py ARGS``, started by torchrun or srun in every process of a job.

Rank 0 runs the script; the other ranks serve their devices to it.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence

from ptpathways import core
from ptpathways.launch import _job, _program, _rendezvous, slurm, torchrun

_LINGER_S = 5.0


def build_parser() -> argparse.ArgumentParser:
    """The options, each with the environment variable that stands for it."""
    parser = argparse.ArgumentParser(
        prog="python -m ptpathways.launch",
        description="One PyTorch program drives the devices of every process that torchrun or srun has started. "
        "Rank 0 runs the program, whose ptpathways.init() finds the cluster; all others serve their devices.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--torchrun", action="store_true", help="this is torchrun's process (default: found out)")
    which.add_argument("--slurm", action="store_true", help="this is srun's process (default: found out)")
    parser.add_argument("--devices-per-host", type=int, metavar="M", help="devices of each rank (CPU only; default: 1)")
    parser.add_argument("--islands", type=int, metavar="N", help="islands that the ranks make up (default: 1 on CPU)")
    parser.add_argument("--platform", metavar="NAME", help="cpu, cuda or tpu (default: cpu)")
    parser.add_argument("--plugin", metavar="PATH", help="the PJRT plugin, instead of the installed one")
    parser.add_argument("--memory-per-device", metavar="SIZE", help="limit of each device, e.g. 512MiB")
    parser.add_argument(
        "--cache-dir",
        metavar="PATH",
        help="folder where compiled programs are kept, or off (default: the user's cache folder)",
    )
    parser.add_argument("--policy", choices=core.POLICIES, help="whose computations go next (default: fifo)")
    parser.add_argument("--log-level", choices=core.LOG_LEVELS, help="of controller and workers (default: warning)")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long to wait for all ranks (default: 120)"
    )
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="of the controller (default: a free one)")
    parser.add_argument(
        "--advertise", default="", metavar="HOST", help="how the other machines reach this one (default: found out)"
    )
    parser.add_argument(
        "--token-file", default="", metavar="PATH", help="the join token (default: one made for the job)"
    )
    parser.add_argument("--meet", default="", metavar="PATH", help="Slurm: a folder that all nodes see (default: in ~)")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", help="a Python script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the program's own arguments")
    return parser


def options_of(arguments: argparse.Namespace) -> _job.JobOptions:
    """The options given, else those of the environment, else the defaults.

    Raises:
        InvalidOption: a value cannot be used.
    """
    given = {
        "devices_per_host": arguments.devices_per_host,
        "islands": None,
        "platform": arguments.platform,
        "plugin": arguments.plugin,
        "memory_per_device": arguments.memory_per_device,
        "cache_dir": arguments.cache_dir,
        "policy": arguments.policy,
        "log_level": arguments.log_level,
        "token": core.read_token(arguments.token_file) if arguments.token_file else None,
    }
    unused = {"PTPATHWAYS_ADDRESS", "PTPATHWAYS_BIND", "PTPATHWAYS_HOSTS", "PTPATHWAYS_REMOTE_HOSTS"}
    own = {"PTPATHWAYS_ISLANDS", "PTPATHWAYS_STARTUP_TIMEOUT_S", "PTPATHWAYS_BACKEND"}
    environment = {name: value for name, value in os.environ.items() if name not in unused | own}
    common = core.Options.from_environment(environment, **given)
    return _job.JobOptions(
        devices=common.devices_per_host,
        islands=int(_number("islands", arguments.islands, "PTPATHWAYS_ISLANDS", 0)),
        platform=common.platform,
        plugin=common.plugin,
        memory_per_device=common.memory_per_device,
        cache_dir=common.cache_dir,
        policy=common.policy,
        log_level=common.log_level,
        timeout_s=_number("timeout", arguments.timeout, "PTPATHWAYS_STARTUP_TIMEOUT_S", 120.0),
        port=arguments.port,
        advertise=arguments.advertise,
        token=common.token,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Takes this process's part in the job; its exit code, the program's on every rank.

    Raises:
        what the program raises, on rank 0; PathwaysError when there is no cluster or it was lost.
    """
    arguments = build_parser().parse_args(argv)
    try:
        under_slurm = arguments.slurm or (not arguments.torchrun and _found() == "slurm")
        options = options_of(arguments)
        place = slurm.place_of() if under_slurm else torchrun.place_of()
        _program.check_program(arguments.program, module=arguments.module)
    except core.InvalidOption as error:
        print(f"python -m ptpathways.launch: {error}", file=sys.stderr)
        return 2
    if under_slurm:
        folder = slurm.open_store(arguments.meet)
        return _take_part(folder, place, options, arguments, lambda _: folder.forget_secrets())

    def run() -> int:
        store = torchrun.open_store(place, options.timeout_s)
        code = _take_part(store, place, options, arguments, lambda ours: store.ends_with_us and ours.linger(_LINGER_S))
        if code != 0:
            torchrun.let_rank_0_end_first(place)
        return code

    return torchrun.recorded(run)


def _take_part(
    store: _rendezvous.Store,
    place: _job.Place,
    options: _job.JobOptions,
    arguments: argparse.Namespace,
    at_end: Callable[[_rendezvous.Meeting], object],
) -> int:
    meeting = _rendezvous.Meeting(store, place.rank, place.world_size)
    if place.rank != 0:
        try:
            return _job.follow(meeting, place, options)
        finally:
            with contextlib.suppress(core.ConnectionFailed):
                meeting.leave()
    # Registered before the program registers its own: those run first, and find the cluster alive.
    atexit.register(at_end, meeting)
    cluster = _job.lead(meeting, place, options)
    atexit.register(cluster.close)
    ended: BaseException | None = None
    try:
        _program.run_program(arguments.program, arguments.arguments, module=arguments.module)
    except BaseException as error:
        ended = error
        raise
    finally:
        meeting.end(_program.code_of(ended))
    return 0


def _found() -> str:
    if torchrun.started_by_torchrun():
        return "torchrun"
    if slurm.started_by_slurm():
        return "slurm"
    raise core.InvalidOption(
        "expected to be started by torchrun or srun, got neither's variables; use `torchrun --nnodes N "
        "--nproc-per-node 1 -m ptpathways.launch script.py` or `srun python -m ptpathways.launch script.py`, or, by "
        "hand, `ptpathways controller` and `ptpathways worker`"
    )


def _number(option: str, given: float | None, variable: str, default: float) -> float:
    if given is not None:
        return given
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise core.InvalidOption(f"{option} (environment variable {variable}) must be a number, got {text!r}") from None


if __name__ == "__main__":
    exit_code = 1
    try:
        exit_code = main()
    except core.PathwaysError as error:
        if _program.started():
            raise  # with the program's lines
        print(f"python -m ptpathways.launch: {error}", file=sys.stderr)
    sys.exit(exit_code)
