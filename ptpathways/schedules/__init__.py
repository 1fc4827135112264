"""Schedules of pipelines: pure functions that say in which order each slice runs its stages' parts.

Nothing here knows tensors or devices. To add a schedule, add a file to ``orders``.
"""

from __future__ import annotations

from ptpathways.schedules._actions import Action, Kind, Order, Size, dependencies
from ptpathways.schedules._costs import Costs
from ptpathways.schedules._draw import svg, text
from ptpathways.schedules._registry import Schedule, find, known
from ptpathways.schedules._simulate import Span, Timeline, activations, simulate
from ptpathways.schedules._verify import serial, verify

__all__ = [
    "Action",
    "Costs",
    "Kind",
    "Order",
    "Schedule",
    "Size",
    "Span",
    "Timeline",
    "activations",
    "dependencies",
    "find",
    "known",
    "serial",
    "simulate",
    "svg",
    "text",
    "verify",
]
