"""`transformers.Trainer`, unmodified: it finds the cluster's devices as PyTorch/XLA's. One process, no launcher.

    python examples/08_transformers_trainer.py             # 2 hosts with 2 CPU devices each
    USE_TORCH_XLA=0 python examples/08_transformers_trainer.py --eager     # the same program on the CPU

A small GPT-2 learns bytes of Python's documentation, is evaluated, saves checkpoints, and a second Trainer resumes from
the first of them. Two lines are of ptpathways: the import and `pw.init`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import ptpathways as pw

LENGTH = 32


class Bytes(Dataset[dict[str, torch.Tensor]]):
    """Pieces of Python's documentation: ``input_ids`` and ``labels`` of shape (LENGTH,), int64."""

    def __init__(self, first: int, count: int) -> None:
        text = "".join(text for _, text in sorted(topics.items())).encode()
        self._pieces = torch.tensor(list(text[first * LENGTH : (first + count) * LENGTH])).view(count, LENGTH)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._pieces[index], "labels": self._pieces[index]}


def make_trainer(folder: Path, steps: int, eager: bool) -> Trainer:
    set_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    arguments = TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=3e-3,
        warmup_steps=steps // 5,
        gradient_accumulation_steps=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=steps // 2,
        save_steps=steps // 2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=eager,
    )
    return Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Bytes(0, 640), eval_dataset=Bytes(640, 64))


def losses_of(trainer: Trainer) -> list[float]:
    """Of all steps, and after them those of the evaluations."""
    history = trainer.state.log_history
    return [entry["loss"] for entry in history if "loss" in entry] + [
        entry["eval_loss"] for entry in history if "eval_loss" in entry
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="without ptpathways")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--devices-per-host", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--losses", type=Path, help="a JSON file to write the losses to")
    options = parser.parse_args()
    if not options.eager:
        pw.init(hosts=options.hosts, devices_per_host=options.devices_per_host)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(Path(folder), options.steps, options.eager)
        trainer.train()
        losses = losses_of(trainer)
        resumed = make_trainer(Path(folder), options.steps, options.eager)
        resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-{options.steps // 2}")
        again = losses_of(resumed)
    print(f"on {trainer.args.device}: loss {losses[0]:.4f} -> {losses[options.steps - 1]:.4f}")
    print(f"resumed after {options.steps // 2} steps: {again[options.steps - 1]:.4f}")
    if options.losses:
        options.losses.write_text(json.dumps([losses, again]))


if __name__ == "__main__":
    main()
