"""What workers' devices can be: the PJRT plugins this machine has, and how a worker starts them.

Nothing here loads a plugin or imports the package that brings it.
"""

from __future__ import annotations

from ptpathways.platforms._cpu import find_onednn
from ptpathways.platforms._discover import PLATFORMS, discover, find_plugin, launch_of
from ptpathways.platforms._plugin import Launch, OptionValue, Platform, Plugin
from ptpathways.platforms._targets import CHIPS, Chip, Target, find_target

__all__ = [
    "CHIPS",
    "PLATFORMS",
    "Chip",
    "Launch",
    "OptionValue",
    "Platform",
    "Plugin",
    "Target",
    "discover",
    "find_onednn",
    "find_plugin",
    "find_target",
    "launch_of",
]
