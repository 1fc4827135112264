"""The troubleshooting page cites messages that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_CITED = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
# In Python and C++ one literal may go on in the next line.
_JOINT = re.compile(r'"\s*\n\s*f?"')


@pytest.fixture(scope="module")
def sources() -> str:
    files = [*(ROOT / "ptpathways").rglob("*.py"), *(ROOT / "csrc").rglob("*.cc"), *(ROOT / "tools").glob("*.py")]
    files.append(ROOT / "Makefile")
    texts = (_JOINT.sub("", path.read_text()) for path in files if not path.name.endswith("_test.cc"))
    return "\n".join(texts)


def test_the_page_has_messages() -> None:
    assert len(_CITED) > 20
    assert len(set(_CITED)) == len(_CITED)


@pytest.mark.parametrize("message", _CITED)
def test_a_cited_message_is_one_of_ours(sources: str, message: str) -> None:
    assert message in sources
