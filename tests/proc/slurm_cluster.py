"""A Slurm of its own on this machine: munged, slurmctld and a slurmd for each of some nodes (``slurmd -N``)."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ptpathways.testing import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scancel", "sinfo")
_UP_S = 30.0
_END_S = 10.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing() -> list[str]:
    """What has to be installed for it (Debian: slurmd, slurmctld, slurm-client, munge)."""
    return [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]


@contextmanager
def running(nodes: int) -> Iterator[dict[str, str]]:
    """Starts it; the environment in which ``srun`` finds it. Everything is ended and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        configuration = _configure(folder, nodes)
        environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(configuration)}
        commands = [
            ["munged", "--force", "--foreground", *_munge_options(folder)],
            ["slurmctld", "-D", "-f", str(configuration)],
            *(["slurmd", "-D", "-N", f"n{node}", "-f", str(configuration)] for node in range(1, nodes + 1)),
        ]
        with ExitStack() as ending:
            for number, command in enumerate(commands):
                _start(command, environment, folder, ending)
                if number == 0:
                    wait_until(lambda: (folder / "munge.sock").exists(), _UP_S)
            wait_until(lambda: _idle(environment) == nodes, _UP_S)
            yield environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: list[str], environment: dict[str, str], folder: Path, ending: ExitStack) -> None:
    with open(folder / f"{Path(command[0]).name}.out", "ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    ending.callback(end)


def _idle(environment: dict[str, str]) -> int:
    done = subprocess.run(
        ["sinfo", "-h", "-t", "idle", "-o", "%D"], env=environment, capture_output=True, text=True, check=False
    )
    return sum(int(line) for line in done.stdout.split())


def _munge_options(folder: Path) -> list[str]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    folder.chmod(0o755)  # munged wants a folder that everybody can enter
    files = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder / name}" for option, name in files.items()]


def _configure(folder: Path, nodes: int) -> Path:
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(nodes + 1)
    lines = [
        "ClusterName=tests",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports[0]}",
        f"SlurmUser={getpass.getuser()}",
        f"SlurmdUser={getpass.getuser()}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.sock",
        "CredType=cred/munge",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool.%n",
        f"SlurmctldPidFile={folder}/ctld.pid",
        f"SlurmdPidFile={folder}/slurmd.%n.pid",
        f"SlurmctldLogFile={folder}/ctld.log",
        f"SlurmdLogFile={folder}/slurmd.%n.log",
        "MpiDefault=none",
        "KillWait=2",
    ]
    (folder / "state").mkdir()
    for node in range(1, nodes + 1):
        (folder / f"spool.n{node}").mkdir()
        lines.append(f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[node]} CPUs=2 State=UNKNOWN")
    lines.append("PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    path = folder / "slurm.conf"
    path.write_text("\n".join(lines) + "\n")
    return path


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
