"""Lightning: what cannot be honoured is refused by name, before anything trains. Its loops: ``test_examples``."""

from __future__ import annotations

import subprocess
import sys

from tests.scenarios import ROOT


def test_what_a_trainer_cannot_be_asked_for_is_named() -> None:
    command = [sys.executable, "-m", "tests.proc.lightning_mistakes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    said = done.stdout.splitlines()
    wanted = ("Trainer(devices=...) must be 'auto'", "Trainer(num_nodes=...) must be 1", "use 'bf16-mixed'",
              "must go with strategy='pathways'")  # fmt: skip
    assert all(words in line for words, line in zip(wanted, said[:4], strict=True)), said
    assert said[4].startswith("{torch.bfloat16}")
