"""Example 07, as a user runs it: the reward rises, the weights arrive, no step warns; and it trains as eager does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla")

from tests.scenarios import ROOT, needs_native

STEPS = 14


@needs_native
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mode", "strategy"), [("sync", "ddp"), ("off-policy", "fsdp")])
def test_the_reward_rises_and_the_generator_has_the_weights(tmp_path: Path, mode: str, strategy: str) -> None:
    name = str(ROOT / "examples" / "07_trainer_and_generator.py")
    done = subprocess.run(
        [sys.executable, name, "--mode", mode, "--strategy", strategy, "--steps", str(STEPS)],
        capture_output=True,
        text=True,
        timeout=580,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = re.findall(r"^(\d+) \{'reward': ([0-9.]+), 'loss': -?[0-9.]+\}$", done.stdout, re.MULTILINE)
    assert [int(step) for step, _ in lines] == list(range(1, STEPS + 1)), done.stdout
    rewards = [float(reward) for _, reward in lines]
    assert sum(rewards[-3:]) > 1.5 * sum(rewards[:3]), rewards
    assert "the generator has the trainer's weights: True" in done.stdout
    assert re.search(r"1\.7 MB of weights: [0-9.]+ ms, [0-9]+% of the link: latency", done.stdout), done.stdout
    assert "Warning" not in done.stderr, done.stderr


@needs_native
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mode", "strategy"), [("sync", "fsdp"), ("off-policy", "ddp")])
def test_updates_and_sampled_probabilities_are_those_of_an_eager_policy(mode: str, strategy: str) -> None:
    command = [sys.executable, "-m", "tests.proc.trainer_beside_eager", mode, strategy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("updates") == 6
    assert max(found.values()) < 1e-4, found
