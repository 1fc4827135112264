"""The reference page names everything that the package exports, and nothing else."""

from __future__ import annotations

import re

import ptpathways
from tests.scenarios import ROOT

MODULES = {"data", "metrics", "pipelines", "__version__"}
"""Modules have pages of their own."""


def test_every_public_name_stands_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)}
    for members in re.findall(r"members: \[([^\]]+)\]", text):
        named |= {name.strip() for name in members.split(",")}
    public = set(ptpathways.__all__) - MODULES
    assert public <= named, f"docs/reference.md lacks {sorted(public - named)}"
    assert named - {"core", "frontend"} <= public, f"not public: {sorted(named - public)}"
