"""Functions and programs on real workers, each compared with plain PyTorch. One process, one cluster.

    python program_scenarios.py GROUP

Prints one JSON object: for each scenario of the group null, or what went wrong.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard

import ptpathways as pw
from ptpathways.frontend import _state

Scenario = Callable[[pw.Cluster], None]
WAIT_S = 60.0


def equal(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(pw.get(got, WAIT_S), wanted, rtol=1e-5, atol=1e-6)


def refused(kind: type[BaseException], said: str | Sequence[str], attempt: Callable[[], Any]) -> str:
    """Runs ``attempt``, which must raise ``kind`` with all of ``said`` in its message."""
    try:
        attempt()
    except kind as error:
        for part in (said,) if isinstance(said, str) else said:
            assert part in str(error), f"{part!r} is not in: {error}"
        return str(error)
    raise AssertionError(f"expected {kind.__name__}")


# --- functions


def a_function_gives_futures(cluster: pw.Cluster) -> None:
    """Lists, scalars, arrays, tensors, nested structures and other futures go in; the same structure comes out."""
    s = cluster.slice((2,))

    @pw.function(slice=s)
    def mix(v: Any, scale: Any, more: Any, power: int) -> Any:
        return {"sum": v * scale + more["x"], "pair": (v**power, power, None)}

    x, more = torch.tensor([1.0, 2.0]), {"x": np.array([3.0, 4.0], np.float32)}
    made = mix([1.0, 2.0], 0.5, more, 3)
    assert isinstance(made["sum"], pw.Future) and made["pair"][1:] == (3, None)
    assert tuple(made["sum"].shape) == (2,) and made["sum"].dtype is torch.float32
    assert made["sum"].slice is s and made["sum"].sharding.is_replicated
    equal(made["sum"], x * 0.5 + torch.tensor([3.0, 4.0]))
    equal(mix(made["sum"], scale=2.0, more=more, power=2)["pair"][0], (x * 0.5 + torch.tensor([3.0, 4.0])) ** 2)
    made["sum"].wait(WAIT_S)
    assert made["sum"].done()


def placements_say_how_tensors_lie(cluster: pw.Cluster) -> None:
    """torch's placements, partition specs, one per argument, by name; results as asked, or a copy on each device."""
    s = cluster.slice((2,), ("rows",))
    x, w = torch.randn(4, 6), torch.randn(6, 8)

    @pw.function(slice=s, in_placements=[[Shard(0)], [Replicate()]], out_placements=[Shard(0)])
    def torchs(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    @pw.function(slice=s, in_placements=[("rows", None), None], out_placements=(None, "rows"))
    def specs(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    @pw.function(slice=s, in_placements={"w": (None, "rows")}, out_placements={"y": ("rows",), "z": None})
    def named(x: Tensor, w: Tensor) -> Any:
        return {"y": x @ w, "z": (x @ w).sum()}

    equal(torchs(x, w), x @ w)
    split = specs(x, w)
    assert str(split.sharding) == "{rows=2: -,rows}"
    equal(split, x @ w)
    equal(named(x, w), {"y": x @ w, "z": (x @ w).sum()})
    equal(torchs(specs(x, w), torch.eye(8)), x @ w)  # resharded on the way


def a_grid_of_devices(cluster: pw.Cluster) -> None:
    """Two axes on one device pair each; every combination of layouts gives the same numbers."""
    s = cluster.slice((2, 1), ("data", "model"))
    x = torch.arange(32.0).reshape(4, 8)
    layouts = [None, ("data", None), (None, "data"), (("data", "model"), None), ("model", "data")]

    def add(v: Tensor) -> Tensor:
        return v + 1

    value: Any = x
    for count, layout in enumerate(layouts, 1):
        value = pw.function(add, slice=s, in_placements=layout, out_placements=layouts[-count])(value)
        equal(value, x + count)


def element_types(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))

    @pw.function(slice=s, in_placements=("x",), out_placements=("x",))
    def same(v: Tensor) -> Tensor:
        return v.clone()

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8):
        value = torch.arange(4).to(dtype)
        got = same(value).result(WAIT_S)
        assert got.dtype is dtype and torch.equal(got, value), (dtype, got)
    flags = torch.tensor([True, False])
    assert torch.equal(same(flags).result(WAIT_S), flags)
    assert same(torch.zeros(0, 3)).result(WAIT_S).shape == (0, 3)


def a_module_as_an_argument(cluster: pw.Cluster) -> None:
    """Parameters are passed and uploaded once; a step of gradient descent equals eager PyTorch over ten steps."""
    s = cluster.slice((2,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    x, y = torch.randn(10, 8), torch.randn(10, 1)
    weights = pw.put({name: value.detach() for name, value in model.named_parameters()}, s)

    def loss_of(weights: Any, x: Tensor, y: Tensor) -> Any:
        return ((torch.func.functional_call(model, weights, (x,)) - y) ** 2).mean()

    @pw.function(slice=s, donate=(0,), in_placements=[None, ("x",), ("x",)])
    def step(weights: Any, x: Tensor, y: Tensor) -> Any:
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, x, y)
        return {name: value - 0.1 * gradients[name] for name, value in weights.items()}, loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, wanted = [], []
    for _ in range(10):
        old = weights
        weights, loss = step(weights, x, y)
        losses.append(loss)
        optimizer.zero_grad()
        eager = loss_of(dict(model.named_parameters()), x, y)
        eager.backward()
        optimizer.step()
        wanted.append(eager.detach())
    torch.testing.assert_close(pw.get(losses, WAIT_S), wanted, rtol=1e-4, atol=1e-6)
    refused(pw.UsedAfterDonation, ["given up", "step"], lambda: old["0.weight"].result())
    refused(pw.UsedAfterDonation, "given up", lambda: step(old, x, y))


def random_numbers_follow_torch(cluster: pw.Cluster) -> None:
    """Each call has numbers of its own, the same ones again after torch.manual_seed."""
    s = cluster.slice((1,))

    @pw.function(slice=s)
    def drop(v: Tensor) -> Tensor:
        return nn.functional.dropout(v, 0.5) + torch.rand(1)

    ones = torch.ones(64)
    torch.manual_seed(7)
    first, second = drop(ones).result(WAIT_S), drop(ones).result(WAIT_S)
    torch.manual_seed(7)
    again = drop(ones).result(WAIT_S)
    assert torch.equal(first, again) and not torch.equal(first, second)


def constants_and_unused_arguments(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))

    @pw.function(slice=s)
    def shift(v: Tensor, unused: Tensor) -> Tensor:
        table = torch.tensor([10.0, 20.0, 30.0])
        return v + table + torch.arange(3) + torch.from_numpy(np.full(3, 0.5, np.float32)).to(v.device)

    equal(shift([1.0, 2.0, 3.0], torch.zeros(5)), torch.tensor([11.5, 23.5, 35.5]))


def a_tensor_of_a_device_goes_in(cluster: pw.Cluster) -> None:
    s = cluster.slice((1,))
    double = pw.function(lambda v: v * 2, slice=s)
    equal(double(torch.arange(3.0, device=pw.device(1)) + 1), torch.tensor([2.0, 4.0, 6.0]))


def submitting_never_waits(cluster: pw.Cluster) -> None:
    """A thousand calls go out without a wait; dropped futures free their memory (the worker would run out)."""
    s = cluster.slice((1,))

    @pw.function(slice=s)
    def grow(v: Tensor) -> Tensor:
        return v + 1

    value = pw.put(torch.zeros(1 << 18), s)  # 1 MiB
    value = grow(value)
    value.wait(WAIT_S)
    for _ in range(1000):
        value = grow(value)
    assert value.result(WAIT_S)[0] == 1001


def awaiting(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))
    double = pw.function(lambda v: v * 2, slice=s)

    async def both() -> list[Tensor]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.ensure_future(tick())
        heavy = torch.randn(300, 300)
        values = await asyncio.gather(*(_wait_for(double(heavy * i)) for i in range(4)))
        ticker.cancel()
        assert ticks > 0
        return values

    assert len(asyncio.run(both())) == 4


async def _wait_for(future: pw.Future) -> Tensor:
    return await future


def mistakes_of_functions(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))
    weight, kept = torch.ones(2), []
    norm = nn.BatchNorm1d(2)

    def keep(v: Tensor) -> Tensor:
        kept.append(v * 2)
        return v

    def on(fn: Any, **how: Any) -> Any:
        return pw.function(fn, slice=s, **how)

    x = torch.ones(2, 2)
    refused(pw.CapturedTensor, ["not one of its arguments", __file__, "(2,)"], lambda: on(lambda v: v + weight)(x))
    refused(pw.CapturedTensor, "not one of its arguments", lambda: on(lambda v: weight)(x))
    refused(pw.CapturedTensor, "functional_call", lambda: on(lambda v: norm(v))(x))
    refused(pw.ImpureFunction, ["keep", "still referenced", __file__], lambda: on(keep)(x))
    kept.clear()
    refused(pw.ImpureFunction, "argument 0 in place", lambda: on(lambda v: v.add_(1))(x))
    message = refused(
        pw.InvalidSharding, ["dimension 0", "3", "'x'"], lambda: on(lambda v: v, in_placements=("x",))(torch.ones(3))
    )
    assert "argument leaf 0" in message, message
    refused(pw.InvalidSharding, "no axis 'y'", lambda: on(lambda v: v, in_placements=("y",))(x))
    refused(pw.InvalidSharding, "entries", lambda: on(lambda v: v, in_placements=[None, None])(x))
    refused(TypeError, "neither a tensor nor hashable", lambda: on(lambda v, o: v)(x, {1, 2}))
    number: Any = 2
    refused(TypeError, "slice must be a slice", lambda: pw.function(lambda v: v, slice=number))
    refused(ZeroDivisionError, "division", lambda: on(lambda v: v * (1 // 0))(x))
    refused(pw.InvalidProgram, "nonzero", lambda: on(lambda v: v.nonzero(), regular=True)(x))
    refused(TypeError, "got a future", lambda: torch.add(on(lambda v: v * 1)(x), 1))
    equal(on(lambda v: v + 1)(x), x + 1)  # and everything goes on


def the_mesh_of_all_devices_comes_first(cluster: pw.Cluster) -> None:
    """PyTorch/XLA cannot make one once a function has been traced; it would end the process."""
    refused(pw.RuntimeAlreadyStarted, ["one by one", "pw.function"], lambda: pw.prepare(nn.Linear(1, 1)))


def slices_that_cannot_be(cluster: pw.Cluster) -> None:
    refused(pw.SliceUnavailable, "3", lambda: cluster.slice((3,), hosts=1))
    refused(pw.SliceUnavailable, "nowhere", lambda: cluster.slice((1,), island="nowhere"))
    refused(pw.SliceUnavailable, "tpu", lambda: cluster.slice((1,), platform="tpu"))
    refused(pw.SliceUnavailable, "", lambda: cluster.slice((1,), min_memory="900TiB"))
    refused(pw.InvalidSharding, "axis names", lambda: cluster.slice((2,), ("a", "b")))
    with cluster.slice((2,), ("a",), name="mine") as s:
        assert s.shape == (2,) and s.axis_names == ("a",) and len(s.devices) == 2 and "mine" in repr(s)
        double = pw.function(lambda v: v * 2, slice=s)
        value = double([1.0])
    assert s.released
    refused(pw.SliceUnavailable, ["mine", "released"], lambda: double(value))
    equal(value, torch.tensor([2.0]))


# --- programs


def _three(cluster: pw.Cluster) -> tuple[Any, Any, Any]:
    s0, s1, s2 = (cluster.slice((2,), name=f"slice_{name}") for name in "abc")

    @pw.function(slice=s0, in_placements=("x",), out_placements=("x",))
    def a(v: Tensor) -> Tensor:
        return v * 2.0

    @pw.function(slice=s1)
    def b(v: Tensor) -> Tensor:
        return v + 1.0

    @pw.function(slice=s2, in_placements=("x",))
    def c(v: Tensor) -> Tensor:
        return v / 2.0

    return a, b, c


def figure_2(cluster: pw.Cluster) -> None:
    """The paper's example; the second call runs none of the program's Python."""
    a, b, c = _three(cluster)
    traced = []

    @pw.program
    def f(v: Any) -> Any:
        traced.append(v)
        x = a(v)
        y = b(x)
        z = a(c(x))
        traced.clear()
        return y, z

    for _ in range(3):
        equal(f([1.0, 2.0]), (torch.tensor([3.0, 5.0]), torch.tensor([2.0, 4.0])))
    y, z = f(pw.put([3.0, 4.0], a.slice))
    equal((y, z), (torch.tensor([7.0, 9.0]), torch.tensor([6.0, 8.0])))
    equal(f(z), (torch.tensor([13.0, 17.0]), torch.tensor([12.0, 16.0])))
    equal(f(z), (torch.tensor([13.0, 17.0]), torch.tensor([12.0, 16.0])))  # the quick way
    text = str(f.trace([1.0, 2.0]))
    assert text.rstrip() in str(f), f
    assert "a" in text and "slice_c" in text and os.path.basename(__file__) in text, text
    passes = f.explain([1.0, 2.0])
    for stage in ("as traced", "place", "infer_transfers", "lower"):
        assert stage in passes, passes
    with tempfile.TemporaryDirectory() as folder:
        picture = f.svg(os.path.join(folder, "f.svg"), [1.0, 2.0])
        assert picture.read_text().lstrip().startswith("<")


def sequential_dispatch_gives_the_same(cluster: pw.Cluster) -> None:
    """Node by node: the numbers are the same, and a call returns when they exist."""
    a, b, c = _three(cluster)

    @pw.program(dispatch="sequential")
    def f(v: Any) -> Any:
        x = a(v)
        return b(x), a(c(x))

    for _ in range(2):
        y, z = f([1.0, 2.0])
        assert y.done() and z.done()
        equal((y, z), (torch.tensor([3.0, 5.0]), torch.tensor([2.0, 4.0])))
    refused(ValueError, "'parallel' or 'sequential', got 'fast'", lambda: pw.program(dispatch="fast"))


def threads_share_programs(cluster: pw.Cluster) -> None:
    """Four threads call and trace the same program at once; each sees its own numbers."""
    a, b, _ = _three(cluster)

    @pw.program
    def f(v: Any, times: int) -> Any:
        for _ in range(times):
            v = a(v)
        return b(v)

    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for times in (1, 2, 3) * 5:
                equal(f([float(number), 1.0], times), torch.tensor([float(number), 1.0]) * 2**times + 1)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not wrong, wrong


def a_program_is_traced_once_per_kind_of_arguments(cluster: pw.Cluster) -> None:
    a, b, _ = _three(cluster)
    traces = 0

    @pw.program
    def f(v: Any, times: int) -> Any:
        nonlocal traces
        traces += 1
        for _ in range(times):
            v = a(v)
        return b(v)

    for times, wanted in ((1, 1), (1, 1), (2, 2), (1, 2)):
        equal(f([1.0, 2.0], times), torch.tensor([1.0, 2.0]) * 2**times + 1)
        assert traces == wanted
    equal(f(torch.ones(4), 1), torch.full((4,), 3.0))
    assert traces == 3


def structures_constants_and_passing_through(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))
    add = pw.function(lambda v, w: v + w, slice=s, name="add")

    @pw.program
    def f(tree: Any, untouched: Any, flag: bool) -> Any:
        total = add(tree["a"], 0.5)
        total = add(total, [1.0, 2.0])
        return {"total": total, "same": untouched, "flag": flag, "again": total}

    held = pw.put(torch.ones(1), s)
    got = f({"a": [1.0, 1.0], "b": None}, held, True)
    assert got["same"] is held and got["flag"] is True
    equal([got["total"], got["again"]], [torch.tensor([2.5, 3.5])] * 2)

    @pw.program
    def nested(v: Any) -> Any:
        return f({"a": v, "b": None}, v, False)["total"]

    equal(nested([0.0, 0.0]), torch.tensor([1.5, 2.5]))


def regular_and_irregular_nodes_mix(cluster: pw.Cluster) -> None:
    """A data-dependent shape in the middle: found out, said once, run on the client; what follows has its shapes."""
    s = cluster.slice((2,))
    traces = 0

    @pw.function(slice=s)
    def double(v: Tensor) -> Tensor:
        return v * 2

    @pw.function(slice=s)
    def positive(v: Tensor) -> Tensor:
        return v[v > 0]

    @pw.function(slice=s, regular=False)
    def split_at_mean(v: Tensor) -> Any:
        limit = v.mean().item()
        return v[v <= limit], v[v > limit], int((v > limit).sum())

    @pw.program
    def f(v: Any) -> Any:
        nonlocal traces
        traces += 1
        doubled = double(v)
        chosen = positive(doubled)
        low, high, count = split_at_mean(double(chosen))
        return double(low), double(high), double(doubled), count

    def eager(v: Tensor) -> Any:
        doubled = v * 2
        chosen = doubled[doubled > 0] * 2
        low, high = chosen[chosen <= chosen.mean()], chosen[chosen > chosen.mean()]
        return low * 2, high * 2, doubled * 2, len(high)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inputs = [[1.0, -1.0, 3.0, 8.0], [2.0, -2.0, 4.0, 9.0], [-1.0, -1.0, 2.0, 5.0], [1.0, 1.0, 1.0, 5.0]]
        for values in [*inputs, *inputs]:
            got = f(values)
            wanted = eager(torch.tensor(values))
            equal(got[:3], wanted[:3])
            assert got[3] == wanted[3]
    said = [str(one.message) for one in caught if one.category is pw.IrregularFunctionWarning]
    assert len(said) == 1 and "positive" in said[0] and __file__ in said[0], said
    assert traces <= 1 + len(inputs), traces  # once, and once for each kind of shapes that came out
    equal(positive([1.0, -2.0, 3.0]), torch.tensor([1.0, 3.0]))


def donation_in_programs(cluster: pw.Cluster) -> None:
    s = cluster.slice((2,))
    bump = pw.function(lambda v: v + 1, slice=s, donate=(0,), name="bump")

    @pw.program(donate=(0,))
    def f(v: Any) -> Any:
        return bump(bump(v))

    first = pw.put([1.0, 2.0], s)
    second = f(first)
    third = f(second)
    refused(pw.UsedAfterDonation, ["given up", "f ("], lambda: f(first))
    refused(pw.UsedAfterDonation, "given up", lambda: second.result())
    equal(third, torch.tensor([5.0, 6.0]))

    @pw.program(donate=(0,))
    def both(v: Any, w: Any) -> Any:
        return bump(v), bump(w)

    refused(pw.UsedAfterDonation, "twice", lambda: both(third, third))
    equal(third, torch.tensor([5.0, 6.0]))

    @pw.program
    def keeps(v: Any) -> Any:
        return bump(v)

    equal(keeps(third), torch.tensor([6.0, 7.0]))
    equal(third, torch.tensor([5.0, 6.0]))  # not given up by the program, so copied


def mistakes_of_programs(cluster: pw.Cluster) -> None:
    a, b, _ = _three(cluster)
    outside = pw.put([1.0, 2.0], a.slice)
    kept: list[Any] = []

    def program(fn: Any) -> Any:
        return pw.program(fn)

    x = [1.0, 2.0]
    refused(pw.CapturedTensor, "not one of the program's arguments", lambda: program(lambda v: b(outside))(x))
    refused(pw.CapturedTensor, "Tensor", lambda: program(lambda v: b(torch.ones(2)))(x))
    refused(TypeError, "no elements yet", lambda: program(lambda v: a(v) + 1)(x))
    refused(TypeError, "no elements yet", lambda: program(lambda v: b(v) if v else v)(x))
    refused(TypeError, "no elements yet", lambda: program(lambda v: torch.relu(a(v)))(x))

    def keep(v: Any) -> Any:
        kept.append(a(v))
        return b(v)

    refused(pw.ImpureFunction, "keeps a value", lambda: program(keep)(x))
    refused(pw.ImpureFunction, "earlier trace", lambda: program(lambda v: b(kept[0]))(x))
    kept.clear()
    refused(ValueError, "argument 3", lambda: pw.program(donate=(3,))(lambda v: a(v))(x))
    equal(program(lambda v: b(a(v)))(x), torch.tensor([3.0, 5.0]))


def what_can_never_fit_says_so(cluster: pw.Cluster) -> None:
    """It fails with the program's name and line and the sizes, and so does what depends on it; others go on."""
    s = cluster.slice((1,))
    huge = pw.function(lambda v: torch.ones(1 << 34) * v.sum(), slice=s, name="huge")
    after = pw.function(lambda v: v.sum(), slice=s, name="after")

    @pw.program
    def too_large(v: Any) -> Any:
        return after(huge(v))

    failed = too_large([1.0])
    dependent = after(failed)
    refused(pw.OutOfDeviceMemory, ["'too_large'", "GiB", "256.00 MiB"], lambda: failed.result(WAIT_S))
    refused(pw.OutOfDeviceMemory, ["'too_large'", "GiB", "256.00 MiB"], lambda: dependent.result(WAIT_S))
    equal(after([1.0, 2.0]), torch.tensor(3.0))


def a_lost_host_is_named(cluster: pw.Cluster) -> None:
    """What was computed on a host that is killed fails with its name; the other hosts' futures go on."""
    slices = [cluster.slice((2,), island=host.island) for host in pw.cluster().hosts]
    double = [pw.function(lambda v: v * 2, slice=s, name="double") for s in slices]

    @pw.program
    def around(v: Any) -> Any:
        return double[0](double[2](double[1](v)))

    equal(around([1.0]), torch.tensor([8.0]))
    held = [one([1.0]) for one in double]
    pw.get(held, WAIT_S)
    connection = _state.runtime().connection
    assert connection is not None
    os.kill(connection.host_pids()[2], signal.SIGKILL)
    refused(pw.HostLost, "host2", lambda: held[2].result(WAIT_S))
    try:
        failed = around([1.0])
    except pw.HostLost as error:
        assert "host2" in str(error), error
    else:
        refused(pw.HostLost, "host2", lambda: failed.result(WAIT_S))
    equal(double[0](held[0]), torch.tensor([4.0]))


def saved_programs(cluster: pw.Cluster) -> None:
    a, b, _ = _three(cluster)

    @pw.program
    def f(v: Any, w: Any) -> Any:
        return b(a(v)), a(b(w))

    target = os.environ["PROGRAM_FILE"]
    f([1.0, 2.0], [3.0, 4.0])
    f.save(target, [1.0, 2.0], [3.0, 4.0])
    f.save(target + ".types", [1.0, 2.0], [3.0, 4.0], weights=(1,))
    irregular = pw.function(lambda v: v[v > 0], slice=a.slice, regular=False)

    @pw.program
    def g(v: Any) -> Any:
        return irregular(a(v))

    g([1.0, 2.0])
    refused(pw.InvalidProgram, "irregular", lambda: g.save(target + ".no", [1.0, 2.0]))


def after_shutdown(cluster: pw.Cluster) -> None:
    s = cluster.slice((1,))
    double = pw.function(lambda v: v * 2, slice=s)
    value = double([1.0])
    value = double(value)
    value = double(value)
    value.wait(WAIT_S)
    pw.shutdown()
    refused(pw.NotInitialized, "was shut down", lambda: double(value))
    refused(pw.NotInitialized, "was shut down", lambda: double([1.0]))
    refused(pw.NotInitialized, "was shut down", lambda: pw.put([1.0], s))
    refused(pw.NotInitialized, "was shut down", lambda: cluster.slice((1,)))
    refused(pw.PathwaysError, "", lambda: value.result(5.0))


# --- slices over several hosts of one island


def functions_span_hosts(cluster: pw.Cluster) -> None:
    """Two hosts of two devices as a grid; each host computes its shards, and the result is put together from all."""
    s = cluster.slice((2, 2), ("data", "model"), hosts=2)
    assert len({host.name for host in cluster.hosts for device in host.devices if device in s.devices}) == 2
    x, w = torch.randn(4, 6), torch.randn(6, 8)

    @pw.function(slice=s, in_placements=[("data", None), (None, "model")], out_placements=("data", "model"))
    def multiply(x: Tensor, w: Tensor) -> Tensor:
        return x @ w + torch.arange(8)

    got = multiply(x, w)
    assert str(got.sharding) == "{data=2,model=2: data,model}"
    equal(got, x @ w + torch.arange(8))


def programs_reshard_between_hosts(cluster: pw.Cluster) -> None:
    wide, pair = cluster.slice((4,)), cluster.slice((2,), hosts=2)
    scale = pw.function(lambda v: v * 2, slice=wide, in_placements=("x",), out_placements=("x",), name="scale")
    columns = pw.function(lambda v: v + 1, slice=pair, in_placements=(None, "x"), out_placements=(None, "x"))

    @pw.program
    def f(v: Any) -> Any:
        rows = scale(v)
        return scale(columns(rows)), rows

    x = torch.arange(32.0).reshape(8, 4)
    for _ in range(3):
        equal(f(x), ((x * 2 + 1) * 2, x * 2))


def collectives_between_hosts_are_refused(cluster: pw.Cluster) -> None:
    s = cluster.slice((4,), hosts=2)
    total = pw.function(lambda v: v.sum(), slice=s, in_placements=("x",), name="total")

    def attempt() -> Tensor:
        return total(torch.ones(4)).result(WAIT_S)  # type: ignore[no-any-return]

    refused(pw.PathwaysError, ["total", "all-reduce"], attempt)


FUNCTIONS: tuple[Scenario, ...] = (
    a_function_gives_futures,
    placements_say_how_tensors_lie,
    a_grid_of_devices,
    element_types,
    a_module_as_an_argument,
    random_numbers_follow_torch,
    constants_and_unused_arguments,
    a_tensor_of_a_device_goes_in,
    submitting_never_waits,
    awaiting,
    mistakes_of_functions,
    slices_that_cannot_be,
    the_mesh_of_all_devices_comes_first,
)
PROGRAMS: tuple[Scenario, ...] = (
    figure_2,
    sequential_dispatch_gives_the_same,
    threads_share_programs,
    a_program_is_traced_once_per_kind_of_arguments,
    structures_constants_and_passing_through,
    regular_and_irregular_nodes_mix,
    donation_in_programs,
    mistakes_of_programs,
    what_can_never_fit_says_so,
    saved_programs,
    a_lost_host_is_named,
    after_shutdown,
)
SPANNING: tuple[Scenario, ...] = (
    functions_span_hosts,
    programs_reshard_between_hosts,
    collectives_between_hosts_are_refused,
)
SCENARIOS = {"functions": FUNCTIONS, "programs": PROGRAMS, "spanning": SPANNING}


def main() -> None:
    spanning = sys.argv[1] == "spanning"
    hosts, islands = (2, 1) if spanning else (3, 3)
    cluster = pw.init(hosts=hosts, devices_per_host=2, islands=islands, memory_per_device="256MiB")
    outcome: dict[str, str | None] = {}
    only = sys.argv[2:]
    for scenario in SCENARIOS[sys.argv[1]]:
        if only and scenario.__name__ not in only:
            continue
        try:
            scenario(cluster)
            outcome[scenario.__name__] = None
        except Exception:
            outcome[scenario.__name__] = traceback.format_exc()
        gc.collect()
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
