"""Lightning's ``Trainer`` on a cluster: ``import ptpathways.lightning``, then ``Trainer(accelerator="pathways")``.

One process drives all devices of the cluster, so for Lightning there is one device and one process, whose world size is
1; a batch is divided over the devices. Importing this registers both names, with ``lightning.pytorch`` and with
``pytorch_lightning``, whichever is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from ptpathways import core
from ptpathways.lightning._register import register

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same library under two names, which share no classes."""

__all__ = ["PACKAGES", "register"]


def _register_all() -> None:
    loaded = [name for name in PACKAGES if name in sys.modules]
    installed = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None]
    if not installed:
        raise core.InvalidOption(
            f"ptpathways.lightning needs {' or '.join(PACKAGES)}, and neither is installed; `pip install lightning`"
        )
    for name in loaded or installed[:1]:
        register(importlib.import_module(name))


_register_all()
