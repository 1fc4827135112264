"""Lowering, pass by pass (paper 4.2): each takes a program and gives one, the last gives plans. One file each.

1. ``infer_transfers``: every function's arguments lie on its slice, the way it wants them.
2. ``place``: every virtual slice has physical devices.
3. ``lower``: one plan per host.
"""

from __future__ import annotations

from ptpathways.ir.passes._infer_transfers import infer_transfers
from ptpathways.ir.passes._lower import lower
from ptpathways.ir.passes._place import place

__all__ = ["infer_transfers", "lower", "place"]
