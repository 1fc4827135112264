"""Operators on tensors that share memory with others, or have come from others. Run by `operator_scenarios.py`."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.proc.operator_basis import scenario

Part = Callable[[torch.Tensor], torch.Tensor]


def _refused(operation: Any, error: type[Exception] = RuntimeError) -> bool:
    try:
        operation()
    except error:
        return True
    return False


@scenario
def views_are_of_what_another_tensor_has_written(device: str | torch.device) -> Any:
    """The written tensor's step has taken the buffer that the other one was last computed in."""
    found: list[torch.Tensor] = []
    views: tuple[Callable[[torch.Tensor], Any], ...] = (
        *(lambda held: held[2], lambda held: held[1:], lambda held: held.t(), lambda held: held.view(-1)),
        *(lambda held: held.detach(), lambda held: held.unsqueeze(0), lambda held: held.expand(2, 4, 4)),
        *(lambda held: held.split(2), lambda held: held.unbind(), lambda held: held.diagonal()),
        *(lambda held: held.permute(1, 0), lambda held: held.as_strided((2,), (1,)), lambda held: held.unfold(0, 2, 2)),
        *(lambda held: held.view(torch.int32), lambda held: held.view(2, 8).squeeze()),
    )
    for view in views:
        written = torch.arange(16.0).reshape(4, 4).to(device)
        held = written.detach()
        written.add_(3)
        found.append(held.detach().cpu())
        made = view(held)
        beside = torch.zeros(2).to(device).add_(1)
        made = made if isinstance(made, tuple) else (made,)
        found += [*(item.detach().cpu() for item in made), beside.cpu(), written.cpu()]
    return found


@scenario
def a_view_of_a_stale_tensor_in_its_own_sizes(device: str | torch.device) -> Any:
    """Whose sizes are those of a value that is replaced while the view is made."""
    for _ in range(50):
        whole = torch.arange(6.0).reshape(2, 3).to(device)
        part = whole.narrow(-1, 0, 1)
        whole.masked_fill_(whole > 1, 0.5)
        view = part.view_as(part)
        again = view.expand_as(view)
    return [view, again, whole]


@scenario
def what_was_made_smaller_does_not_grow(device: str | torch.device) -> Any:
    """Of torch's own CPU it does: the memory is still there."""
    values = torch.arange(4.0).to(device)
    assert values.resize_(3).numel() == 3
    if str(device) != "cpu":
        assert _refused(lambda: values.resize_(4), NotImplementedError)
    found = torch.ones(2).to(device)
    found.resize_(4)[2:] = 5
    return [values.mul_(2), found.resize_(2, 2)]


@scenario
def rows_of_a_state_that_is_held_while_training_goes_on(device: str | torch.device) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer, held = torch.optim.SGD(model.parameters(), 0.1, 0.9), model.state_dict()
    found = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 4).to(device)).square().sum().backward()
        optimizer.step()
        row = held["weight"][0]
        found.append(row.detach().norm().cpu())
    return [*found, model.weight, model.bias]


@scenario
def a_clone_and_its_original_keep_their_values(device: str | torch.device) -> Any:
    """Whichever is written, where both have been read before."""
    found: list[Any] = []
    copies = (torch.clone, copy.deepcopy, lambda one: one.detach().clone(), lambda one: one.to(one.device, copy=True))
    for make in copies:
        for writes_copy in (True, False):
            one = torch.arange(8.0).to(device)
            one.cpu()
            other = make(one)
            other.cpu()
            written = other if writes_copy else one
            written.mul_(2)
            written.cpu()
            found += [one, other]
    return found


@scenario
def the_best_weights_are_kept_while_training_goes_on(device: str | torch.device) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[Any] = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
        if step == 0:
            best = copy.deepcopy(model.state_dict())
            torch.save(best, io.BytesIO())
        if step == 1:
            torch.save(model.state_dict(), io.BytesIO())
            model.load_state_dict(best)
    return losses


@scenario
def running_statistics_are_written_where_they_lie(device: str | torch.device) -> Any:
    """In views of others, in what has views, and in what was made of nothing."""
    values = torch.arange(6.0).reshape(2, 3).to(device)
    made = torch.nn.BatchNorm1d(3, device="meta").to_empty(device=torch.device(device))
    made.reset_parameters()
    made(values)
    state = made.state_dict()
    of_tasks, deviations = torch.zeros(2, 3).to(device), torch.ones(2, 3).to(device)
    F.batch_norm(values, of_tasks[1], deviations[0], training=True)
    plain = torch.nn.BatchNorm1d(3).to(device)
    assert plain.running_mean is not None
    part = plain.running_mean[:2]
    plain(values)
    part.add_(1)
    plain(values)
    return [state["running_mean"], state["running_var"], of_tasks, deviations, part, plain.running_mean]


@scenario
def diagonals_of_views_are_filled(device: str | torch.device) -> Any:
    square, tall, cube = torch.zeros(4, 4).to(device), torch.zeros(9, 2).to(device), torch.zeros(3, 3, 3, 3).to(device)
    square[1:, 1:].fill_diagonal_(1)
    square.t()[:2].fill_diagonal_(2)
    tall.t().fill_diagonal_(3)
    tall[1:].fill_diagonal_(4, wrap=True)
    cube[1].fill_diagonal_(5)
    cube.transpose(0, 3)[2].fill_diagonal_(6)
    return [square, tall, cube]


@scenario
def a_tensor_that_has_views_keeps_its_shape(device: str | torch.device) -> Any:
    """torch gives it another one with ``out=``, and says that it will not for long."""
    base = torch.arange(6.0).to(device)
    view = base[2:4]
    refused = _refused(lambda: torch.mul(torch.ones(4, 1).to(device), 3, out=base))
    assert refused == (str(device) != "cpu")
    if refused:
        view.zero_()
    return [torch.mul(torch.ones(4, 1).to(device), 3, out=torch.empty(0).to(device))]


@scenario
def views_of_another_type_are_views(device: str | torch.device) -> Any:
    whole, same, pairs = torch.zeros(4).to(device), torch.zeros(4).to(device), torch.zeros(4).to(device)
    whole.view(torch.int32).reshape(2, 2).fill_(1065353216)
    same.view(torch.float32).contiguous().add_(1)
    torch.view_as_complex(pairs.view(2, 2)).flatten().add_(1 + 2j)
    short = torch.zeros(4).to(device)
    short.view(torch.int16).reshape(2, 4).add_(3)
    complexes = torch.zeros(2, 2, dtype=torch.complex64).to(device)
    complexes.t().real.reshape(-1).add_(1)  # a copy
    return [whole, same, pairs, short.view(torch.int16), complexes]


@scenario
def what_writes_many_tensors_tells_autograd(device: str | torch.device) -> Any:
    """A value that is kept for a gradient may not be written before; a tensor that is named twice is written twice."""
    twice = torch.ones(3).to(device)
    torch._foreach_mul_([twice, twice], 2.0)
    for options in ({"foreach": True}, {"foreach": False}):
        weight = torch.nn.Parameter(torch.tensor([3.0]).to(device))
        optimizer = torch.optim.SGD([weight], lr=1.0, **options)
        loss = weight.square().sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        assert _refused(loss.backward)
    return [twice]


@scenario
def what_needs_addresses_is_refused(device: str | torch.device) -> Any:
    values = torch.zeros(2).to(device).requires_grad_()

    def written() -> None:
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            result = values.exp()
            result.mul_(3)

    assert _refused(written, NotImplementedError) == (str(device) != "cpu")
    return [torch.tensor(1.0).to(device).flip(0)]


@scenario
def views_that_are_turned_in_place_have_their_gradient_or_are_not_written(device: str | torch.device) -> Any:
    """Autograd knows how they were made, and not of what dimensions they are by then."""
    on_device, found = str(device) != "cpu", []
    parts: tuple[Part, ...] = (lambda x: x[...], lambda x: x[1:], lambda x: x.permute(2, 1, 0), lambda x: x[0])
    turns: tuple[Part, ...] = (
        *(lambda z: z.transpose_(0, 1), lambda z: z.swapaxes_(0, 1), lambda z: z.unsqueeze_(1)),
        *(lambda z: z.unsqueeze_(0).squeeze_(0), lambda z: z.transpose_(0, 1).unsqueeze_(0)),
    )
    writes: tuple[Part, ...] = (lambda z: z.add_(1), lambda z: z[0].mul_(3.0), lambda z: z.sin_())
    for part in parts:
        for turn in turns:
            leaf = torch.arange(12.0).reshape(2, 3, 2).to(device).requires_grad_()
            whole = leaf * 1
            view = turn(part(whole))
            (view.sin() * torch.arange(float(view.numel())).reshape(view.shape).to(device)).sum().backward()
            found += [view, leaf.grad]
            leaf.grad = None
            made = leaf * 1
            turn(part(made))
            (made.cos() * made).sum().backward()
            found.append(leaf.grad)
            for write in writes:
                view = turn(part(leaf * 1))
                refused = _refused(lambda write=write, view=view: write(view))
                assert refused == on_device, (part, turn, write)
            plain = leaf.detach().clone()
            for write in writes:
                view = part(plain)
                write(turn(view))
                found += [view, plain]
    whole = torch.ones(2, 2).to(device)
    whole[...].t_().mul_(3)
    turned = whole[...].t_()
    assert _refused(lambda: turned.mul_(torch.ones(2, 2).to(device).requires_grad_())) == on_device
    slopes = torch.arange(4.0).reshape(2, 2).to(device)

    def of_turned(values: torch.Tensor, write: bool) -> torch.Tensor:
        made = values * 1
        view = made[...].transpose_(0, 1)
        return ((view.mul_(slopes) if write else view).sin() * slopes + made.cos() * slopes).sum()

    found.append(torch.func.grad(of_turned)(slopes + 1, False))
    assert _refused(lambda: torch.func.grad(of_turned)(slopes + 1, True)) == on_device
    leaf = torch.arange(4.0).reshape(2, 2).to(device).requires_grad_()
    kept = leaf * 1
    same = kept[...].squeeze_().transpose_(1, 1)
    ((same.add_(1) ** 2) * kept).sum().backward()
    own = (leaf.detach().requires_grad_() * 1).t_().unsqueeze_(0).mul_(2)
    written = leaf * 1
    view = written[...].t_()
    written.mul_(2)
    if on_device:
        assert _refused(lambda: view.unsqueeze_(0)) and _refused(lambda: view.sum().backward())
    return [*found, whole, leaf.grad, own]


@scenario
def other_strides_of_a_view_in_place(device: str | torch.device) -> Any:
    """Refused of a view, of which PyTorch/XLA would write other elements."""
    whole = torch.arange(4.0).to(device)
    whole.as_strided_((2, 2), (1, 2)).add_(1)
    part = torch.arange(24.0).reshape(3, 4, 2).to(device)[..., 0]
    try:
        part.as_strided_((2, 2), (1, 2))
    except RuntimeError as error:
        assert "as_strided_ of a view" in str(error), error
    else:
        assert torch.device(device).type == "cpu"
    return [whole]


SOURCES = tuple(torch.arange(1.0, 25.0)[: math.prod(shape)].view(shape) for shape in ((4,), (1,), (), (3, 1), (3, 4)))
TARGETS: tuple[Part, ...] = (
    *(lambda x: x, lambda x: x[1:], lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x.diagonal(), lambda x: x.data),
)


def copied(target: torch.Tensor, source: torch.Tensor) -> str:
    """What ``copy_`` refuses, in its words; nothing where it has copied."""
    try:
        target.copy_(source)
    except RuntimeError as error:
        return str(error)
    return ""


@scenario
def copies_between_the_cpu_and_a_device_are_broadcast(device: str | torch.device) -> Any:
    """PyTorch/XLA copied as if both had the source's shape, and so changed the target's."""
    found: list[torch.Tensor] = []
    for part in TARGETS:
        for source in (*SOURCES, torch.arange(4), torch.ones(5), torch.ones(1, 3, 4), torch.ones(2, 4), torch.ones(0)):
            refused = copied(part(torch.zeros(3, 4)), source)
            for target, given in ((torch.zeros(3, 4).to(device), source), (torch.zeros(3, 4), source.to(device))):
                assert copied(part(target), given) == refused, (source.shape, refused)
                found += [target.clone(), part(target) + 1]
    for there, here in ((device, "cpu"), ("cpu", device), (device, device)):
        lists = [[torch.zeros(3, 4), torch.zeros(2)], [torch.arange(4.0), torch.ones(1)]]
        targets, sources = ([one.to(place) for one in lists[k]] for k, place in enumerate((there, here)))
        torch._foreach_copy_(targets, sources)
        found += targets
    parameter = torch.nn.Parameter(torch.zeros(2, 2).to(device))
    with torch.no_grad():
        assert "(2) must match" in copied(parameter, torch.zeros(7))
    return [*found, parameter]


@scenario
def copies_between_the_cpu_and_a_device_have_gradients(device: str | torch.device) -> Any:
    found: list[torch.Tensor | None] = []
    for source, target in (("cpu", device), (device, "cpu")):
        x = torch.arange(1.0, 5.0).to(source).requires_grad_()
        whole = torch.zeros(3, 4).to(target)
        whole.copy_(x * 3)
        whole[1:].copy_(x[:1])
        whole.square().sum().backward()
        found += [whole.detach(), x.grad]
    return found
