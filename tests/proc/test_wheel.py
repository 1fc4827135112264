"""A wheel, installed beside nothing of this checkout and used where there is no compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")
pytest.importorskip("auditwheel")

from tests.scenarios import ROOT, needs_native

PROGRAM = """
import json, sys
import torch
import ptpathways as pw

pw.init(hosts=2, devices_per_host=1)
model = torch.nn.Linear(4, 1)
expected = model(torch.ones(2, 4)).tolist()
found = model.to(pw.device())(torch.ones(2, 4, device=pw.device())).tolist()
pw.shutdown()
json.dump({"file": pw.__file__, "expected": expected, "found": found}, sys.stdout)
"""


def run(*command: str | Path, **more: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=280, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return str(done.stdout)


@needs_native
@pytest.mark.timeout(600)
def test_a_wheel_trains_where_there_is_no_compiler(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("ptpathways-*.whl")
    tag = re.search(r'platform tag to\s+"(\w+)"', run(sys.executable, "-m", "auditwheel", "show", wheel))
    assert tag is not None and tag[1].startswith("manylinux_2_"), tag  # and no library of this machine only
    site = tmp_path / "site"
    run(*pip, "install", "--no-deps", "--target", site, wheel)
    quick = {name: value for name, value in os.environ.items() if name == "XLA_FLAGS"}
    bare = {"HOME": str(tmp_path), "PATH": "/nonexistent", "PYTHONPATH": str(site), **quick}
    found = json.loads(run(sys.executable, "-c", PROGRAM, cwd=tmp_path, env=bare))
    assert Path(found["file"]).is_relative_to(site)
    assert [value for (value,) in found["found"]] == pytest.approx([value for (value,) in found["expected"]], rel=1e-6)
