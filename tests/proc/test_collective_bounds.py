"""Modules whose collectives XLA would compile to something else, or would end the worker's process at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptpathways import core, native
from ptpathways.launch import local
from tests.proc.test_slices_compute import TIMEOUT_S, program_of
from tests.scenarios import needs_native

pytestmark = needs_native

CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
GLOBAL = f", use_global_device_ids, {CHANNEL}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[local.LocalCluster]:
    with local.start(core.Options(hosts=2, devices_per_host=2)) as started:
        yield started


def module_of(body: str, attributes: str = "") -> bytes:
    """Of %x and %r, both f32[4]."""
    return f"""module @m {attributes} {{
      func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        {body}
        return %r : tensor<4xf32>
      }}
    }}""".encode()


def all_reduce(groups: str, shape: str, more: str = "", operands: int = 1) -> str:
    kinds, given = ", ".join(["tensor<4xf32>"] * operands), ", ".join(["%x", "%twice"][:operands])
    result = "%r" if operands == 1 else f"%y:{operands}"
    return f"""{result} = "stablehlo.all_reduce"({given}) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }}) {{replica_groups = dense<{groups}> : tensor<{shape}xi64>{more}}} : ({kinds}) -> ({kinds})"""


PERMUTE = (
    f'%r = "stablehlo.collective_permute"(%x) {{source_target_pairs = dense<[[0, 1], [1, 2]]> : tensor<2x2xi64>, '
    f"{CHANNEL}}} : (tensor<4xf32>) -> tensor<4xf32>"
)


@pytest.mark.parametrize(
    ("module", "devices", "said"),
    [
        (module_of(all_reduce("[[0, 1]]", "1x2")), None, "replicas that the computation does not run on"),
        (module_of(all_reduce("[[0, 1]]", "1x2", GLOBAL)), None, "1 replica x 1 partition: expected ids from 0 to 0"),
        (module_of(all_reduce("[[0, 1, 2, 3]]", "1x4", GLOBAL)), [0, 1], "expected ids from 0 to 1, got 2"),
        (module_of(all_reduce("[[0, 1, 2, 3]]", "1x4", GLOBAL)), [1, 2], "expected ids from 0 to 1, got 2"),
        (module_of(all_reduce("[[0, 1]]", "1x2")), [0, 1], "give it a channel"),
        (module_of(PERMUTE), [0, 1], "collective-permute 'collective-permute.*' names partitions"),
        (module_of("%r = stablehlo.add %x, %x : tensor<4xf32>", "attributes {mhlo.num_partitions = 4 : i32}"), [0, 1],
         "made for 1 replica x 2 partitions, got one whose attributes say 1 replica x 4"),
    ],
)  # fmt: skip
def test_what_xla_would_drop_is_refused(
    cluster: local.LocalCluster, module: bytes, devices: list[int] | None, said: str
) -> None:
    with pytest.raises(native.NativeError, match=said) as caught:
        cluster.session.register(module, "mlir", devices=devices, name="sums")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert all(host["alive"] for host in cluster.session.hosts())


@pytest.mark.parametrize("devices", [[0, 1], [1, 2]], ids=["one host", "two hosts"])
def test_an_all_reduce_of_several_operands_is_computed(cluster: local.LocalCluster, devices: list[int]) -> None:
    body = f"""%twice = stablehlo.add %x, %x : tensor<4xf32>
        {all_reduce("[[0, 1]]", "1x2", GLOBAL, operands=2)}
        %r = stablehlo.multiply %y#0, %y#1 : tensor<4xf32>"""
    session = cluster.session
    function = session.register(module_of(body), "mlir", devices=devices, name="sums", outputs=[("f32", [4])])
    program = program_of(session, function, devices, [[4]], [4])
    shards = [np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)]
    (result,) = session.run_program(program, [session.put_sharded(shards, devices)])
    for shard in result.fetch(TIMEOUT_S):
        np.testing.assert_array_equal(shard, 2 * (shards[0] + shards[1]) ** 2)
