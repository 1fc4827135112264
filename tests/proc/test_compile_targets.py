"""``ptpathways compile`` and ``Program.compile_for`` with the real compilers of GPUs and TPUs (``make plugins``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "build" / "plugins"
PACKAGES = {"tpu": "libtpu/libtpu.so", "cuda": "jax_plugins/xla_cuda13/xla_cuda_plugin.so"}

SAVE = """
import sys
import torch
import ptpathways as pw

folder = sys.argv[1]
cluster = pw.init(hosts=2, devices_per_host=2)
s = cluster.slice(shape=(2, 2), axis_names=("data", "model"))
t = cluster.slice(shape=(2,), axis_names=("x",))

PARAMETERS = [(None, "model"), ("model", None)]

@pw.function(
    slice=s, in_placements=[*PARAMETERS, ("data", None)], out_placements=[*PARAMETERS, None], donate=(0, 1)
)
def step(a, b, x):
    def loss_of(a, b):
        return (torch.nn.functional.gelu(x @ a) @ b).square().mean()
    (da, db), loss = torch.func.grad_and_value(loss_of, argnums=(0, 1))(a, b)
    return a - 0.1 * da, b - 0.1 * db, loss

@pw.function(slice=t, in_placements=("x", None), out_placements=("x", None))
def spectrum(a):
    return torch.nn.functional.softmax(a, dim=-1)

@pw.program(donate=(0, 1))
def train(a, b, x):
    for _ in range(2):
        a, b, loss = step(a, b, x)
    return a, b, loss, spectrum(b)

def arguments(n):  # of which only the types matter; the memory is never touched
    return torch.empty(n, 2 * n), torch.empty(2 * n, n), torch.empty(256, n)

train.save(folder + "/small.zip", *arguments(256), weights=())

@pw.program
def large(a, b, x):
    return step(a, b, x)

large.trace(*arguments(49152))
large.save(folder + "/large.zip")
found = train.compile_for(sys.argv[2], *arguments(256)) if len(sys.argv) > 2 else None
print("compiled", found and (found.compiles, found.fits, [use.axes for use in found.functions[0].collectives]))
for target in sys.argv[3:]:
    try:
        train.compile_for(target, *arguments(256))
    except pw.InvalidOption as error:
        print("refused", error)
"""

PIPELINE = """
import sys
import torch
import ptpathways as pw
from torch import nn

cluster = pw.init(hosts=2, devices_per_host=2)
slices = [cluster.slice(shape=(2,)) for _ in range(2)]
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)])
pipe = pw.pipeline(
    model, stages=2, microbatches=4, slices=slices, loss=nn.functional.mse_loss, optimizer=torch.optim.AdamW
)
batch = torch.randn(16, 64), torch.randn(16, 64)
for _ in range(2):
    for target in sys.argv[1:]:
        found = pipe.compile_for(target, *batch)
        calls = {function.name: function.calls for function in found.functions}
        print(found.verdict, found.used_devices, calls["forward0"], calls["backward1"], found.peak_bytes)
        assert found.step_seconds >= sum(one.seconds * one.calls for one in found.functions if one.name.endswith("0"))
    print(float(pipe.step(*batch)))
"""


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT)]), **more}


def _installed(platform: str) -> bool:
    return (PLUGINS / PACKAGES[platform]).is_file()


def _need(platform: str) -> None:
    if not _installed(platform):
        pytest.skip(f"the plugin of {platform} is not in build/plugins; `make plugins` puts it there")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    targets = ["v5e:2x2", "v5e:1x2", "v9:2x2"] if _installed("tpu") else []
    done = subprocess.run(
        [sys.executable, "-c", SAVE, str(folder), *targets],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def _compile(path: Path, target: str, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ptpathways", "compile", str(path), "--target", target, *options],
        env=_environment(COLUMNS="100"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def _json(path: Path, target: str, code: int = 0) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_compile(path, target, "--json", code=code).stdout)
    return found


@pytest.mark.parametrize(
    ("platform", "target"), [("tpu", "v5e:2x4"), ("tpu", "v5p:2x2x2"), ("cuda", "h200:1x8"), ("cuda", "a100:2x4")]
)
def test_a_program_of_two_slices_compiles(saved: Path, platform: str, target: str) -> None:
    _need(platform)
    found = _json(saved / "small.zip", target)
    assert found["verdict"] == "fits"
    assert (found["devices"], found["used_devices"]) == (8, 6)
    step, spectrum = found["functions"]
    assert (step["devices"], step["calls"], spectrum["devices"], spectrum["calls"]) == (4, 2, 2, 1)
    # What the layouts ask for: parameters along model, the batch along data. Compilers may join and choose.
    assert {use["axes"] for use in step["collectives"]} >= {"data", "model"}
    assert spectrum["collectives"] == []
    dense = 2 * (256 * 512 // 2) * 4 + 256 // 2 * 256 * 4
    assert dense <= step["argument_bytes"] < 1.5 * dense
    assert step["aliased_bytes"] >= 2 * (256 * 512 // 2) * 4  # the parameters' memory is taken over
    products = 2 * 256 * 256 * 512 * 2  # forward, on all devices
    assert 2.5 * products <= 4 * step["flops"] <= 4 * products
    assert step["seconds"] > 0 and found["step_seconds"] >= 2 * step["seconds"]


@pytest.mark.parametrize(("platform", "target"), [("tpu", "v5e:2x2"), ("tpu", "v6e:2x2"), ("cuda", "h100:1x4")])
def test_what_does_not_fit_is_said_with_its_largest_tensors(saved: Path, platform: str, target: str) -> None:
    """18 GiB of parameters on each device, and as much temporary memory."""
    _need(platform)
    verdict = {"v5e:2x2": "does not fit", "v6e:2x2": "does not fit", "h100:1x4": "fits"}[target]
    code = 0 if verdict == "fits" else 1
    found = _json(saved / "large.zip", target, code)
    assert found["verdict"] == verdict
    parameter = 49152 * 98304 // 2 * 4
    assert found["peak_bytes"] > 2 * parameter
    assert [value["bytes"] for value in found["largest"][:2]] == [parameter, parameter]
    shown = _compile(saved / "large.zip", target, code=code).stdout
    assert shown.rstrip().endswith(verdict)
    assert ("f32[49152,98304]{-,model}" in shown) == (verdict != "fits"), shown


def test_from_python(saved: Path) -> None:
    _need("tpu")
    lines = (saved / "said").read_text().splitlines()
    assert lines[0].startswith("compiled (True, True, ["), lines
    assert "'data'" in lines[0] and "'model'" in lines[0]
    assert lines[1].startswith("refused target v5e:1x2 must have at least the 4 devices of slice"), lines
    assert lines[2].startswith("refused a target's chip must be one of a100"), lines


def test_bad_targets_and_files(saved: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.zip"
    wrong.write_bytes(b"PK not really")
    assert "chip must be one of" in _compile(saved / "small.zip", "h300:1x8", code=2).stderr
    if _installed("tpu"):
        assert "is no saved program" in _compile(wrong, "v5e:2x2", code=1).stderr
        said = _compile(saved / "small.zip", "v5e:3x5", code=2).stderr
        assert "target v5e:3x5 must be one that plugin" in said
        assert "libtpu.so compiles for, and it says" in said
        said = _compile(tmp_path / "none.zip", "v5e:2x2", code=1).stderr
        assert "a saved program must be a file, and there is none at" in said
        said = _compile(saved / "small.zip", "v5e:2x2", "--plugin", str(wrong), code=2).stderr
        assert f"must be one that plugin {wrong} compiles for" in said
    if _installed("cuda"):
        said = _compile(saved / "small.zip", "h200:1x2", code=2).stderr
        assert "must have at least the 4 devices of slice" in said


def test_without_a_plugin_the_package_is_named(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ptpathways", "compile", str(saved / "small.zip"), "--target", "v5e:2x2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'ptpathways[tpu]'" in done.stderr


def test_a_pipelines_step_compiles_and_still_trains() -> None:
    targets = [target for platform, target in (("tpu", "v5e:2x2"), ("cuda", "h200:1x4")) if _installed(platform)]
    if not targets:
        _need("tpu")
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE, *targets],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    half = len(targets) + 1
    before, after = lines[: half - 1], lines[half : 2 * half - 1]
    for line in before + after:
        assert line.split()[:4] == ["fits", "4", "4", "4"], done.stdout
    for one, other in zip(before, after, strict=True):  # later the optimizer's state is there before the step
        assert int(other.split()[4]) >= int(one.split()[4])
    assert float(lines[2 * half - 1]) < float(lines[half - 1])
