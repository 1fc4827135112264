"""docs/operators.md, from what the processes found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.operators._database import Case


def document(rows: Mapping[Case, Mapping[str, Any]]) -> str:
    return ""
