"""From a platform's name, or a path, to the plugin that a worker loads."""

from __future__ import annotations

import os

from ptpathways import core
from ptpathways.platforms._cpu import CpuPlatform
from ptpathways.platforms._cuda import CudaPlatform
from ptpathways.platforms._plugin import Launch, Platform, Plugin
from ptpathways.platforms._tpu import TpuPlatform

_ALL: tuple[Platform, ...] = (CpuPlatform(), CudaPlatform(), TpuPlatform())

PLATFORMS: dict[str, Platform] = {platform.name: platform for platform in _ALL}
"""Every platform by its name."""


def discover() -> list[Plugin]:
    """Every plugin installed on this machine, platform by platform, best first. Loads and imports nothing."""
    return [plugin for platform in PLATFORMS.values() for plugin in platform.candidates()]


def find_plugin(platform: str = "cpu", path: str = "") -> Plugin:
    """The plugin for ``platform``: the one at ``path`` if given, else the best of those installed.

    Raises:
        PluginNotFound: nothing there; the message names the packages to install.
        InvalidOption: an unknown platform without a path.
    """
    if path:
        if not os.path.isfile(path):
            raise core.PluginNotFound(f"the PJRT plugin must be a file, got {path!r}, which is none; check the path")
        return Plugin(platform, os.path.abspath(path), "option")
    found = _platform(platform).candidates()
    if not found:
        known = PLATFORMS[platform]
        names = ([f"'ptpathways[{known.extra}]'"] if known.extra else []) + list(known.packages)
        packages = " or ".join(f"`pip install {name}`" for name in names)
        raise core.PluginNotFound(
            f"platform {platform!r} needs a PJRT plugin and none is installed; run {packages}, "
            "or give the plugin's path"
        )
    return found[0]


def launch_of(plugin: Plugin, devices: int, index: int = 0, workers: int = 1) -> Launch:
    """Create options and environment of the ``index``-th of ``workers`` workers of this machine.

    Each has ``devices`` devices of ``plugin``.

    A platform that is known only by its plugin's path gets neither.
    """
    platform = PLATFORMS.get(plugin.platform)
    return platform.launch(plugin, devices, index, workers) if platform else Launch()


def _platform(name: str) -> Platform:
    if name not in PLATFORMS:
        raise core.InvalidOption(
            f"option platform must be one of {', '.join(PLATFORMS)} unless a plugin's path is given, got {name!r}"
        )
    return PLATFORMS[name]
