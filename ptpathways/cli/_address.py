"""Addresses as users type them."""

from __future__ import annotations

from ptpathways import core


def endpoint(address: str) -> str:
    """``HOST:PORT`` as an endpoint; endpoints as they are.

    Raises:
        InvalidOption: it is neither.
    """
    if address.startswith(("tcp://", "ipc://")):
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise core.InvalidOption(f"the controller's address must be HOST:PORT, tcp://... or ipc://..., got {address!r}")
    return f"tcp://{address}"
