"""Backward passes in a process that ran one before ``init``.

torch starts a thread for each device at the first backward pass of a process, and never more. Where that was before
PyTorch/XLA had devices, a backward pass on one of them fails an assertion in torch. It can run in the thread that calls
it instead, which is no slower here, for it only traces.
"""

from __future__ import annotations

_NO_THREAD = "device_ready_queues_"
"""In torch's message."""


def register(last_device: int) -> None:
    """Makes backward passes of this thread work on torch's devices up to ``last_device``.

    Only where the threads are missing anything changes: ``torch.autograd.set_multithreading_enabled(False)``, which is
    a setting of the calling thread. Other threads of such a process have to call it themselves.
    """
    import torch

    with torch.enable_grad():
        probe = torch.ones((), device=torch.device("xla", last_device), requires_grad=True)
        try:
            torch.autograd.grad(probe * probe, probe)  # programs that count backward passes wrap Tensor.backward
        except RuntimeError as error:
            if _NO_THREAD not in str(error):
                raise
            torch.autograd.set_multithreading_enabled(False)
