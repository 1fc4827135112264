"""Functions on real workers, each compared with plain PyTorch. One process, one cluster.

python function_scenarios.py functions|spanning
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard

import ptpathways as pw
from tests.proc.cluster_scenarios import WAIT_S, Scenario, equal, refused, run


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
        return {"y": x @ w, "z": (x @ w).square().sum()}

    equal(torchs(x, w), x @ w)
    split = specs(x, w)
    assert str(split.sharding) == "{rows=2: -,rows}"
    equal(split, x @ w)
    equal(named(x, w), {"y": x @ w, "z": (x @ w).square().sum()})
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


def writes_through_views(cluster: pw.Cluster) -> None:
    """What a function writes through a view of a tensor is in it, wherever the tensor comes from."""
    s = cluster.slice((1,))

    def positions(x: Tensor) -> Tensor:
        made = torch.zeros(8)
        made[0::2] = torch.sin(torch.arange(4.0))
        made[3] = 5.0
        return x + made

    def of_the_cpu(x: Tensor) -> Tensor:
        made = torch.ones(8, device="cpu").to(x.device)
        made[:3].add_(1)
        return x * made

    def drawn(x: Tensor) -> Tensor:
        made = torch.rand(8, device=x.device)
        made.view(2, 4)[:] = x.view(2, 4)
        return made

    def copied(x: Tensor) -> Tensor:
        made = torch.empty_like(x)
        made[:4] = x[4:]
        made[4:].copy_(x[:4])
        return made.copy_(made * 2) + x

    for body in (positions, of_the_cpu, drawn, copied):
        equal(pw.function(body, slice=s)(torch.arange(8.0)), body(torch.arange(8.0)))


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
    refused(TypeError, "must return a tensor", lambda: on(lambda v: None)(x))
    refused(TypeError, "put() needs a slice", lambda: pw.put(x, number))
    zero: Any = on(lambda v: v.sum() * 0)(x)
    assert not zero and int(zero) == 0 and float(zero) == 0 and zero == zero
    for operation in (lambda: zero == 0.0, lambda: zero < 1, lambda: zero + 1, lambda: zero[0], lambda: zero in [0.0]):
        refused(TypeError, "a future has no operations", operation)
    refused(pw.InvalidProgram, "nonzero", lambda: on(lambda v: v.nonzero(), regular=True)(x))
    refused(TypeError, "got a future", lambda: torch.add(on(lambda v: v * 1)(x), 1))
    equal(on(lambda v: v + 1)(x), x + 1)  # and everything goes on


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


# --- slices of several hosts


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


def collectives_between_hosts(cluster: pw.Cluster) -> None:
    """Reductions, gathers, exchanges and permutations among shards of two hosts, against eager torch."""
    s = cluster.slice((4,), hosts=2)
    x = torch.arange(64.0).reshape(8, 8) / 7
    rows, columns = ("x", None), (None, "x")
    total = pw.function(lambda v: (v.sum(), v.sum(0), v.max()), slice=s, in_placements=(rows,), name="total")
    equal(total(x), (x.sum(), x.sum(0), x.max()))
    gather = pw.function(lambda v: v * 2, slice=s, in_placements=(columns,), out_placements=None, name="gather")
    equal(gather(x), x * 2)
    turn = pw.function(lambda v: v + 1, slice=s, in_placements=(rows,), out_placements=columns, name="turn")
    equal(turn(x), x + 1)
    roll = pw.function(lambda v: v.roll(3, 0), slice=s, in_placements=(rows,), out_placements=rows, name="roll")
    equal(roll(x), x.roll(3, 0))
    product = pw.function(
        lambda a, b: a @ b, slice=s, in_placements=(columns, rows), out_placements=rows, name="product"
    )
    equal(product(x, x.T.contiguous()), x @ x.T)

    @pw.program
    def twice(v: Any) -> Any:
        return turn(turn(v))

    for _ in range(3):
        equal(twice(x), x + 2)


def collectives_on_a_mesh_over_hosts(cluster: pw.Cluster) -> None:
    """Groups within a host, and groups that have a member on each."""
    s = cluster.slice((2, 2), ("a", "b"), hosts=2)
    x = torch.arange(32.0).reshape(4, 8)
    for axis in (0, 1):
        sums = pw.function(lambda v, axis=axis: v.sum(axis), slice=s, in_placements=(("a", "b"),), name=f"sum {axis}")
        equal(sums(x), x.sum(axis))


FUNCTIONS: tuple[Scenario, ...] = (
    a_function_gives_futures,
    placements_say_how_tensors_lie,
    a_grid_of_devices,
    element_types,
    a_module_as_an_argument,
    random_numbers_follow_torch,
    constants_and_unused_arguments,
    writes_through_views,
    a_tensor_of_a_device_goes_in,
    submitting_never_waits,
    awaiting,
    mistakes_of_functions,
    slices_that_cannot_be,
)
SPANNING: tuple[Scenario, ...] = (
    functions_span_hosts,
    programs_reshard_between_hosts,
    collectives_between_hosts,
    collectives_on_a_mesh_over_hosts,
)
SCENARIOS = {"functions": FUNCTIONS, "spanning": SPANNING}


if __name__ == "__main__":
    spanning = sys.argv[1] == "spanning"
    run(SCENARIOS[sys.argv[1]], hosts=2 if spanning else 3, islands=1 if spanning else 3)
