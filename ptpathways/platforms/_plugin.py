"""What a plugin is, and how installed packages are looked at without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

OptionValue = str | bool | int | float | list[int]
"""What ``PJRT_Client_Create`` takes as the value of a named option."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One PJRT plugin found on this machine."""

    platform: str
    """``cpu``, ``cuda`` or ``tpu``."""
    path: str
    """Absolute path of the shared library."""
    source: str
    """The package it came from with its version, or ``"option"`` for a path that the user gave."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a worker process needs to make ``devices`` devices of a plugin."""

    create_options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Named values for ``PJRT_Client_Create``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set before the plugin is loaded."""
    kernels: str = ""
    """Path of a library of kernels that computes what the plugin computes slowly; empty: none, ``off``: unwanted."""
    node_id_option: str = "node_id"
    """The create option by which a client of several hosts takes this host's number; empty: there is none."""
    num_nodes_option: str = "num_nodes"
    """The same for the number of hosts."""


class Platform(Protocol):
    """One kind of device: where its plugin may be, and how a worker starts it."""

    @property
    def name(self) -> str: ...

    @property
    def packages(self) -> tuple[str, ...]:
        """What to install, best first."""
        ...

    @property
    def extra(self) -> str:
        """The extra of this package that brings the first of them and what it needs; empty: the package itself does."""
        ...

    def candidates(self) -> list[Plugin]:
        """The plugins that are installed, best first."""
        ...

    def launch(self, plugin: Plugin, devices: int, index: int, workers: int) -> Launch:
        """How to start the ``index``-th of ``workers`` workers of this machine, each with ``devices`` devices."""
        ...


def package_folder(module: str) -> Path | None:
    """Folder of an installed top-level package, found without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def files_on_path(relative: str) -> list[Path]:
    """Files called ``relative`` (glob) under any folder of ``sys.path``: for parts of namespace packages."""
    found: list[Path] = []
    for entry in sys.path:
        folder = Path(entry or os.curdir)
        if folder.is_dir():
            found += [path for path in sorted(folder.glob(relative)) if path not in found]
    return found


def describe_package(distribution: str) -> str:
    """``"name version"``, or the name alone when its metadata is missing."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return distribution


def plugin_file(platform: str, path: Path | None, source: str) -> list[Plugin]:
    """The plugin at ``path`` as a list of one, or of none when there is no such file."""
    if path is None or not path.is_file():
        return []
    return [Plugin(platform, str(path.resolve()), source)]
