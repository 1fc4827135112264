"""``python -m ptpathways.cli._plain script.py ARGS``: runs a program that knows only PyTorch's device ``xla``.

The process joins the cluster before the program begins, and each step of an optimizer cuts the trace, as ``prepare``
would have it do. The program is otherwise as under ``python script.py``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DEVICE = "xla"


def is_plain(script: str, arguments: Sequence[str]) -> bool:
    """Whether a program names the device, in its text or its arguments, or imports torch_xla; and not ptpathways.

    A file that is not Python, or cannot be read, is for the interpreter to refuse.
    """
    try:
        text = Path(script).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return False
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    if imported & {"ptpathways", "torch_xla"}:
        return "ptpathways" not in imported
    named = any(isinstance(node, ast.Constant) and _names(node.value) for node in ast.walk(tree))
    return named or any(_names(argument.rpartition("=")[2]) for argument in arguments)


def _names(value: Any) -> bool:
    return isinstance(value, str) and (value == DEVICE or value.startswith(f"{DEVICE}:"))


def main(script: str, arguments: Sequence[str]) -> None:
    """Joins the cluster of the environment and runs the script as ``__main__``."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from ptpathways import frontend, launch

    frontend.init()

    def cut(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        places = {parameter.device for group in optimizer.param_groups for parameter in group["params"]}
        if any(place.type == DEVICE for place in places):
            frontend.step()

    register_optimizer_step_post_hook(cut)
    launch.run_program(script, arguments, module=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
