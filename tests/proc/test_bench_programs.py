"""The workloads' programs on real workers: they compute what they say, and a wait takes its time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from ptpathways import core, native
from ptpathways.bench._hlo import add_chain, all_reduce, waiting
from ptpathways.bench._programs import chain, pipeline
from ptpathways.bench._scale import OWN_MODULE
from ptpathways.bench._systems import start
from ptpathways.bench._workload import OURS
from ptpathways.launch import local

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def session() -> Iterator[native.Session]:
    with local.start(core.Options(hosts=2, devices_per_host=2)) as cluster:
        yield cluster.session


def _scalars(session: native.Session, devices: list[int]) -> native.Buffer:
    return session.put_sharded([np.zeros((), np.float32) for _ in devices], devices)


def test_every_host_adds_in_every_node(session: native.Session) -> None:
    devices = [0, 2]
    add = session.register(add_chain(3), "mlir", name="adds")
    program = chain(session, "chain", add, devices, 5)
    (result,) = session.run_program(program, [_scalars(session, devices)])
    assert [float(value) for value in result.fetch(TIMEOUT_S)] == [15.0, 15.0]


def test_a_pipeline_passes_all_stages_and_delivers(session: native.Session) -> None:
    add = session.register(add_chain(1), "mlir", name="add")
    for stages, deliver, last in (([0, 0, 2, 2], None, 2), ([0, 2, 0, 1], None, 1), ([0], 2, 2)):
        program = pipeline(session, "stages", add, stages, deliver)
        (result,) = session.run_program(program, [_scalars(session, stages[:1])])
        assert (result.devices, float(result.result(TIMEOUT_S))) == ([last], len(stages))


def test_collectives_join_the_devices_of_a_host(session: native.Session) -> None:
    reduces = session.register(all_reduce(2, 4), "mlir", name="all_reduces", devices=[0, 1])
    program = chain(session, "reduces", reduces, [0, 1], 3)
    held = session.put_sharded([np.array(0.0, np.float32), np.array(2.0, np.float32)], [0, 1])
    (result,) = session.run_program(program, [held])
    assert [float(value) for value in result.fetch(TIMEOUT_S)] == [13.0, 13.0]  # their mean, and 12 additions


def test_a_wait_occupies_its_device_and_no_other(session: native.Session) -> None:
    wait = session.register(waiting(0.05), "mlir", name="waits")
    argument = {device: session.put(np.float32(7.0), device) for device in (0, 2)}
    session.run(wait, [argument[0]], 0)[0].wait(TIMEOUT_S)
    begin = time.perf_counter()
    results = [session.run(wait, [argument[device]], device)[0] for device in (0, 2, 0, 2)]
    submitted = time.perf_counter() - begin
    assert [float(result.result(TIMEOUT_S)) for result in results] == [7.0] * 4
    seconds = time.perf_counter() - begin
    assert seconds >= 0.1, "two of 50 ms on a device take turns"
    assert submitted < 0.05, "submitting never waits"


def test_all_figures_of_ours_can_be_measured() -> None:
    with start(OURS, "add", 2, OWN_MODULE) as system:
        measured = {figure: system.measure(figure, 0.01) for figure in system.figures}
    assert list(measured) == ["OpByOp", "Chained", "Fused", "round trip"]
    assert all(value.rate > 0 for value in measured.values())
    assert measured["Chained"].amount % 128 == 0


def test_a_rival_of_this_environment_is_measured_the_same_way() -> None:
    with start("torch_xla", "allreduce", 2, OWN_MODULE) as system:
        assert system.measure("round trip", 0.01).p50_s > 0
        assert "torch_xla" in system.versions
