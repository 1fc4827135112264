"""Checks of arguments before kernels: what torch refuses, and PyTorch/XLA takes.

Tables ``CHECKED`` (and ``CHECKED_ABOVE_AUTOGRAD``) of other modules say of which operations what is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ptpathways.frontend.xla._plain import Plain, hands_on, of_wrapper

Kernel = Callable[..., Any]


class Check(Protocol):
    """What is asked of an operation's arguments."""

    @property
    def plain(self) -> Plain | None:
        """Of which arguments nothing is; None: there are none."""

    def check(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """
        Raises:
            RuntimeError: they are refused.
        """


def before(name: str, refusal: Check, wrapper: Kernel) -> Kernel:
    """``wrapper``, of which ``name`` is checked. Calls of which nothing is refused are as plain as they were."""

    def checked(kernel: Kernel, *arguments: Any, **named: Any) -> Any:
        refusal.check(name, arguments, named)
        return wrapper(kernel, *arguments, **named)

    plain = of_wrapper(wrapper)
    return checked if plain is None or refusal.plain is None else hands_on(plain | refusal.plain)(checked)


def before_replaced(name: str, refusal: Check, replacement: Kernel) -> Kernel:
    """As ``before``, of a kernel that has taken the place of PyTorch/XLA's."""

    def checked(*arguments: Any, **named: Any) -> Any:
        refusal.check(name, arguments, named)
        return replacement(*arguments, **named)

    return checked


@hands_on(Plain(0))
def as_it_is(kernel: Kernel, *arguments: Any, **named: Any) -> Any:
    return kernel(*arguments, **named)


def put_before(checks: Mapping[str, Check], replaced: dict[str, Kernel], wrapped: dict[str, Kernel]) -> None:
    """Puts checks before the kernels of two tables, and those of operations that are in neither in the second."""
    for name, refusal in checks.items():
        if name in replaced:
            replaced[name] = before_replaced(name, refusal, replaced[name])
        else:
            wrapped[name] = before(name, refusal, wrapped.get(name, as_it_is))
