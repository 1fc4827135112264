"""Packed sequences (``torch.nn.utils.rnn``), of which PyTorch/XLA packs wrong steps and unpacks none.

Which row goes where depends on the lengths alone, which are on the client: each way is one choice of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def pack(values: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps of all sequences, one after the other, and how many sequences take part in each.

    Args:
        values: (longest, batch, ...), or (batch, longest, ...) with ``batch_first``.
        lengths: (batch,), int64, on the CPU, the longest first.

    Returns:
        (sum of lengths, ...) on the device and (longest,), int64, on the CPU.

    Raises:
        RuntimeError: lengths that are no such, as torch.
    """
    import torch

    given = lengths.tolist()
    batch = values.shape[0 if batch_first else 1]
    longest = values.shape[1 if batch_first else 0]
    if len(given) != batch:
        raise RuntimeError(f"Expected as many lengths as there are sequences ({batch}), got {len(given)}")
    if min(given, default=0) <= 0:
        raise RuntimeError(f"Expected lengths above 0, got {min(given, default='none')}")
    if given != sorted(given, reverse=True):
        raise RuntimeError(
            "Expected lengths from the longest to the shortest; sort the sequences, or pack them with "
            "enforce_sorted=False, which sorts them"
        )
    if given[0] > longest:
        raise RuntimeError(f"Expected values of as many steps as the longest sequence has ({given[0]}), got {longest}")
    sizes = [sum(length > step for length in given) for step in range(given[0])]
    rows = [
        (place * longest + step) if batch_first else (step * batch + place)
        for step, size in enumerate(sizes)
        for place in range(size)
    ]
    return values.flatten(0, 1).index_select(0, torch.tensor(rows).to(values.device)), torch.tensor(sizes)


def pad(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: complex, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``pack`` was given, with ``padding_value`` where no sequence is, and the lengths.

    Raises:
        RuntimeError: ``total_length`` is above 0 and below the longest sequence, as torch.
    """
    import torch

    sizes = batch_sizes.tolist()
    batch, longest = sizes[0], len(sizes)
    if 0 < total_length < longest:
        raise RuntimeError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    starts = [sum(sizes[:step]) for step in range(longest)]
    steps, nothing = max(total_length, longest), data.shape[0]

    def row(step: int, place: int) -> int:
        return starts[step] + place if step < longest and place < sizes[step] else nothing

    order = [(step, place) for step in range(steps) for place in range(batch)]
    if batch_first:
        order = [(step, place) for place in range(batch) for step in range(steps)]
    rows = torch.tensor([row(*at) for at in order]).to(data.device)
    padding = torch.full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    values = torch.cat([data, padding]).index_select(0, rows)
    lengths = [sum(place < size for size in sizes) for place in range(batch)]
    return values.reshape(*((batch, steps) if batch_first else (steps, batch)), *data.shape[1:]), torch.tensor(lengths)


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"_pack_padded_sequence": pack, "_pad_packed_sequence": pad}
