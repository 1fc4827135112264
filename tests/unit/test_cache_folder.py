"""Where compiled programs are kept, and what is said where they cannot be."""

from __future__ import annotations

import os
import types
from pathlib import Path

import pytest

from ptpathways import core
from ptpathways.launch import _cache


def test_the_users_cache_folder_is_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(_cache.cache_folder(""))
    assert folder == tmp_path / "cache" / "ptpathways" / "compiled"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert _cache.cache_folder("") == str(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard: to be ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _cache.default_folder() == tmp_path / ".cache" / "ptpathways" / "compiled"


def test_off_keeps_nothing_but_what_the_cluster_needs(tmp_path: Path) -> None:
    assert _cache.cache_folder("off") == ""
    assert _cache.cache_folder("off", tmp_path) == str(tmp_path)


def test_a_folder_that_cannot_be_used_is_told_of_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    file = tmp_path / "file"
    file.write_text("")
    for folder, said in ((open_to_all, "chmod 700"), (file, "exists"), (file / "below", "exists|Not a dir")):
        with pytest.warns(core.CacheWarning, match=said):
            assert _cache.cache_folder(str(folder), tmp_path) == str(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda folder: types.SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.warns(core.CacheWarning, match="full"):
        assert _cache.cache_folder(str(tmp_path / "new")) == ""
    monkeypatch.setattr(os, "access", lambda folder, how: False)
    with pytest.warns(core.CacheWarning, match="read-only"):
        assert _cache.cache_folder(str(tmp_path / "new")) == ""
