"""Process of ``step``: the training step on PyTorch/XLA's own CPU device, in its own process."""

from __future__ import annotations

import os

from ptpathways.bench._child import serve


def main() -> None:
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch_xla

    from ptpathways.bench._step_loop import Loop

    serve(Loop(torch_xla.device(), torch_xla.sync).answer)


if __name__ == "__main__":
    main()
