"""Everything private of torch and torch_xla that the code names is looked for at ``init``."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from ptpathways import core
from ptpathways.frontend import _private

PACKAGE = Path(_private.__file__).parent.parent


def test_what_is_looked_for_is_there() -> None:
    _private.check()


def test_every_binding_that_the_code_uses_is_looked_for() -> None:
    used = set()
    for path in PACKAGE.rglob("*.py"):
        used |= set(re.findall(r"\bbinding\(\)\.(\w+)", path.read_text()))
    assert used == set(_private.BINDING)


def test_every_private_name_of_torch_that_the_code_uses_is_looked_for() -> None:
    known = set(_private.OTHERS["torch"])
    for path in PACKAGE.rglob("*.py"):
        if "bench" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            dotted = ast.unparse(node)
            if re.fullmatch(r"torch\._[a-z]\w*", dotted) and not re.fullmatch(
                r"torch\._(ops|decomp|subclasses)", dotted
            ):
                assert dotted.removeprefix("torch.") in known, f"{path}: {dotted}"
            if match := re.fullmatch(r"torch\.(_C\.\w+)", dotted):
                public = {"_C.DispatchKey", "_C._functorch"}
                assert match[1] in known | public, f"{path}: {dotted}"


def test_a_release_that_lacks_something_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_private, "BINDING", (*_private.BINDING, "_xla_gone"))
    with pytest.raises(core.VersionMismatch, match=r"lack torch_xla\._XLAC\._xla_gone, .* install torch==2.9.0"):
        _private.check()


def test_dotted_names_are_followed() -> None:
    there = types.SimpleNamespace(a=types.SimpleNamespace(b=1))
    assert _private.missing("m", there, ("a.b", "a.c", "d.e")) == ["m.a.c", "m.d.e"]
