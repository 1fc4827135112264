"""Modules that are executed when they are used."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptpathways.frontend.xla import _late, _when_imported

SOURCE = """
import threading
runs.append(threading.get_ident())
entered.set()
if not gate.wait(30): raise TimeoutError
value = 1
def double(x): return x * 2
"""


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """A module ``late_example`` that has been imported, and what its source sees."""
    seen = types.SimpleNamespace(runs=[], entered=threading.Event(), gate=threading.Event())
    seen.gate.set()
    (tmp_path / "late_seen.py").write_text("")
    (tmp_path / "late_example.py").write_text("from late_seen import *\n" + SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    vars(importlib.import_module("late_seen")).update(vars(seen))
    _late.execute_when_used("late_example")
    seen.module = importlib.import_module("late_example")
    yield seen
    for name in ("late_example", "late_seen"):
        sys.modules.pop(name, None)


def test_it_is_executed_by_the_first_name_that_is_read(late: Any) -> None:
    assert late.module.__name__ == "late_example" and late.module.__file__.endswith("late_example.py")
    assert not hasattr(late.module, "__path__") and late.runs == []
    assert late.module.double(3) == 6 and late.module.value == 1
    assert len(late.runs) == 1 and type(late.module) is types.ModuleType
    with pytest.raises(AttributeError, match="module 'late_example' has no attribute 'other'"):
        _ = late.module.other


def test_all_its_names_can_be_imported(late: Any) -> None:
    names: dict[str, Any] = {}
    exec("from late_example import *", names)
    assert names["value"] == 1 and names["double"](2) == 4


def test_threads_that_use_it_at_once_wait_for_the_first(late: Any) -> None:
    late.gate.clear()
    found = []
    threads = [threading.Thread(target=lambda: found.append(late.module.value), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert late.entered.wait(30)
    late.gate.set()
    for thread in threads:
        thread.join(30)
    assert found == [1] * 4 and len(late.runs) == 1


def test_one_that_fails_is_executed_again(late: Any, tmp_path: Path) -> None:
    (tmp_path / "late_example.py").write_text("value = 1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            _ = late.module.value


def test_what_is_to_be_mended_is_mended_once_it_is_executed(late: Any) -> None:
    mended = []
    _late.when_executed("late_example", lambda module: mended.append(module.value))
    assert mended == [] and late.runs == []
    assert late.module.value == 1 and mended == [1]
    _late.when_executed("late_example", lambda module: mended.append(2))
    assert mended == [1, 2]


def test_a_module_that_is_there_already_stays_what_it_is() -> None:
    _late.execute_when_used("json")
    assert type(sys.modules["json"]) is types.ModuleType
    assert not any(isinstance(finder, _when_imported.Finder) and finder.name == "json" for finder in sys.meta_path)


def test_inductor_is_imported_by_those_who_compile_with_the_bridge() -> None:
    pytest.importorskip("torch_xla")
    program = """
import sys
import ptpathways.frontend.xla
import torch_xla
assert "torch._inductor.lowering" not in sys.modules
from torch_xla.core.dynamo_bridge import extract_compiled_graph
assert extract_compiled_graph.__module__ == "torch_xla._dynamo.dynamo_bridge"
assert "torch._inductor.lowering" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
