"""``ptpathways doctor``: what is installed, which plugins load, what is wrong and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import Literal

from ptpathways import core, launch, native, platforms

_REQUIRED = {"torch": "2.9.0", "torch_xla": "2.9.0"}
_SHM_MIN_BYTES = 256 << 20
_TRY_S = 30.0
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    state: Literal["ok", "warning", "wrong"]
    detail: str


def main(*, as_json: bool) -> int:
    """Prints the report; 1 when something is wrong, else 0."""
    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        colours = {"ok": "green", "warning": "yellow", "wrong": "red"}
        table = Table("what", "state", "detail", show_edge=False)
        for finding in findings:
            table.add_row(finding.what, f"[{colours[finding.state]}]{finding.state}", finding.detail)
        Console().print(table)
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def examine() -> list[Finding]:
    """Every finding. Starts a worker for each plugin that is installed, to see whether it loads."""
    findings = [Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")]
    findings += [_package(name, version) for name, version in _REQUIRED.items()]
    findings.append(_extension())
    findings.append(_shared_memory())
    findings.append(_onednn())
    findings.append(_torch_kernels())
    if address := os.environ.get("PTPATHWAYS_ADDRESS"):
        findings.append(_address(address))
    if findings[3].state == "ok":
        findings += [_plugin(plugin) for plugin in platforms.discover()] or [
            Finding("plugins", "wrong", "no PJRT plugin is installed; run `pip install fastatomstruct-xla-cpu`")
        ]
    return findings


def _package(name: str, version: str) -> Finding:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "wrong", f"needs {version}, is not installed; run `pip install {name}=={version}`")
    if found.split("+")[0] != version:
        return Finding(name, "wrong", f"needs {version}, found {found}; run `pip install {name}=={version}`")
    return Finding(name, "ok", found)


def _extension() -> Finding:
    try:
        loaded = native.load()
    except (core.PathwaysError, native.NativeUnavailable) as error:
        return Finding("extension", "wrong", str(error))
    return Finding(
        "extension",
        "ok",
        f"ptpathways {core.__version__}, protocol {loaded.protocol_version}, libzmq {native.find_zmq()}",
    )


def _shared_memory() -> Finding:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError as error:
        return Finding("shared memory", "warning", f"/dev/shm cannot be used ({error}); bulk bytes go through sockets")
    state: Literal["ok", "warning"] = "ok"
    advice = ""
    if not os.access("/dev/shm", os.W_OK):
        state, advice = "warning", "; not writable: bulk bytes go through sockets"
    elif usage.free < _SHM_MIN_BYTES:
        state, advice = (
            "warning",
            "; less than 256 MiB: large transfers may fall back to sockets (docker: --shm-size=1g)",
        )
    return Finding("shared memory", state, f"/dev/shm, {usage.free >> 20} of {usage.total >> 20} MiB free{advice}")


def _onednn() -> Finding:
    path = platforms.find_onednn()
    if not path or path == "off":
        why = "switched off by PTPATHWAYS_ONEDNN" if path else "not installed; run `pip install onednn-cpu-gomp`"
        return Finding("oneDNN", "warning", f"{why}: convolutions on CPU devices are XLA's own, which are slower")
    if not os.path.isfile(path):
        return Finding("oneDNN", "warning", f"PTPATHWAYS_ONEDNN must be a file or off, got {path!r}")
    return Finding("oneDNN", "ok", path)


def _torch_kernels() -> Finding:
    path = native.find_torch_kernels()
    if path is None:
        why = "ptpathways was built where torch was not installed, so operations are traced about a tenth slower"
        return Finding("torch kernels", "warning", f"{why}; install torch, then build it again (docs/install.md)")
    return Finding("torch kernels", "ok", path)


def _address(address: str) -> Finding:
    try:
        controller = launch.endpoint(address)
        token = core.check_token(os.environ.get(core.TOKEN_VARIABLE, "")) or launch.find(controller)
        with launch.connect(controller, "doctor", _ANSWER_S, token=token) as session:
            return Finding("PTPATHWAYS_ADDRESS", "ok", f"{address}: {session.device_count} devices")
    except core.PathwaysError as error:
        return Finding("PTPATHWAYS_ADDRESS", "wrong", str(error))


def _plugin(plugin: platforms.Plugin) -> Finding:
    from ptpathways.launch import local

    what = f"{plugin.platform} plugin"
    options = core.Options(platform=plugin.platform, plugin=plugin.path, startup_timeout_s=_TRY_S)
    try:
        with local.start(options) as cluster:
            host = cluster.session.hosts()[0]
            kinds = ", ".join(sorted({device["kind"] for device in host["devices"]}))
            return Finding(what, "ok", f"{plugin.source}: loads, {len(host['devices'])} device(s) of kind {kinds}")
    except core.PathwaysError as error:
        # A GPU or TPU plugin on a machine without one is no fault of the installation.
        state: Literal["warning", "wrong"] = "wrong" if plugin.platform == "cpu" else "warning"
        return Finding(what, state, f"{plugin.source} at {plugin.path}: {str(error).splitlines()[-1]}")
