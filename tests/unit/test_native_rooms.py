"""Which rooms of C++ a branch has changed, for `make native-changed-sanitized`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.native_build import rooms_changed_since

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def _git(folder: Path, *words: str) -> None:
    known = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *known, *words], cwd=folder, check=True, capture_output=True, timeout=60)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_rooms_that_differ_from_where_the_branch_began(tmp_path: Path) -> None:
    for room in ("base", "wire", "worker"):
        _write(tmp_path / "csrc" / room / "a.cc", "1")
    _git(tmp_path, "init")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-m", "one")
    _git(tmp_path, "checkout", "-b", "branch")
    assert rooms_changed_since("main", tmp_path) == []
    _write(tmp_path / "csrc" / "worker" / "a.cc", "2")
    _git(tmp_path, "commit", "-am", "two")
    _write(tmp_path / "csrc" / "base" / "b.cc", "not committed")
    _write(tmp_path / "docs" / "a.md", "of no room")
    _git(tmp_path, "checkout", "main")
    _write(tmp_path / "csrc" / "wire" / "a.cc", "what others did since is no change of the branch's")
    _git(tmp_path, "commit", "-am", "three")
    _git(tmp_path, "checkout", "branch")
    assert rooms_changed_since("main", tmp_path) == ["base", "worker"]


def test_without_history_nothing_is_known(tmp_path: Path) -> None:
    assert rooms_changed_since("main", tmp_path) is None
    _git(tmp_path, "init")
    assert rooms_changed_since("origin/main", tmp_path) is None
