"""The controller that a launcher has put into this process before the user's program runs.

The program finds it as any other, by the address in its environment. That it is in the same process makes submitting
cheaper: messages are handed over by a call.
"""

from __future__ import annotations

import os

_addresses: frozenset[str] = frozenset()
_process = 0


def announce(addresses: list[str]) -> None:
    """From now on ``serves`` knows this process's embedded controller by these endpoints; none when it has ended."""
    global _addresses, _process
    _addresses, _process = frozenset(addresses), os.getpid()


def serves(address: str) -> bool:
    """Whether ``address`` is that of a controller in this very process, not of the parent that it was forked from."""
    return address in _addresses and _process == os.getpid()
