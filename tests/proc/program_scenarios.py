"""Programs on real workers, each compared with plain PyTorch. One process, one cluster.

python program_scenarios.py FILE    # where the scenario ``saved_programs`` writes
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import warnings
from typing import Any

import torch
from torch import Tensor

import ptpathways as pw
from tests import inside
from tests.proc.cluster_scenarios import WAIT_S, Scenario, equal, refused, run


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
    refused(TypeError, "goes by itself to the slice", lambda: program(lambda v: pw.transfer(v, b.slice))(x))

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
    named = ["'too_large'", "program_scenarios.py:", "GiB", "256.00 MiB"]
    refused(pw.OutOfDeviceMemory, named, lambda: failed.result(WAIT_S))
    refused(pw.OutOfDeviceMemory, named, lambda: dependent.result(WAIT_S))
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
    connection = inside.connection()
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

    target = sys.argv[1]
    f([1.0, 2.0], [3.0, 4.0])
    f.save(target, [1.0, 2.0], [3.0, 4.0])
    f.save(target + ".types", [1.0, 2.0], [3.0, 4.0], weights=(1,))
    irregular = pw.function(lambda v: v[v > 0], slice=a.slice, regular=False)

    @pw.program
    def g(v: Any) -> Any:
        return irregular(a(v))

    g([1.0, 2.0])
    refused(pw.InvalidProgram, "irregular", lambda: g.save(target + ".no", [1.0, 2.0]))

    @pw.function(slice=a.slice, in_placements=[("x",), None], out_placements=[None, ("x",)], donate=(0,))
    def step(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return weight.sum(), weight - 0.5 * x

    @pw.program(donate=(0,))
    def train(weight: Any, x: Any) -> Any:
        return step(weight, x)

    train.save(target + ".train", [8.0, 9.0], [1.0, 2.0])


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


if __name__ == "__main__":
    run(PROGRAMS, hosts=3, islands=3)
