"""What building says on a machine that lacks something."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.scenarios import ROOT
from tools import native_build


def test_a_missing_compiler_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(native_build.BuildError, match=r"there is no c\+\+ or g\+\+ or clang\+\+ here: install one"):
        native_build.check_compiler()
    monkeypatch.setenv("CXX", "my-c++ -g")
    with pytest.raises(native_build.BuildError, match=r"there is no my-c\+\+ here"):
        native_build.check_compiler()
    (tmp_path / "my-c++").touch(mode=0o755)
    native_build.check_compiler()


def test_times_are_those_of_the_last_build_by_target() -> None:
    rows = [
        (0, 1000, "CMakeFiles/worker.dir/a.o"),
        (0, 3500, "CMakeFiles/worker.dir/a.o"),
        (3500, 4000, "CMakeFiles/worker.dir/b.o"),
        (0, 2000, "CMakeFiles/base.dir/x/y.o"),
        (4000, 4250, "native.so"),
    ]
    log = "# ninja log v6\n" + "".join(f"{start}\t{end}\t1\t{name}\tff\n" for start, end, name in rows)
    found = native_build.build_times(log)
    assert list(found.items()) == [("worker", 4.0), ("base", 2.0), ("native.so", 0.25)]


def test_make_names_the_versions_of_python(tmp_path: Path) -> None:
    command = ["make", "setup", "PYTHON=/bin/false", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13 is required, and '/bin/false' is none" in done.stderr
