"""Values of a program that is being traced: they have a type and a place in the graph, and no elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ptpathways.frontend.xla import _dtypes
from ptpathways.frontend.xla._trace import TensorSpec

if TYPE_CHECKING:
    import torch

    from ptpathways.frontend.slices._future import Layout

Key = tuple[str, int, int]
"""What a value is called while its program runs: ("leaf", i, 0), ("out", segment, n), ("host", segment, n)..."""


class Value:
    """What a function called inside ``@pw.program`` gives: to be passed to other functions, or returned."""

    __slots__ = ("__weakref__", "key", "layout", "spec", "trace")

    def __init__(self, trace: Any, key: Key, spec: TensorSpec, layout: Layout | None) -> None:
        self.trace = trace
        self.key = key
        self.spec = spec
        self.layout = layout
        """None for an argument that comes from this process and is uploaded where it is first needed."""

    @property
    def shape(self) -> torch.Size:
        import torch

        return torch.Size(self.spec.shape)

    @property
    def dtype(self) -> torch.dtype:
        return _dtypes.torch_dtype(self.spec.dtype)

    def __repr__(self) -> str:
        return f"Value({self.layout or self.spec})"

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _refuse(f"torch.{getattr(function, '__name__', function)}")


def _refuse(operation: str) -> NoReturn:
    raise TypeError(
        f"{operation} on a value of a program that is being traced: it has no elements yet. A program only calls "
        "functions; put the operation into a @pw.function (one with regular=False may look at values)"
    )


def _refusal(name: str) -> Any:
    def refuse(self: Value, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(name)

    refuse.__name__ = name
    return refuse


_ARITHMETIC = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow")
_MORE = ("matmul", "rmatmul", "neg", "abs", "lt", "le", "gt", "ge", "bool", "float", "int", "index", "len", "iter")
for _name in (*_ARITHMETIC, *_MORE, "getitem", "array"):
    setattr(Value, f"__{_name}__", _refusal(f"__{_name}__"))
for _name in ("item", "tolist", "numpy", "cpu", "to", "result", "wait"):
    setattr(Value, _name, _refusal(f"{_name}()"))
