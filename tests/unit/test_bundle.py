"""Saved programs: what is written is read again, and damaged files are refused by name."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptpathways import core, ir, programs

MODULE = b"a module"


def _bundle(**changes: Any) -> programs.Bundle:
    program = ir.parse(
        f"""program train at "train.py:1"
slice s [x=1]
function step on s (f32[4], f32[]) -> (f32[4], f32[]) hlo {ir.digest_of(MODULE)} at "train.py:4"
%w = argument : f32[4] on s
%r = argument : f32[] on s
%new, %loss = compute step(%w, %r) : f32[4] on s, f32[] on s at "train.py:9"
result %new, %loss
"""
    )
    bundle = programs.Bundle(program, {ir.digest_of(MODULE): MODULE}, {1: np.array(0.5, np.float32)}, {0: 0})
    return dataclasses.replace(bundle, **changes)


def _with(path: Path, name: str, content: bytes) -> Path:
    """The file with another content of one of its parts."""
    changed = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for part in old.namelist():
            new.writestr(part, content if part == name else old.read(part))
    return changed


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = _bundle()
    found = programs.Bundle.load(saved.save(tmp_path / "a.zip"))
    assert ir.to_json(found.program) == ir.to_json(saved.program)
    assert (found.modules, found.follows) == (saved.modules, {0: 0})
    assert found.value(1) == np.float32(0.5)
    unknown = programs.Bundle.load(_bundle(follows=None).save(tmp_path / "b.zip"))
    assert unknown.follows is None


def test_values_that_are_made_up_may_be_rates_and_second_moments(tmp_path: Path) -> None:
    made = _bundle().value(0)
    assert made.dtype == np.float32 and (made >= 0).all() and (made < 0.1).all() and made.std() > 0
    assert np.array_equal(made, _bundle().value(0))


@pytest.mark.parametrize("follows", [{2: 0}, {0: 2}, {-1: 0}])
def test_what_cannot_follow_is_refused(tmp_path: Path, follows: dict[int, int]) -> None:
    with pytest.raises(core.InvalidProgram, match="chains argument"):
        programs.Bundle.load(_bundle(follows=follows).save(tmp_path / "a.zip"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b"[]"),
        ("manifest.json", b"{"),
        ("program.json", b"[" * 100_000),
        ("program.json", b"null"),
        ("arguments/1.npy", b"nothing"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = _with(_bundle().save(tmp_path / "a.zip"), name, content)
    with pytest.raises(core.InvalidProgram):
        programs.Bundle.load(path)


@pytest.mark.parametrize("key", ["values", "follows"])
@pytest.mark.parametrize("value", [None, 5, [[1]], [["a", "b"]], {"a": 1}, "ab"])
def test_manifests_of_other_forms_are_refused_or_say_nothing(tmp_path: Path, key: str, value: Any) -> None:
    path = _bundle().save(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    changed = _with(path, "manifest.json", json.dumps({**manifest, key: value}).encode())
    if key == "follows" and value is None:
        assert programs.Bundle.load(changed).follows is None
        return
    with pytest.raises(core.InvalidProgram):
        programs.Bundle.load(changed)


@pytest.mark.parametrize("source", [None, 5, [], "a\0b"])
def test_a_source_that_is_no_text_is_refused(tmp_path: Path, source: Any) -> None:
    path = _bundle().save(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        program = json.loads(archive.read("program.json"))
    for part in (program, program["functions"][0], program["nodes"][-1]):
        former, part["source"] = part.get("source"), source
        changed = _with(path, "program.json", json.dumps(program).encode())
        with pytest.raises(core.InvalidProgram):
            programs.Bundle.load(changed)
        part["source"] = former
    shutil.rmtree(tmp_path)
