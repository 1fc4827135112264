"""Everything private of torch and torch_xla that the code names is looked for at ``init``."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla")

import torch

from ptpathways import core, native
from ptpathways.frontend.loops import _spmd
from ptpathways.frontend.xla import _private

PACKAGE = Path(_private.__file__).parent.parent


def test_what_is_looked_for_is_there() -> None:
    _private.check()


@pytest.mark.parametrize("inside", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")])
def test_it_is_found_wherever_init_is_called(inside: Any) -> None:
    with inside():
        assert _private.owners_are_told()
        assert _private.holders_are_counted()


def test_every_binding_that_the_code_uses_is_looked_for() -> None:
    used = set()
    for path in PACKAGE.rglob("*.py"):
        used |= set(re.findall(r"\bbinding\(\)\.(\w+)", path.read_text()))
    assert used == set(_private.BINDING)


def test_every_name_that_the_spmd_api_replaces_is_looked_for() -> None:
    assert set(_spmd.BINDINGS) == set(_private.SPMD_BINDING)
    assert set(_spmd.RUNTIME) <= set(_private.OTHERS["torch_xla.runtime"])


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
                public = {"_C.DispatchKey", "_C._autograd", "_C._functionalization", "_C._functorch"}
                assert match[1] in known | public, f"{path}: {dotted}"


def test_a_release_that_lacks_something_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_private, "BINDING", (*_private.BINDING, "_xla_gone"))
    with pytest.raises(core.VersionMismatch, match=r"lack torch_xla\._XLAC\._xla_gone, .* install torch==2.9.0"):
        _private.check()


def test_dotted_names_are_followed() -> None:
    there = types.SimpleNamespace(a=types.SimpleNamespace(b=1))
    assert _private.missing("m", there, ("a.b", "a.c", "d.e")) == ["m.a.c", "m.d.e"]


def test_tensors_that_only_torch_has_are_not_found() -> None:
    """Autograd's threads let them go without the GIL, and a reference taken in that moment destroys them twice."""
    saved, kept = torch.zeros(3, requires_grad=True), torch.ones(3)
    identity = id(saved)
    graph = saved * kept

    def found() -> set[int]:
        return {id(tensor) for tensor in native.owning_tensors(torch.Tensor)}

    assert {identity, id(kept), id(graph)} <= found()
    del saved
    assert identity not in found() and id(graph) in found()
    again = graph.grad_fn.next_functions[0][0].variable  # type: ignore[union-attr]
    assert id(again) == identity and identity in found()
