"""Compiled programs that outlive their cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptpathways import core
from ptpathways.launch import local

TIMEOUT_S = 120.0
FloatArray = npt.NDArray[np.float32]


def slow_module(steps: int) -> bytes:
    """A StableHLO module that takes long to compile and little to compute: repeated softmax of f32[64,64]."""
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
    for i in range(steps):
        lines.append(f"%e{i} = stablehlo.exponential %x{i} : tensor<64x64xf32>")
        lines.append(
            f"%s{i} = stablehlo.reduce(%e{i} init: %zero) applies stablehlo.add across dimensions = [{i % 2}]"
            " : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>"
        )
        lines.append(
            f"%b{i} = stablehlo.broadcast_in_dim %s{i}, dims = [{1 - i % 2}] : (tensor<64xf32>) -> tensor<64x64xf32>"
        )
        lines.append(f"%x{i + 1} = stablehlo.divide %e{i}, %b{i} : tensor<64x64xf32>")
    body = "\n".join(lines)
    return f"""module @slow {{ func.func public @main(%x0: tensor<64x64xf32>) -> tensor<64x64xf32> {{
      {body}
      return %x{steps} : tensor<64x64xf32>
    }} }}""".encode()


def run_once(folder: Path, value: FloatArray) -> npt.NDArray[Any]:
    """Registers and runs the module on a cluster of its own."""
    with local.start(core.Options(cache_dir=str(folder))) as cluster:
        session = cluster.session
        function = session.register(slow_module(500), "mlir", name="slow")
        (result,) = session.run(function, [session.put(value, 0)], 0)
        return result.result(TIMEOUT_S)


def test_what_one_cluster_compiled_the_next_one_reads(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    value = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    first = run_once(folder, value)
    stored = list(folder.glob("*.pwx"))
    assert len(stored) == 1, "a compile that takes long is kept"
    inode = stored[0].stat().st_ino
    np.testing.assert_array_equal(run_once(folder, value), first)
    # What is compiled again is stored as a new file.
    assert [path.stat().st_ino for path in folder.glob("*.pwx")] == [inode]


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.warns(core.CacheWarning, match="chmod 700"), local.start(core.Options(cache_dir=str(tmp_path))):
        pass
    assert not list(tmp_path.iterdir())


def test_other_flags_of_the_compiler_are_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    value = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    first = run_once(folder, value)
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_enable_fast_math=false")
    np.testing.assert_allclose(run_once(folder, value), first, rtol=1e-5)
    assert len(list(folder.glob("*.pwx"))) == 2


def test_what_is_damaged_is_compiled_again_and_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache"
    value = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    first = run_once(folder, value)
    (stored,) = folder.glob("*.pwx")
    whole = stored.read_bytes()
    stored.write_bytes(whole[: len(whole) // 2])
    with local.start(core.Options(cache_dir=str(folder))) as cluster:
        session = cluster.session
        function = session.register(slow_module(500), "mlir", name="slow")
        (result,) = session.run(function, [session.put(value, 0)], 0)
        np.testing.assert_array_equal(result.result(TIMEOUT_S), first)
        assert len(stored.read_bytes()) == len(whole)
    told = capfd.readouterr().err
    assert f"ptpathways: a compiled program in the cache cannot be used and is compiled again: '{stored}'" in told


STEP_ON_A_SLICE = """
import torch, ptpathways as pw
pw.init(hosts=1, devices_per_host=2)
layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.GELU()) for _ in range(4)]
model = torch.nn.Sequential(*layers).to(pw.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 16).to(pw.device())).square().mean().backward()
optimizer.step()
print(float(model[0][0].weight.detach().sum()))
"""


def test_a_step_on_several_devices_is_not_compiled_for_one_too(tmp_path: Path) -> None:
    """PyTorch/XLA asks for the memory of what it has compiled, before anything runs."""
    pytest.importorskip("torch_xla")
    environment = {**os.environ, "PTPATHWAYS_CACHE_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)
    subprocess.run([sys.executable, "-c", STEP_ON_A_SLICE], env=environment, check=True, timeout=TIMEOUT_S)
    assert len(list(tmp_path.glob("*.pwx"))) == 1
