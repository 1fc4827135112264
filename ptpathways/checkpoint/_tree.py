"""State dictionaries as JSON: what JSON lacks is tagged, and tensors are left out and named.

``{"$tuple": [...]}``, ``{"$dict": [[key, value], ...]}`` for keys that are no plain texts, ``{"$tensor": name}`` and so
on. What has no form here is pickled (``{"$pickle": base64}``), and then only read by those who allow it. Mappings that
are neither dictionaries nor of the standard library's ``collections`` become dictionaries.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ptpathways.core import CheckpointError

Path = tuple[Any, ...]

_TYPES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, Counter, OrderedDict)
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in _TYPES}
"""Of dictionaries with a default; one with another, or a function, becomes a plain dictionary."""
_FACTORY_NAMES = {kind: name for name, kind in _FACTORIES.items()}
_TYPED = ("$ordered", "$counter", "$defaultdict")


def encode(value: Any, name: str, keep: Callable[[torch.Tensor, str], str]) -> Any:
    """A value as JSON.

    Args:
        name: of the value, for the tensors in it: ``"optimizer"`` gives ``"optimizer.state.0.exp_avg"``.
        keep: takes a tensor and a name for it; returns the name under which it is kept.

    Raises:
        CheckpointError: a value that cannot be pickled either.
    """
    if isinstance(value, torch.Tensor):
        kind = "$parameter" if isinstance(value, torch.nn.Parameter) else "$tensor"
        return {kind: keep(value, name)}
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, Mapping):
        return _typed(value, _items(value, name, keep))
    if isinstance(value, torch.Size):
        return {"$size": list(value)}
    if type(value) is tuple or type(value) is list:
        parts = [encode(item, f"{name}.{index}", keep) for index, item in enumerate(value)]
        return parts if type(value) is list else {"$tuple": parts}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"$complex": [value.real, value.imag]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and value.dtype.isnative:
        return {
            "$array": value.dtype.str,
            "shape": list(value.shape),
            "data": base64.b64encode(value.tobytes()).decode(),
        }
    if isinstance(value, np.bool_ | np.integer | np.floating) and type(value) is not np.longdouble:
        return {"$scalar": value.dtype.str, "value": value.item()}
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    try:
        return {"$pickle": base64.b64encode(pickle.dumps(value)).decode(), "type": type(value).__qualname__}
    except Exception as error:
        raise CheckpointError(
            f"cannot save {name}, a {type(value).__module__}.{type(value).__qualname__}: it has no state_dict() and "
            f"cannot be pickled ({error})"
        ) from error


def _items(value: Mapping[Any, Any], name: str, keep: Callable[[torch.Tensor, str], str]) -> Any:
    items = {key: encode(item, f"{name}.{key}", keep) for key, item in value.items()}
    if all(isinstance(key, str) and not key.startswith("$") for key in items):
        return items
    return {"$dict": [[encode(key, name, keep), item] for key, item in items.items()]}


def _typed(value: Mapping[Any, Any], items: Any) -> Any:
    """The items of a mapping with its type."""
    if type(value) is OrderedDict:
        return {"$ordered": items}
    if type(value) is Counter:
        return {"$counter": items}
    if type(value) is defaultdict and value.default_factory is None:
        return {"$defaultdict": items, "factory": None}
    if type(value) is defaultdict and isinstance(value.default_factory, type):
        factory = _FACTORY_NAMES.get(value.default_factory)
        return items if factory is None else {"$defaultdict": items, "factory": factory}
    return items


def untyped(tree: Any) -> Any:
    """The tree of a mapping without its type, so that plain names are its keys; anything else as it is."""
    tag = next((tag for tag in _TYPED if isinstance(tree, dict) and tag in tree), None)
    return tree if tag is None else tree[tag]


def decode(tree: Any, tensor: Callable[[str, Path], Any], *, allow_pickle: bool, path: Path = ()) -> Any:
    """What ``encode`` was given.

    Args:
        tensor: gives the tensor of a name, for the place with this path of keys.

    Raises:
        CheckpointError: a pickled value, without ``allow_pickle``.
    """

    def inner(item: Any, key: Any) -> Any:
        return decode(item, tensor, allow_pickle=allow_pickle, path=(*path, key))

    if isinstance(tree, list):
        return [inner(item, index) for index, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    tag = next((key for key in tree if key.startswith("$")), None)
    if tag is None:
        return {key: inner(item, key) for key, item in tree.items()}
    body = tree[tag]
    if tag in ("$tensor", "$parameter"):
        return tensor(body, path)
    if tag == "$dict":
        keys = [inner(key, None) for key, _ in body]
        return {key: inner(item, key) for key, (_, item) in zip(keys, body, strict=True)}
    if tag in _TYPED:
        found = decode(body, tensor, allow_pickle=allow_pickle, path=path)
        if tag == "$defaultdict":
            return defaultdict(None if tree["factory"] is None else _FACTORIES[tree["factory"]], found)
        return Counter(found) if tag == "$counter" else OrderedDict(found)
    if tag == "$tuple":
        return tuple(inner(item, index) for index, item in enumerate(body))
    if tag == "$size":
        return torch.Size(body)
    if tag == "$bytes":
        return base64.b64decode(body)
    if tag == "$complex":
        return complex(*body)
    if tag == "$array":
        return np.frombuffer(base64.b64decode(tree["data"]), dtype=body).reshape(tree["shape"]).copy()
    if tag == "$scalar":
        return np.dtype(body).type(tree["value"])
    if tag == "$dtype":
        return getattr(torch, body)
    if tag == "$device":
        return torch.device(body)
    if tag == "$pickle":
        if not allow_pickle:
            raise CheckpointError(
                f"{'.'.join(map(str, path)) or 'a value'} is a pickled {tree['type']}, and to read it may run code of "
                "whoever wrote it; if you trust the checkpoint say allow_pickle=True"
            )
        return pickle.load(io.BytesIO(base64.b64decode(body)))
    raise CheckpointError(f"the checkpoint has a value of a kind that this version does not know: {tag}")


def tensors_in(tree: Any) -> dict[Path, str]:
    """The names of the tensors in a tree, by the path of keys to them."""
    found: dict[Path, str] = {}

    def note(name: str, path: Path) -> None:
        found[path] = name

    decode(without_pickles(tree), note, allow_pickle=False)
    return found


def without_pickles(tree: Any) -> Any:
    """The tree with None where something is pickled."""
    if isinstance(tree, list):
        return [without_pickles(item) for item in tree]
    if isinstance(tree, dict):
        return None if "$pickle" in tree else {key: without_pickles(item) for key, item in tree.items()}
    return tree


def at(value: Any, path: Path) -> Any:
    """What is at a path of keys in dictionaries, lists and tuples; None when there is nothing."""
    for key in path:
        if isinstance(value, Mapping) and key not in value:  # one with a default would make it
            return None
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
