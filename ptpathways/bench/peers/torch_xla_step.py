"""Process of ``step`` and ``train``: training steps on PyTorch/XLA's own CPU device, in its own process.

Argument: the training's name.
"""

from __future__ import annotations

import os
import sys

from ptpathways.bench._child import serve


def main() -> None:
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch_xla

    from ptpathways.bench._step_loop import Loop

    serve(Loop(sys.argv[1], torch_xla.device(), torch_xla.sync).answer)


if __name__ == "__main__":
    main()
