"""Process of ``train``: training steps in eager PyTorch on the CPU. Argument: the training's name."""

from __future__ import annotations

import sys

import torch

from ptpathways.bench._child import serve
from ptpathways.bench._step_loop import Loop


def main() -> None:
    serve(Loop(sys.argv[1], torch.device("cpu")).answer)


if __name__ == "__main__":
    main()
