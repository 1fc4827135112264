"""Checkpoints: ``save`` and ``load``. Every host writes and reads what lies on its devices; see docs/checkpoints.md."""

from __future__ import annotations

from ptpathways.checkpoint._handle import Save
from ptpathways.checkpoint._load import Loaded, load
from ptpathways.checkpoint._save import save

__all__ = ["Loaded", "Save", "load", "save"]
