"""What a function mode is to call, where somebody has put his own in the place of one of torch's functions.

Torch looks the function up again by its name before it asks a mode. What it finds is then the one that stands there
now, which calls the one that was called: a wrapper would be applied once more by each mode.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any


def meant(function: Any) -> Any:
    """For ``__torch_function__`` of a mode, which calls this itself: the function of torch that was called."""
    if type(function) is not types.FunctionType or function.__code__.co_filename.startswith(_folder()):
        return function
    import torch
    from torch.overrides import handle_torch_function

    asking = sys._getframe(2)
    if asking.f_code is handle_torch_function.__code__ and asking.f_back is not None:
        code = asking.f_back.f_code  # that function is running, and gives all its arguments on
        if not code.co_freevars:
            return types.FunctionType(code, asking.f_back.f_globals, code.co_name)
    for name, value in vars(torch.Tensor).items():  # a method that is written in C
        if value is function:
            return getattr(torch._C.TensorBase, name, function)
    return function


@functools.cache
def _folder() -> str:
    import torch

    return os.path.dirname(torch.__file__) + os.sep
