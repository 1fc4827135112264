"""Addresses: as users type them, of this machine, and which of them others can reach."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct

from ptpathways import core

DEFAULT_PORT = 7450
_GET_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR
_WILDCARDS = {"*", "0.0.0.0", "::"}
# From the blocks reserved for documentation: routed like any far address, and a datagram socket sends nothing to them.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def endpoint(address: str) -> str:
    """``HOST:PORT`` as an endpoint; endpoints as they are. IPv6 addresses stand in brackets.

    A host name that has only an IPv6 address becomes that address.

    Raises:
        InvalidOption: it is neither.
    """
    if address.startswith("ipc://"):
        return address
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    bare_six = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or not colon or bare_six or not (port.isdigit() and 0 < int(port) < 65536):
        hint = "; an IPv6 address stands in brackets" if bare_six else ""
        raise core.InvalidOption(
            f"the controller's address must be HOST:PORT, tcp://... or ipc://..., got {address!r}{hint}"
        )
    return f"tcp://{_in_brackets(_resolved(host.strip('[]')))}:{port}"


def host_of(tcp_endpoint: str) -> str:
    """The host of a tcp endpoint, without brackets; empty for other endpoints."""
    if not tcp_endpoint.startswith("tcp://"):
        return ""
    return tcp_endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def port_of(tcp_endpoint: str) -> str:
    """The port of a tcp endpoint, as text."""
    return tcp_endpoint.rpartition(":")[2]


def with_host(tcp_endpoint: str, host: str) -> str:
    """The endpoint with another host and its own port."""
    return f"tcp://{_in_brackets(host.strip('[]'))}:{port_of(tcp_endpoint)}"


def is_wildcard(host: str) -> bool:
    """Whether binding ``host`` means: every address of this machine."""
    return host in _WILDCARDS


def stays_here(tcp_or_ipc_endpoint: str) -> bool:
    """Whether only this machine's processes can reach the endpoint (csrc/transport/curve.h judges the same way)."""
    host = host_of(tcp_or_ipc_endpoint)
    if not host:
        return True
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_address_towards(host: str) -> str:
    """The address of this machine from which the route to ``host`` starts; nothing is sent.

    Raises:
        ConnectionFailed: the name has no address, or there is no route.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        return _source_of_route(family, address)
    except (OSError, UnicodeError) as error:
        raise core.ConnectionFailed(
            f"there must be a route to {host!r}, got: {error}; check name and network"
        ) from None


def addresses() -> list[str]:
    """This machine's addresses that others may reach, the likeliest first; never loopback ones. May be empty."""
    found = []
    for family, far in _FAR:
        with contextlib.suppress(OSError):
            found.append(_source_of_route(family, (far, 9)))
    found += _interface_addresses()
    return [address for address in dict.fromkeys(found) if not ipaddress.ip_address(address).is_loopback]


def reachable(bound: str, advertise: str = "") -> list[str]:
    """Endpoints by which others reach what is bound at ``bound``, the likeliest first.

    A wildcard stands for every address of this machine; ``advertise``, a host, is taken in place of all of them.
    """
    if not bound.startswith("tcp://"):
        return [bound]
    if advertise:
        return [with_host(bound, advertise)]
    host = host_of(bound)
    if not is_wildcard(host):
        return [bound]
    candidates = [address for address in addresses() if host == "::" or ":" not in address]
    return [with_host(bound, address) for address in candidates] or [with_host(bound, "127.0.0.1")]


def data_endpoint(controller: str, given: str = "", advertise: str = "") -> tuple[str, str]:
    """Where a worker of the controller at ``controller`` binds for bulk data, and the host that it tells its peers.

    Without ``given``: the address from which the route to the controller starts, so that whoever the controller can
    reach us by, the other workers can, too. Empty texts: as the worker decides for itself.

    Raises:
        ConnectionFailed: there is no route to the controller.
    """
    if given:
        host = host_of(given)
        if advertise or not is_wildcard(host):
            return given, advertise
        return given, local_address_towards(host_of(controller) or "127.0.0.1")
    if stays_here(controller):
        return "", advertise
    here = local_address_towards(host_of(controller))
    return with_host("tcp://*:*", here), advertise


def _source_of_route(family: int, address: tuple[object, ...]) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0]).partition("%")[0]


def _interface_addresses() -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asking.fileno(), _GET_INTERFACE_ADDRESS, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _resolved(host: str) -> str:
    """``host``, or its address when it is a name with IPv6 addresses only, which libzmq would not look for."""
    with contextlib.suppress(OSError, UnicodeError):  # it is no name: whoever connects will say so
        families = {found[0] for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        if families == {socket.AF_INET6}:
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return host
