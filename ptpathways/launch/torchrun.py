"""Under torchrun: its agents start the processes, watch and restart them; its store is where the ranks meet.

The one file of this room that imports torch, inside functions only: the store is torch's, and so is the format in
which torchrun wants to hear of exceptions. The workers' own processes never load it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from ptpathways import core
from ptpathways.launch import _job

if TYPE_CHECKING:
    from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]  # in the documentation, not in __all__

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_RANK_0_ENDS_S = 10.0


def started_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is one of torchrun's."""
    return "TORCHELASTIC_RUN_ID" in environment


def place_of(environment: Mapping[str, str] = os.environ) -> _job.Place:
    """Which of torchrun's processes this is.

    Raises:
        InvalidOption: variables that torchrun sets are missing or no numbers.
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise core.InvalidOption(
            f"torchrun sets {', '.join(_NEEDED)}, got none of {', '.join(missing)}; start with "
            "`torchrun ... -m ptpathways.launch script.py`"
        )
    try:
        return _job.Place(
            rank=int(environment["RANK"]),
            world_size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment["LOCAL_RANK"]),
            towards=environment["MASTER_ADDR"],
        )
    except ValueError as error:
        raise core.InvalidOption(f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers: {error}") from None


class AgentStore:
    """torchrun's store, under a prefix of ours."""

    def __init__(self, store: TorchStore, *, ends_with_us: bool) -> None:
        self._store = store
        self.ends_with_us = ends_with_us
        """Whether this process serves it, as no agent does."""

    def set(self, key: str, value: str) -> None:
        with _store_errors():
            self._store.set(key, value)

    def get(self, key: str) -> str | None:
        """The value, or None while there is none. Raises ConnectionFailed, as ``set``."""
        with _store_errors():
            return self._store.get(key).decode() if self._store.check([key]) else None


@contextmanager
def _store_errors() -> Iterator[None]:
    from torch.distributed import DistError

    try:
        yield
    except DistError as error:
        reason = str(error).partition("\n")[0]
        raise core.ConnectionFailed(
            f"the store where the ranks meet is gone, and with it the process that served it: {reason}"
        ) from None


def open_store(place: _job.Place, timeout_s: float, environment: Mapping[str, str] = os.environ) -> AgentStore:
    """The store of the agents; where they have none for their processes, rank 0 serves one.

    Raises:
        ConnectionFailed: it cannot be reached.
    """
    from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    serves = environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and place.rank == 0
    try:
        store = TCPStore(
            host_name=address,
            port=port,
            world_size=place.world_size,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except DistError as error:
        raise core.ConnectionFailed(
            f"rank {place.rank} must reach torchrun's store at {address}:{port}, got: {error}"
        ) from None
    own = PrefixStore(f"ptpathways/{environment.get('TORCHELASTIC_RUN_ID', 'none')}", store)
    return AgentStore(own, ends_with_us=serves)


def recorded(run: Callable[[], int]) -> int:
    """Runs it so that its exception is written to torchrun's error file, from which the summary is made."""
    from torch.distributed.elastic.multiprocessing.errors import record

    code = record(run)()
    return 0 if code is None else code


def let_rank_0_end_first(place: _job.Place) -> None:
    """Before this rank ends as badly as rank 0's program did: torchrun tells of the process that it sees end first.

    torchrun ends this one as soon as it has seen rank 0. On another node, whose torchrun sees no rank 0, nothing is
    waited for.
    """
    if place.rank != 0 and os.environ.get("GROUP_RANK", "0") == "0":
        time.sleep(_RANK_0_ENDS_S)
