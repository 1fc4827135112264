"""Operands on two slices: each mistake is refused at its line, with both tensors and both slices."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch_xla
from torch import nn
from torch.utils.checkpoint import checkpoint

import ptpathways as pw
from tests.proc.cluster_scenarios import equal, refused, run


def line_below() -> str:
    """``file:line`` of the line after the caller's."""
    frame = sys._getframe(1)
    return f"{__file__}:{frame.f_lineno + 1} "


def modes() -> int:
    """How many function modes torch has in this thread."""
    return int(torch._C._len_torch_function_stack())


def unseen(attempt: Callable[[], Any]) -> Callable[[], Any]:
    """``attempt`` in a thread that has asked for no device, whose calls are not looked at."""

    def inside() -> Any:
        outcome: list[Any] = []

        def body() -> None:
            try:
                outcome.append((attempt(), None))
            except Exception as error:
                outcome.append((None, error))

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    return inside


def both(s: pw.VirtualSlice, t: pw.VirtualSlice) -> tuple[str, str]:
    return f"{s.name} (xla:{s.device.index}, ", f"{t.name} (xla:{t.device.index}, "


def a_program_with_one_slice_is_not_looked_at(cluster: pw.Cluster) -> None:
    """The first one: nothing has asked for another slice yet."""
    with cluster.slice((2,)) as s:
        model = nn.Linear(8, 4).to(s.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = pw.prepare(model, optimizer, slice=s)
        model(torch.ones(4, 8).to(s.device)).sum().backward()
        optimizer.step()
        pw.step()
        assert modes() == 0
        with cluster.slice((2,)) as t:
            assert modes() == 0  # it is for functions as yet
            with torch.device("cpu"):
                assert t.device != s.device and modes() == 2
                assert torch.zeros(2).device.type == "cpu"
            assert modes() == 1
            torch.set_default_device(t.device)
            assert torch.zeros(2).device == t.device
        assert modes() == 1
        with cluster.slice((2,)) as t:
            assert t.device != s.device and modes() == 2
            torch.set_default_device(None)
            assert modes() == 1 and torch.zeros(2).device.type == "cpu"
        assert modes() == 0
        equal((torch.ones(2).to(s.device) + 1).cpu(), torch.full((2,), 2.0))


def a_batch_on_another_slice_than_its_model_is_refused(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).to(s.device)
        prepared, optimizer = nn.Linear(8, 16), None
        optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
        prepared, optimizer = pw.prepare(prepared, optimizer, slice=s)
        batch = torch.ones(4, 8).to(t.device)
        wanted = ("linear()", "batch, of shape (4, 8) and float32", "shape (16, 8) and float32", *both(s, t))

        def step(model: nn.Module) -> Any:
            return model(batch).sum().backward()

        line = f"operand_scenarios.py:{step.__code__.co_firstlineno + 1} "
        for model in (plain, prepared):
            text = refused(pw.DifferentSlices, (*wanted, line), partial(step, model))
            assert "batch.to(" in text, text
        step_again = plain(batch.to(s.device)).sum()  # nothing else is harmed
        step_again.backward()
        assert plain[0].weight.grad is not None and plain[0].weight.grad.cpu().shape == (16, 8)


def what_was_computed_on_two_slices_is_named_and_no_number_is(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((1,)) as t:
        a, b = torch.ones(4, 2).to(s.device), torch.ones(2, dtype=torch.float64).to(t.device)
        wanted = ("shape (4, 2) and float32", "shape (2,) and float64", *both(s, t))
        where = line_below()
        text = refused(pw.DifferentSlices, (*wanted, where, "add()"), lambda: a * 2 + b * 3)
        assert "shape ()" not in text, text
        where = line_below()
        refused(pw.DifferentSlices, (*wanted, where, "mul_()"), lambda: a.mul_(b))
        equal((a + 1).cpu(), torch.full((4, 2), 2.0))


def constants_have_slices_too(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        a = torch.zeros(4, 3, device=s.device)
        b = torch.ones(3, device=t.device)
        wanted = ("a, of shape (4, 3) and float32", "shape (3,) and float32", *both(s, t))
        where = line_below()
        refused(pw.DifferentSlices, (*wanted, where, "add()"), lambda: a + torch.ones(3, device=t.device))
        where = line_below()
        refused(pw.DifferentSlices, (*wanted, where, "clamp()"), lambda: torch.clamp(a, min=b))


def a_result_on_another_slice_is_not_written(cluster: pw.Cluster) -> None:
    with cluster.slice((1,)) as s, cluster.slice((1,)) as t:
        a, b = torch.ones(3).to(s.device), torch.full((3,), 5.0).to(t.device)
        for call in (lambda: torch.add(a, a, out=b), lambda: torch.exp(a, out=b)):
            refused(pw.DifferentSlices, ("a, of shape (3,)", "b, of shape (3,)", *both(s, t)), call)
            assert b.device == t.device
            equal(b.cpu(), torch.full((3,), 5.0))


def every_kind_of_call_is_looked_at(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        x, y, places = (
            torch.ones(4, 8).to(s.device),
            torch.ones(3, 8).to(t.device),
            torch.tensor([0, 1]).to(t.device),
        )
        recurrent = nn.LSTM(8, 8).to(s.device)
        lists = [x.clone(), y.clone()]

        def assign() -> None:
            x[0] = y[0]

        def gradient() -> None:
            weight = nn.Parameter(torch.ones(5).to(s.device))
            weight.grad = torch.ones(5).to(t.device)

        cases: list[tuple[Callable[[], Any], str, str, str]] = [
            (lambda: torch.cat([x, y]), "cat()", "(4, 8)", "(3, 8)"),
            (lambda: x[places], "getitem()", "(4, 8)", "(2,) and int64"),
            (assign, "setitem()", "(4, 8)", "(8,)"),
            (lambda: F.mse_loss(input=x[:3], target=y), "mse_loss()", "(3, 8)", "(3, 8)"),
            (lambda: torch.add(x, x, out=torch.empty(4, 8, device=t.device)), "add()", "(4, 8)", "(4, 8)"),
            (lambda: recurrent(y[:, None]), "lstm()", "(3, 1, 8)", "(32, 8)"),
            (gradient, "grad.__set__()", "(5,)", "(5,)"),
            (lambda: torch._foreach_add_(lists, [x, x[:3]]), "_foreach_add_()", "(3, 8)", "(3, 8)"),
            (lambda: torch.func.vmap(torch.mul)(x[:3], y), "mul()", "(8,)", "(8,)"),
            (lambda: checkpoint(torch.matmul, x, y.T, use_reentrant=False), "matmul()", "(4, 8)", "(8, 3)"),
        ]
        for attempt, name, one, two in cases:
            text = refused(pw.DifferentSlices, (name, f"shape {one}", f"shape {two}", *both(s, t)), attempt)
            first = attempt.__code__.co_firstlineno
            last = first + (2 if attempt.__name__ != "<lambda>" else 0)
            assert any(f"{__file__}:{number} " in text for number in range(first, last + 1)), (first, text)


def what_may_take_two_slices_still_does(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        x, y = torch.ones(4).to(s.device), torch.full((4,), 2.0).to(t.device)
        assert y.to(x).device == s.device
        x.copy_(y)
        equal(x.cpu(), torch.full((4,), 2.0))
        torch._foreach_add_([x, y], [torch.ones(4).to(s.device), torch.ones(4).to(t.device)])
        equal((x.cpu(), y.cpu()), (torch.full((4,), 3.0), torch.full((4,), 3.0)))
        x.data = y
        assert x.device == t.device
        torch.autograd.backward([torch.ones((), device=one.device, requires_grad=True) * 2 for one in (s, t)])
        add = pw.function(lambda a, b: a + b, slice=s)  # moves its arguments
        equal(add(torch.ones(4).to(s.device), torch.ones(4).to(t.device)), torch.full((4,), 2.0))
        layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(t.device)
        compiled = torch.compile(layer, backend="openxla")
        equal(compiled(y).detach().cpu(), layer(y).detach().cpu())


class Strays(torch.autograd.Function):
    """Its gradient is on the slice ``to``."""

    to: torch.device

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.to(Strays.to)


def a_gradient_on_another_slice_is_refused(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        Strays.to = t.device
        weight = torch.ones(3, 5).to(s.device).requires_grad_()
        stray: Any = Strays.apply
        wanted = ("StraysBackward", "shape (3, 5) and float32", *both(s, t))
        loss = stray(weight * 2).sum()
        where = line_below().strip()
        refused(pw.DifferentSlices, (*wanted, where), lambda: loss.backward())
        loss = stray(weight * 2).sum()
        where = line_below().strip()
        refused(pw.DifferentSlices, (*wanted, where), lambda: torch.autograd.grad(loss, weight))


def threads_are_looked_at_from_their_first_use_of_a_slice(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((2,)) as t:
        x, place = torch.ones(4, 2).to(s.device), t.device

        def mixes() -> None:
            y = torch.ones(2).to(place)
            _ = x + y

        line = f"{__file__}:{mixes.__code__.co_firstlineno + 2} "
        wanted = (line, "x, of shape (4, 2) and float32", "y, of shape (2,) and float32", *both(s, t))
        refused(pw.DifferentSlices, wanted, unseen(mixes))


def what_was_not_looked_at_is_refused_when_it_is_submitted(cluster: pw.Cluster) -> None:
    with cluster.slice((2,)) as s, cluster.slice((1,)) as t:
        a, b = torch.ones(4, 2).to(s.device), torch.ones(2, dtype=torch.float64).to(t.device)
        wanted = ("f32[4,2]", "f64[2]", f"xla:{s.device.index}", f"xla:{t.device.index}", "lie on one slice")
        text = refused(RuntimeError, (*wanted, "'add'", "XLA_IR_DEBUG=1"), unseen(lambda: (a + b).sum().item()))
        assert "operand_scenarios.py:" in text and "f32[]" not in text
        x, y = torch.ones(4, 4).to(s.device), torch.ones(4, 4).to(t.device)
        types = ("'add' takes", f"f32[4,4] on xla:{s.device.index}", f"f32[4,4] on xla:{t.device.index}")
        text = refused(RuntimeError, types, unseen(lambda: (x * 2 + y * 3).sum().item()))
        assert "f32[]" not in text, text
        torch_xla._XLAC._set_ir_debug(True)  # what XLA_IR_DEBUG=1 does
        try:
            wrong, line = unseen(lambda: a * b.float())(), sys._getframe().f_lineno
            refused(RuntimeError, ("'multiply'", f"{__file__}:{line})"), lambda: wrong.sum().item())
        finally:
            torch_xla._XLAC._set_ir_debug(False)
        equal((a + 1).cpu(), torch.full((4, 2), 2.0))  # nothing else is harmed


SCENARIOS = (
    a_program_with_one_slice_is_not_looked_at,
    a_batch_on_another_slice_than_its_model_is_refused,
    what_was_computed_on_two_slices_is_named_and_no_number_is,
    constants_have_slices_too,
    a_result_on_another_slice_is_not_written,
    every_kind_of_call_is_looked_at,
    what_may_take_two_slices_still_does,
    a_gradient_on_another_slice_is_refused,
    threads_are_looked_at_from_their_first_use_of_a_slice,
    what_was_not_looked_at_is_refused_when_it_is_submitted,
)


if __name__ == "__main__":
    run(SCENARIOS, hosts=2, islands=1)
