"""What ``pw.pipeline`` may be given: checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptpathways import core, frontend, schedules
from ptpathways.frontend import VirtualSlice


def check_callables(loss: Any, optimizer: Any, placements: Any) -> None:
    """Raises TypeError if one of them is no function as it has to be."""
    if not callable(optimizer):
        raise TypeError(
            "optimizer must be a function that makes one of the parameters that it is called with, such as lambda "
            f"parameters: torch.optim.AdamW(parameters), got {type(optimizer).__name__}"
        )
    if loss is not None and (not callable(loss) or isinstance(loss, type)):
        raise TypeError(
            "loss must be a function of the model's output and the batch's last tensor, or a module such as "
            f"nn.MSELoss(), got {loss!r}"
        )
    if placements is not None and not callable(placements):
        raise TypeError(
            f"placements must be a function of a parameter's name and value that says how it lies, got {placements!r}"
        )


def check_norm(largest: Any) -> None:
    """Raises PipelineError if gradients' norms cannot be limited to it."""
    fits = largest is None or (isinstance(largest, int | float) and not isinstance(largest, bool) and largest >= 0)
    if not fits:
        raise core.PipelineError(
            "clip_grad_norm must be the largest norm of all gradients, a number of at least 0, or None, got "
            f"{largest!r}"
        )


def size_of(stages: int, slices: Sequence[Any], microbatches: int, schedule: schedules.Schedule) -> schedules.Size:
    if not isinstance(microbatches, int) or microbatches < 1:
        raise core.PipelineError(f"microbatches must be an integer of at least 1, got {microbatches!r}")
    wrong = next((one for one in slices if not isinstance(one, VirtualSlice)), None)
    if wrong is not None:
        raise TypeError(f"slices must be slices from cluster.slice(), got {wrong!r}")
    if not slices or stages < 1 or stages % len(slices):
        raise core.PipelineError(
            f"the number of stages must be a multiple of the number of slices, got {stages} stages and {len(slices)} "
            'slices; give one slice per stage, or with schedule="interleaved" one per so many stages'
        )
    size = schedules.Size(len(slices), microbatches, stages // len(slices))
    schedule.order(size)
    return size


def equal_slices(stages: int) -> list[VirtualSlice]:
    cluster = frontend.cluster()
    size = cluster.device_count // max(stages, 1)
    if size == 0:
        raise core.PipelineError(
            f"each of {stages} stages needs a device of its own, and the cluster has {cluster.device_count}; give "
            "slices= for several stages on each"
        )
    return [cluster.slice((size,)) for _ in range(stages)]
