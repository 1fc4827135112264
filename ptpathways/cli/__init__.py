"""The ``ptpathways`` command: argument parsing, and what is said at the terminal."""

from __future__ import annotations

from ptpathways.cli._main import build_parser, main

__all__ = ["build_parser", "main"]
