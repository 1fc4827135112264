"""What torch refuses, by its own database of operators (``OpInfo.error_inputs``): a device must refuse it when the
operator is called. Found out when the step is compiled, all that was traced with it would be lost.

``python -m tests.fuzz.error_inputs [NAME ...]`` prints what is not refused: ``later``, if reading the result raises, or
``computed``. Left are values on devices, which nobody looks at (indices out of range, probabilities), ``out=`` tensors
that lie in the memory of an argument, and tensors of more than 64 dimensions.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree


def unrefused(names: Collection[str], device: torch.device) -> Iterator[tuple[str, str, int, str]]:
    """How an operator took what it should refuse, its name, the number of the sample, and what torch says of it."""
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        if operator.error_inputs_func is None or (names and operator.name not in names):
            continue
        for number, case in enumerate(operator.error_inputs("cpu")):
            sample = case.sample_input
            try:
                operator(sample.input, *sample.args, **sample.kwargs)
            except Exception as error:
                said = " ".join(str(error).split())
            else:
                continue  # as some are only for other devices
            found = _on(device, operator, sample)
            if found:
                yield found, operator.name, number, said


def _on(device: torch.device, operator: Any, sample: Any) -> str:
    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device)
        return device if value == "cpu" else value

    given = pytree.tree_map(moved, (sample.input, sample.args, sample.kwargs))
    try:
        result = operator(given[0], *given[1], **given[2])
    except Exception:
        return ""
    try:
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                leaf.cpu()
    except Exception:
        return "later"
    return "computed"


def main() -> None:
    import ptpathways as pw

    warnings.simplefilter("ignore")
    pw.init(hosts=1, devices_per_host=1)
    for found, name, number, said in unrefused(sys.argv[1:], pw.device()):
        print(f"{found} {name} {number}: {said[:120]}", flush=True)


if __name__ == "__main__":
    main()
