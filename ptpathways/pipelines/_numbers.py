"""Python numbers in an optimizer's step that become inputs of the compiled update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Replace = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]


def _scaled(tensor: Any, number: Any) -> Any:
    return tensor if isinstance(number, int | float) and number == 1 else tensor * number


def _filled(like: Any, number: Tensor) -> Tensor:
    return number.to(like.dtype).expand(like.shape)


def _add(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    made: Tensor = args[0] + _scaled(args[1], kwargs.get("alpha", 1))
    return made


def _subtract(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    made: Tensor = args[0] - _scaled(args[1], kwargs.get("alpha", 1))
    return made


def _power(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return torch.pow(_filled(args[1], args[0]), args[1])


REPLACED: dict[str, Replace] = {
    "aten.add.Tensor": _add,
    "aten.add.Scalar": _add,
    "aten.sub.Tensor": _subtract,
    "aten.sub.Scalar": _subtract,
    "aten.rsub.Scalar": lambda args, kwargs: args[1] - args[0],
    "aten.mul.Tensor": lambda args, kwargs: args[0] * args[1],
    "aten.mul.Scalar": lambda args, kwargs: args[0] * args[1],
    "aten.div.Tensor": lambda args, kwargs: args[0] / args[1],
    "aten.div.Scalar": lambda args, kwargs: args[0] / args[1],
    "aten.lerp.Scalar": lambda args, kwargs: args[0] + (args[1] - args[0]) * args[2],
    "aten.addcmul.default": lambda args, kwargs: args[0] + _scaled(args[1] * args[2], kwargs.get("value", 1)),
    "aten.addcdiv.default": lambda args, kwargs: args[0] + _scaled(args[1], kwargs.get("value", 1)) / args[2],
    "aten.pow.Scalar": _power,
    "aten.full_like.default": lambda args, kwargs: _filled(args[0], args[1]),
}
"""The operations in which a number can be replaced by a tensor, with what is computed then."""

_SHORT = frozenset({torch.bfloat16, torch.float16})
"""Types in which a number such as 0.999 would be another one: torch computes with it in float32, and rounds then."""


class NumbersAsTensors(TorchDispatchMode):
    """Inside, where one of ``inputs`` meets a tensor in an operation of ``REPLACED``, its scalar tensor is used."""

    def __init__(self, inputs: dict[float, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inputs = inputs

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        numbers = [leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, float) and leaf in self._inputs]
        if not numbers:
            return function(*args, **kwargs)
        own = next(leaf.dtype for leaf in args if isinstance(leaf, Tensor))
        kind = torch.float32 if own in _SHORT else own

        def value(leaf: Any) -> Any:
            if isinstance(leaf, float) and leaf in self._inputs:
                return self._inputs[leaf].to(kind)
            return leaf.to(kind) if isinstance(leaf, Tensor) and leaf.dtype in _SHORT else leaf

        given = tuple(map(value, args)), {name: value(leaf) for name, leaf in kwargs.items()}
        return REPLACED[str(function)](*given).to(own)
