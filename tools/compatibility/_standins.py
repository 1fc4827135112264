"""Data for programs that would download theirs, from packages that are installed, and the randomness of a comparison.

Both runs of a program, the plain one and the one on the cluster, have these.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TRAINING_IMAGES = 1280


def install(kind: str, folder: Path) -> None:
    """Puts the data called ``kind`` where a program finds it: in modules, or in ``folder``, its working folder.

    Raises:
        ValueError: there is no such data.
    """
    makers: dict[str, Callable[[Path], None]] = {
        "none": lambda unused: None,
        "digits": _digits,
        "text": _text,
        "photographs": _photographs,
        "waves": _waves,
    }
    if kind not in makers:
        raise ValueError(f"data must be one of {', '.join(makers)}, got {kind!r}")
    makers[kind](folder)


def _digits(folder: Path) -> None:
    """scikit-learn's digits, enlarged to 28 x 28, behind the interface of ``torchvision.datasets.MNIST``."""
    from PIL import Image
    from sklearn import datasets as sklearn_datasets
    from torchvision import datasets

    loaded: Any = sklearn_datasets.load_digits()
    small = torch.from_numpy(loaded.images).float().unsqueeze(1)
    large = torch.nn.functional.interpolate(small, size=(28, 28), mode="bilinear")
    images = (large.squeeze(1) * (255 / 16)).to(torch.uint8)
    labels = torch.from_numpy(loaded.target).long()

    class Digits(torch.utils.data.Dataset[Any]):
        def __init__(self, root: Any, train: bool = True, transform: Any = None, download: bool = False) -> None:
            part = slice(None, TRAINING_IMAGES) if train else slice(TRAINING_IMAGES, None)
            self.data, self.targets, self._transform = images[part], labels[part], transform

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> Any:
            image: Any = Image.fromarray(self.data[index].numpy())
            return (self._transform(image) if self._transform is not None else image), int(self.targets[index])

    datasets.MNIST = Digits
    (folder / "results").mkdir()


def _text(folder: Path) -> None:
    """Python's own documentation of its language, as the three files of a corpus."""
    import importlib

    topics = importlib.import_module("pydoc_data.topics").topics
    words = " ".join(topics[name] for name in sorted(topics)).split()
    target = folder / "text"
    target.mkdir()
    for name, first, count in (("train", 0, 6700), ("valid", 6700, 400), ("test", 7100, 400)):
        (target / f"{name}.txt").write_text(" ".join(words[first : first + count]) + "\n", encoding="utf8")


def _photographs(folder: Path) -> None:
    """Parts of scikit-learn's two photographs, in the folders where the BSDS300 set would be; and a module ``six``."""
    from PIL import Image
    from sklearn import datasets as sklearn_datasets

    six = types.ModuleType("six")
    six.moves = types.ModuleType("six.moves")  # type: ignore[attr-defined]
    six.moves.urllib = types.ModuleType("urllib")
    sys.modules.update({"six": six, "six.moves": six.moves})
    for name in ("train", "test"):
        (folder / "dataset/BSDS300/images" / name).mkdir(parents=True)
    loaded: Any = sklearn_datasets.load_sample_images()
    number = 0
    for photograph in loaded.images:
        for top in range(0, photograph.shape[0] - 256, 20):
            for left in range(0, photograph.shape[1] - 256, 64):
                part = "test" if number % 12 == 0 else "train"
                crop = Image.fromarray(photograph[top : top + 256, left : left + 256])
                crop.save(folder / "dataset/BSDS300/images" / part / f"{number}.png")
                number += 1


def _waves(folder: Path) -> None:
    """Short sine waves of several phases, in float64, where the program's own generator would put long ones."""
    import numpy as np

    phases = np.random.default_rng(2).integers(-20, 20, (35, 1))
    waves: Any = np.sin((np.arange(25)[None, :] + phases) / 5.0)
    torch.save(waves, folder / "traindata.pt")
    load = torch.load
    # An array, not a tensor: torch reads it only from who it is told to trust.
    torch.load = lambda file, **options: load(file, **{"weights_only": False, **options})


def same_randomness() -> None:
    """Dropout 0, and every normal or uniform number drawn on the CPU: devices draw others than PyTorch's CPU does."""

    def init(self: Any, p: float = 0.5, inplace: bool = False) -> None:
        torch.nn.Module.__init__(self)
        self.p, self.inplace = 0.0, inplace

    torch.nn.modules.dropout._DropoutNd.__init__ = init  # type: ignore[method-assign]
    drop = torch.nn.functional.dropout
    torch.nn.functional.dropout = lambda input, p=0.5, training=True, inplace=False: drop(input, 0.0, training, inplace)
    attend = torch.nn.functional.scaled_dot_product_attention

    def attend_to_all(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any = None,
        p: float = 0.0,
        *rest: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        **options: Any,
    ) -> Tensor:
        return attend(query, key, value, attn_mask if mask is None else mask, 0.0, *rest, **options)

    setattr(torch.nn.functional, "scaled_dot_product_attention", attend_to_all)  # noqa: B010  (mypy knows its type)
    for name in ("randn", "rand"):
        setattr(torch, name, _drawn_on_cpu(getattr(torch, name)))
    for name in ("randn_like", "rand_like"):
        setattr(torch, name, _like_on_cpu(getattr(torch, name.removesuffix("_like"))))
    for name in ("normal_", "uniform_"):
        setattr(torch.Tensor, name, _filled_on_cpu(getattr(torch.Tensor, name)))


def shake() -> None:
    """Changes each parameter by about one rounding when an optimizer gets it; see ``_training.train``."""
    generator = torch.Generator().manual_seed(2)
    add = torch.optim.Optimizer.add_param_group

    def added(self: Any, group: dict[str, Any]) -> None:
        add(self, group)
        with torch.no_grad():
            for parameter in self.param_groups[-1]["params"]:
                unit = torch.finfo(parameter.dtype).eps
                parameter.mul_(1 + unit * torch.empty_like(parameter).normal_(generator=generator))

    setattr(torch.optim.Optimizer, "add_param_group", added)  # noqa: B010  (mypy knows its type)


def _drawn_on_cpu(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def drawn(*size: Any, device: Any = None, **options: Any) -> Tensor:
        values = draw(*size, device="cpu", **options)
        return values if device is None else values.to(device)

    return drawn


def _like_on_cpu(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def drawn(like: Tensor, **options: Any) -> Tensor:
        return draw(like.shape, dtype=like.dtype, device=like.device, **options)

    return drawn


def _filled_on_cpu(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def filled(self: Tensor, *bounds: Any, **options: Any) -> Tensor:
        if self.device.type == "cpu":
            return fill(self, *bounds, **options)
        values = fill(torch.empty(self.shape, dtype=self.dtype), *bounds, **options)
        return self.copy_(values)

    return filled
