"""Programs to files that run without their Python, and without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptpathways import core, programs
from ptpathways.frontend.dataflow import _function
from ptpathways.frontend.slices._future import DEFAULT_TIMEOUT_S, Future
from ptpathways.frontend.xla import _dtypes

if TYPE_CHECKING:
    import numpy.typing as npt

    from ptpathways.frontend.dataflow._arguments import HostValue
    from ptpathways.frontend.dataflow._graph import Stage


def bundle(
    stage: Stage, modules: dict[str, bytes], leaves: Sequence[Any], kept: set[int], label: str
) -> programs.Bundle:
    """A program's only stage as a bundle.

    Args:
        leaves: values of the program's arguments, by leaf; empty: none are known.
        kept: the leaves whose values go into the file.

    Raises:
        InvalidProgram: it computes nothing, or has an irregular function.
        As ``Future.result``: a value that cannot be had.
    """
    if stage.call is not None:
        raise core.InvalidProgram(
            f"program {label} calls the irregular function {stage.call.function.label}, which is Python that a saved "
            "program cannot run; save a program of the regular part"
        )
    if stage.program is None:
        raise core.InvalidProgram(f"program {label} computes nothing, so there is nothing to save")
    values: dict[int, npt.NDArray[Any]] = {}
    for number, feed in enumerate(stage.feeds):
        kind, leaf, _ = feed.key
        if kind == "seed":
            values[number] = np.asarray(0, np.int64)
        elif kind == "constant":
            values[number] = _array(Future(feed.constant, feed.layout))
        elif leaves and leaf in kept:
            values[number] = _array(leaves[leaf])
    return programs.Bundle(stage.program, modules, values)


def kept_leaves(weights: Sequence[int] | None, structure: Any, label: str) -> set[int]:
    """Leaves of the arguments at the positions ``weights``; None: all. Raises ValueError for one that is not there."""
    if weights is None:
        return set(range(structure.num_leaves))
    return _function.leaves_at(weights, structure, f"weights of {label}")


def _array(leaf: Future | HostValue) -> npt.NDArray[Any]:
    tensor = leaf.result(DEFAULT_TIMEOUT_S) if isinstance(leaf, Future) else leaf.tensor
    return _dtypes.to_numpy(tensor)
