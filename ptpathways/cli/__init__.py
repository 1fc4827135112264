"""The ``ptpathways`` command: argument parsing, and what is said at the terminal."""

from __future__ import annotations

from ptpathways.cli._main import main
from ptpathways.cli._parser import build_parser

__all__ = ["build_parser", "main"]
