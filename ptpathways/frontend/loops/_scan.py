"""``torch_xla.experimental.scan`` (and so ``nn.GRU``) on any slice.

PyTorch/XLA traces the scanned function on its default device, whichever its tensors are on. It keeps what it has traced
by shapes and types alone: after a call without gradients, as in a validation, calls with them gave none. The GRU that
it puts in the place of ``nn.GRU`` refuses packed sequences and cannot scan tensors on the CPU; torch's own does these.
With ``batch_first`` its output of a sequence without a batch was transposed.

A scan's gradient has no gradient of its own, which autograd was not told: second gradients lacked a part, or there were
none. Where one may be asked for, the gradient is taken of a loop. Transforms of ``torch.func``, which know nothing of
scans, see only the loop.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from typing import Any

from ptpathways.frontend.slices import _rng


def register() -> None:
    """Makes scans run on the device of what they scan. Idempotent."""
    module = importlib.import_module("torch_xla.experimental.scan")
    plain: Any = module._scan_impl_flat
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def scan(fn: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        device = next((tensor.device for tensor in (*init, *xs) if tensor.device.type == "xla"), None)
        if device is None:
            return plain(fn, init, xs, *args, **kwargs)
        with _rng.OnDevice(device):
            return plain(fn, init, xs, *args, **kwargs)

    vars(module)["_scan_impl_flat"] = scan
    whole: Any = module.scan

    @functools.wraps(whole)
    def scan_anywhere(fn: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree

        on_device = any(tensor.device.type == "xla" for tensor in _pytree.tree_leaves((init, xs)))
        return whole(fn, init, xs, *args, **kwargs) if on_device and not _is_transformed() else _loop(fn, init, xs)

    vars(module)["scan"] = scan_anywhere
    vars(module)["value_and_grad_partitioned"] = _traced_by_all_that_counts(module.value_and_grad_partitioned)
    _give_second_gradients(module.Scan)
    _take_own_gru(importlib.import_module("torch_xla.experimental.gru").GRU)


def _is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is under way, or a forward gradient."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


def _give_second_gradients(scan: Any) -> None:
    """To scans of functions that draw no random numbers, of which a loop would draw others."""
    plain_forward, plain_backward = scan.forward, scan.backward

    @functools.wraps(plain_forward)
    def forward(ctx: Any, structure: Any, made: Any, step: Any, *rest: Any) -> Any:
        ctx._step = step
        return plain_forward(ctx, structure, made, step, *rest)

    @functools.wraps(plain_backward)
    def backward(ctx: Any, *gradients: Any) -> Any:
        import torch

        if not torch.is_grad_enabled():
            return plain_backward(ctx, *gradients)
        if not getattr(ctx._step, _PURE, False):
            raise NotImplementedError(
                "create_graph=True needs gradients of a scan's gradients, which are those of a function that draws no "
                "random numbers: say so with is_fn_pure=True (is_layer_pure=True of scan_layers), or call it in a loop"
            )
        return _gradients_of_loop(ctx, gradients)

    scan.forward, scan.backward = staticmethod(forward), staticmethod(backward)


_PURE = "_ptpathways_pure"


def _gradients_of_loop(ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """What ``Scan.backward`` returns, made of operations that autograd knows."""
    import torch
    from torch.utils import _pytree

    saved = _pytree.tree_unflatten(ctx.saved_tensors, ctx._saved_tensors_spec)
    leaves, structure = _pytree.tree_flatten((saved["init"], saved["xs"]))
    with torch.enable_grad():
        leaves = [leaf.clone() for leaf in leaves]  # one of them may be made of another
        carry, (ys, _) = _loop(ctx._step, *_pytree.tree_unflatten(leaves, structure))
    results = _pytree.tree_leaves((carry, ys))
    pairs = [pair for pair in zip(results, gradients, strict=True) if pair[0].requires_grad and pair[1] is not None]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    made, given = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(made, wanted, given, create_graph=True, allow_unused=True))
    return (*[None] * 5, *(next(found) if leaf.requires_grad else None for leaf in leaves))


def _traced_by_all_that_counts(plain: Any) -> Any:
    """PyTorch/XLA keeps what it has traced by function. Here a function is another one for inputs that need gradients,
    and under autocast."""
    functions: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(plain)
    def value_and_grad_partitioned(fn: Any, init: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils import _pytree

        pure = kwargs.get("is_fn_pure", False)

        def said(traced: Any) -> Any:
            vars(traced[0])[_PURE] = pure
            return traced

        cast = torch.get_autocast_dtype("xla") if torch.is_autocast_enabled("xla") else None
        key = (cast, *(tensor.requires_grad for tensor in _pytree.tree_leaves(xs)))
        try:
            of_fn = functions.setdefault(fn, {})
        except TypeError:  # it cannot be kept, by PyTorch/XLA neither
            return said(plain(fn, init, xs, *args, **kwargs))
        if key not in of_fn:
            held = weakref.ref(fn)

            def called(*given: Any) -> Any:
                function = held()
                assert function is not None  # who calls this holds it
                return function(*given)

            of_fn[key] = called
        return said(plain(of_fn[key], init, xs, *args, **kwargs))

    return value_and_grad_partitioned


def _take_own_gru(scanning: Any) -> None:
    from torch.nn.utils.rnn import PackedSequence

    plain = scanning.forward

    @functools.wraps(plain)
    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence) or input.device.type != "xla" or _is_transformed():
            return super(scanning, self).forward(input, hx)
        if input.dim() == 2 and self.batch_first and (hx is None or hx.dim() == 2):
            output, hidden = plain(self, input.unsqueeze(0), None if hx is None else hx.unsqueeze(1))
            return output.squeeze(0), hidden.squeeze(1)
        return plain(self, input, hx)

    scanning.forward = forward


def _loop(fn: Any, carry: Any, xs: Any) -> Any:
    """What a scan computes, along the first dimension of ``xs``, with tensors of the CPU."""
    import torch
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(xs)
    made: list[Any] = []
    for place in range(leaves[0].shape[0]):
        carry, y = fn(carry, _pytree.tree_unflatten([leaf[place] for leaf in leaves], structure))
        made.append(y)
    return carry, _pytree.tree_map(lambda *ys: torch.stack(ys), *made)
