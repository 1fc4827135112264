"""docs/compatibility.md, from what the processes measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_HEAD = "| {what} | lines changed | loss difference | of PyTorch to itself | recompiles | on the client | {time} |"
_RULE = "| --- | --- | --- | --- | --- | --- | --- |"
_CAPTURED_HEAD = " captured: loss difference | ms per step |"


def number(value: float) -> str:
    """A relative difference, as people write it: 0 for none, else one digit and a power of ten."""
    if value != value or value == float("inf"):
        return "not the same losses"
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-")


def line(title: str, row: Row) -> str:
    """A line of either table."""
    if "error" in row:
        last = str(row["error"]).strip().splitlines()[-1][:200].replace("|", "/")
        return f"| {title} | {row.get('lines', '')} | failed: {last} | | | | |"
    cells = (
        title,
        row["lines"],
        number(row["difference"]),
        number(row["noise"]) if row.get("noise") is not None else "",
        row["recompiles"],
        ", ".join(f"`{name}`" for name in row["fallbacks"]) or "none",
        f"{row['client_ms']:.0f}",
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def captured(row: Row) -> str:
    """The cells of the same training as a captured step. One that was mostly traced says so instead of its time."""
    if "captured_ms" not in row:
        return "  |  |"
    time = f"{row['captured_ms']:.1f}" if row["replays"] > len(row["losses"]) // 2 else "traced"
    return f" {number(row['captured_difference'])} | {time} |"


def left_out(titles: Sequence[tuple[str, str]], rows: Mapping[str, Row]) -> str:
    """Says which lines the table could have and has not; empty if it has all."""
    missing = [title for key, title in titles if key not in rows]
    return f"\n\nNot in this run: {'; '.join(missing)}." if missing else ""


def models_table(titles: Sequence[tuple[str, str]], rows: Mapping[str, Row]) -> str:
    """The table of models; ``titles`` has keys and titles in order. Those without a row are left out."""
    lines = [_HEAD.format(what="model", time="client ms per step") + _CAPTURED_HEAD, _RULE + " --- | --- |"]
    lines += [line(title, rows[key]) + captured(rows[key]) for key, title in titles if key in rows]
    return "\n".join(lines) + left_out(titles, rows)


def examples_table(titles: Sequence[tuple[str, str]], rows: Mapping[str, Row]) -> str:
    """The table of programs, as ``models_table``."""
    lines = [_HEAD.format(what="program", time="ms per backward pass, with its waits"), _RULE]
    lines += [line(title, rows[key]) for key, title in titles if key in rows]
    return "\n".join(lines) + left_out(titles, rows)


TEXT = """# Compatibility

Third-party models and programs, trained for {steps} steps on a cluster and in plain PyTorch on the CPU, with
the same weights, data and seeds. A command writes this file:

```bash
python -m tools.compatibility --examples PATH_TO_A_CHECKOUT_OF_PYTORCH_EXAMPLES
```

{date}; {versions}; {machine}; a cluster of {hosts} hosts x {devices} devices, CPU workers, data parallel. The machine
had other work, too, so times show only the order of magnitude.

- **lines changed**: new or changed lines of the user's program.
- **loss difference**: the largest relative difference of a step's loss, over all steps, to plain PyTorch.
- **of PyTorch to itself**: the same number for two runs of plain PyTorch, one with weights that were changed by about
  one rounding of their type. Training amplifies rounding, for some models by orders of magnitude in a few steps. A
  correct implementation cannot be much closer than this.
- **recompiles**: computations compiled after step 3. Before that one or two are compiled (docs/recompilation.md).
  An evaluation has its own.
- **on the client**: operations without an XLA form. The client computes them, and waits for their arguments.
- **client ms per step**: the time of the calling thread per step, without waits for the devices; the median.
- **captured**: the same training with its step as a `pw.program` ([capture.md](capture.md)).

## Models

The models are from `transformers` and `torchvision`, with tiny random configurations and no downloads. The loop uses
`prepare(model, optimizer, loader)`, with labels in and loss out, and AdamW with the library's own schedules
(torchvision's convolutional networks: SGD with momentum). Dropout is 0, because devices draw other random numbers than
PyTorch does on a CPU. The three changed lines are the import, `pw.init` and `pw.prepare`; a fourth is a setting of the
model.

{models}

{model_notes}

## Programs of pytorch/examples

These are from <https://github.com/pytorch/examples>. None of it is copied here: the command takes a checkout, and
applies lists of edits to the programs' own text when it runs them. In both runs, data sets from installed packages
replace those that would be downloaded (scikit-learn's digits for MNIST, its photographs for BSDS300, Python's
documentation for Wikitext), dropout is 0, and normal numbers are drawn on the CPU. These edits are not counted. The
loss at each `backward()` is compared.

{examples}

{example_notes}
"""

MODEL_NOTES = """\
- **Mixture of experts.** The default (`grouped_mm`) works: a grouped product is computed with static shapes, every row
  against every expert, so its work grows with the number of experts. `batched_mm` gathers the weights of each token
  instead: less arithmetic, more memory. Both differ equally from PyTorch, so the products are not the cause; probably
  a token whose experts nearly tie goes to another expert. `experts_implementation="eager"` reads which experts were
  chosen (`nonzero`), so it waits in each layer and compiles for each number of tokens: do not use it here.
- **Padding.** With an `attention_mask`, BERT checks on the host whether it is all ones, also with
  `attn_implementation="eager"`. The step waits for the mask, which was uploaded long before; this costs a round trip.
- **Capturing.** A captured step of GPT-2 (others were not tried) needs `position_ids` and `attention_mask` among its
  arguments; without them transformers reads a value on the host, so the step is traced at each call.
- **Rounding.** ResNet-18 stands first in float64, where its losses agree. EfficientNet has no such row: XLA's float64
  code for its grouped convolutions took more than 12 GB per worker.
- **Lengths.** Each length of sequence is a computation of its own. Pad to a few lengths.
- `transformers.Trainer` 5.23.0 and accelerate 1.15.0: [examples/08](../examples/08_transformers_trainer.py) and
  [examples/09](../examples/09_accelerate.py) change one line, `pw.init`, and a test compares their losses on 1 x 1,
  2 x 2 and 4 x 1 hosts x devices with one eager process: within 1e-4 (2e-6 on 2026-11-23). Both see one process
  (`num_processes` is 1), whose batches are split over the devices, so `per_device_train_batch_size` is the whole
  batch. accelerate shuffles in another order on XLA devices than elsewhere.
  By hand on 2026-11-23, 2 x 2 against eager: 15 more settings of Trainer (bfloat16, gradient checkpointing, label
  smoothing, streams, uneven batches, loader processes, best model at the end, Adafactor and others) and 10 of
  accelerate, whose losses are all within 1e-4 except for the rounding of bfloat16 and noise that a device draws
  (NEFTune). An evaluation of a stream counts the samples of its last batch; accelerate on XLA otherwise does not.
  accelerate gathers no objects on XLA (`gather_object`, `use_gather_object=True`): it raises `NotImplementedError`.
  `Trainer(torch_compile=True)`, `Accelerator(dynamo_backend=...)` and `accelerator.save_model` work; on other
  XLA devices they fail in accelerate. `Trainer(fsdp=...)`, `Accelerator(fsdp_plugin=...)` and `parallelism_config=`
  are refused by name: shard the model with `pw.prepare(model, strategy="fsdp")` before it is given to either.
  A captured step (`pw.program`) needs the optimizer itself; with accelerate's wrapper of it the step is traced, with a
  warning."""


def notes(pairs: Sequence[tuple[str, str]]) -> str:
    """A list of what there is to say, by name."""
    return "\n".join(f"- **{name}**: {note}." for name, note in pairs)
