"""Under Slurm: ``srun`` starts the processes; they meet in a folder that all nodes see.

A folder, because nothing else that the nodes of a job share is both there already and private: environment variables
of a step are the same for all its tasks and fixed before any of them runs. The folder has mode 700 and every file mode
600, so the token in it is as safe as the user's ssh keys.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ptpathways import core
from ptpathways.launch import _job

_NEEDED = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID")
_OLD_S = 7 * 24 * 3600.0


def started_by_slurm(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a task of a job step; in a batch script outside ``srun`` it is not."""
    return "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment


def place_of(environment: Mapping[str, str] = os.environ) -> _job.Place:
    """Which of the step's tasks this is.

    Raises:
        InvalidOption: variables that Slurm sets are missing or no numbers.
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise core.InvalidOption(
            f"srun sets {', '.join(_NEEDED)}, got none of {', '.join(missing)}; start with "
            "`srun python -m ptpathways.launch script.py`"
        )
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST") or "localhost"
    try:
        return _job.Place(
            rank=int(environment["SLURM_PROCID"]),
            world_size=int(environment["SLURM_NTASKS"]),
            local_rank=int(environment["SLURM_LOCALID"]),
            towards=_another(node_names(nodes), environment.get("SLURMD_NODENAME", "")),
        )
    except ValueError as error:
        raise core.InvalidOption(f"Slurm's variables must be numbers and a list of nodes: {error}") from None


def node_names(nodes: str) -> list[str]:
    """The nodes of a compact list: ``"gpu[1-2,07],login"`` is gpu1, gpu2, gpu07, login.

    Raises:
        ValueError: it is no such list.
    """
    names: list[str] = []
    for item in _split(nodes):
        head, bracket, rest = item.partition("[")
        if not bracket:
            names.append(item)
            continue
        numbers, closing, tail = rest.partition("]")
        if not closing:
            raise ValueError(f"a node list must close its brackets, got {nodes!r}")
        for part in numbers.split(","):
            first, dash, last = part.partition("-")
            span = range(int(first), int(last if dash else first) + 1)
            names += [f"{head}{number:0{len(first)}d}{end}" for number in span for end in (node_names(tail) or [""])]
    return names


class FolderStore:
    """Keys as files of a folder that all nodes see. Written in one step, so nobody reads half a value."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, key: str, value: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = self.folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise core.InvalidOption(
                f"only this user may be able to enter the folder where ranks meet, got {self.folder} with mode "
                f"{state.st_mode & 0o777:o}; remove it or give another with --meet"
            )
        descriptor, name = tempfile.mkstemp(dir=self.folder)  # mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(value)
        os.replace(name, self._path(key))

    def get(self, key: str) -> str | None:
        """The value, or None while there is none."""
        with contextlib.suppress(FileNotFoundError):
            # Listing makes a network file system ask its server, which it may not when only a name is looked up.
            os.listdir(self.folder)
            return self._path(key).read_text(encoding="utf-8")
        return None

    def forget_secrets(self) -> None:
        """Removes what was said to join; how the program ended stays to be read."""
        for path in self.folder.glob("*answer"):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", ".")


def open_store(meet: str = "", environment: Mapping[str, str] = os.environ) -> FolderStore:
    """The folder of this step: below ``meet``, or below ``~/.ptpathways/slurm``. Folders of a week ago are removed."""
    base = Path(meet).expanduser() if meet else Path.home() / ".ptpathways" / "slurm"
    parts = [  # jobs of two clusters that see one home may have the same number
        *filter(None, [environment.get("SLURM_CLUSTER_NAME", "").replace("/", "_")]),
        environment["SLURM_JOB_ID"],
        environment.get("SLURM_STEP_ID", "0"),
        environment.get("SLURM_RESTART_COUNT", "0"),
    ]
    for old in base.glob("*.*.*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _OLD_S:
                shutil.rmtree(old, ignore_errors=True)
    return FolderStore(base / ".".join(parts))


def _another(nodes: list[str], own: str) -> str:
    """A node whose route tells our address in the job's network: not this one, if there is another."""
    others = [node for node in nodes if node != own]
    return (others or nodes or ["localhost"])[0]


def _split(nodes: str) -> list[str]:
    """At the commas outside brackets."""
    items, depth, start = [], 0, 0
    for index, character in enumerate(nodes):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            items.append(nodes[start:index])
            start = index + 1
    return [item for item in [*items, nodes[start:]] if item]
