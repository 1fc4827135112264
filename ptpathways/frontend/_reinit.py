"""``init`` in a process that was initialised before: a notebook's cell that runs again, or a cluster after another.

PyTorch/XLA starts once per process. A running cluster that is what ``init`` asks for is kept. After ``shutdown`` the
plugin's client is attached to the new cluster; everything of the former cluster is gone, and says so when it is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptpathways import core, native

if TYPE_CHECKING:
    from ptpathways.frontend.base._session import Connection
    from ptpathways.frontend.base._state import Runtime

_FREE = frozenset({"startup_timeout_s", "log_level"})  # of no matter once a cluster runs
_RESTART = "restart the process (in a notebook: the kernel)"


def check_same(running: Runtime, asked: core.Options, given: Mapping[str, Any]) -> None:
    """Returns if ``running`` is what ``init`` was asked for with ``given``, the arguments that are not None.

    Raises:
        AlreadyInitialized: it is another; says what differs.
        HostLost: it has lost a host.
    """
    different = [
        f"{name}={_show(name, getattr(asked, name))} instead of {_show(name, getattr(running.options, name))}"
        for name in sorted(given)
        if name not in _FREE and getattr(asked, name) != getattr(running.options, name)
    ]
    if different:
        raise core.AlreadyInitialized(
            f"this process is part of a cluster, and init() asked for {', '.join(different)}; leave the running "
            f"cluster with pw.shutdown() first, or {_RESTART}"
        )
    if running.connection is None:
        return
    lost = [host["name"] for host in running.connection.hosts() if not host["alive"]]
    if lost:
        raise core.HostLost(
            f"the running cluster has lost {', '.join(lost)}, with every value that was there; call pw.shutdown() and "
            "pw.init(...) for a new cluster, then run the cells again that build model, optimizer and data"
        )


def check_can_follow(former: Runtime, asked: core.Options) -> None:
    """Raises AlreadyInitialized if a cluster as ``asked`` cannot follow on ``former`` in this process."""
    if former.options.backend != asked.backend:
        what = f"backend {former.options.backend!r}, and init() asked for {asked.backend!r}"
    elif asked.backend != "pathways" and asked.device_count != former.torch_device_count:
        what = f"{former.torch_device_count} devices, and init() asked for {asked.device_count}"
    elif asked.backend == "pathways" and asked.logical_devices != former.torch_device_count:
        what = f"{former.torch_device_count} logical devices, and init() asked for {asked.logical_devices}"
    else:
        return
    raise core.AlreadyInitialized(
        f"PyTorch/XLA starts only once per process, and did so with {what}; ask for the same again, or {_RESTART}"
    )


def attach(connection: Connection) -> None:
    """Attaches PyTorch/XLA's client to the cluster of ``connection``.

    Raises:
        AlreadyInitialized: it cannot be attached.
    """
    try:
        native.attach_clients(connection.session)
    except native.NativeError as error:
        raise core.AlreadyInitialized(f"this process cannot use another cluster: {error}; {_RESTART}") from None


def given_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options among ``init``'s arguments that were given."""
    names = {field.name for field in dataclasses.fields(core.Options)}
    return {name: value for name, value in arguments.items() if name in names and value is not None}


def _show(name: str, value: Any) -> str:
    return "(another)" if name == "token" else repr(value)
