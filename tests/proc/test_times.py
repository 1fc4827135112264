"""When the computations of programs ran, as the hosts of a cluster noted it: whose they are, and how many runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptpathways import core, native, testing
from ptpathways.bench import _programs
from ptpathways.launch import local
from tests.proc.conftest import ADD_ONE

WAIT_S = 60.0
RUNS_KEPT = 4


@pytest.fixture
def cluster() -> Iterator[local.StandingCluster]:
    started = local.serve(core.Options(hosts=2))
    yield started
    started.close()
    assert not testing.leftovers(started)


def test_clients_are_told_of_their_own_programs_alone(cluster: local.StandingCluster) -> None:
    """Each of two clients asks about its own program, of which nobody else's runs push runs out."""
    sessions = [native.Session.connect(cluster.address, name, 20.0) for name in ("a", "b")]
    made = []
    for session, length in zip(sessions, (3, 5), strict=True):
        function = session.register(ADD_ONE.encode(), "mlir", name="add_one")
        program = _programs.chain(session, "chain", function, [0, 1], length)
        argument = session.put_sharded([np.asarray(value, np.float32) for value in (1, 2)], [0, 1])
        made.append((program, argument))
    assert sessions[0].times_of(made[0][0], 0, WAIT_S)[1] == [], "it has not run"
    for session, (program, argument), count in zip(sessions, made, (2, 50), strict=True):
        for _ in range(count):
            (result,) = session.run_program(program, [argument])
        result.wait(WAIT_S)
    for session, (program, _), length, kept in zip(sessions, made, (3, 5), (2, RUNS_KEPT), strict=True):
        for device in (0, 1):
            ahead, runs = session.times_of(program, device, WAIT_S)
            assert ahead > 0 and len(runs) == kept
            assert [run for run, _, _ in runs] == sorted(run for run, _, _ in runs)
            end = 0
            for _, missing, computations in runs:
                assert missing == 0 and [node for _, node, *_ in computations] == [f"add {k}" for k in range(length)]
                for where, _, _, start, until in computations:
                    assert where == device and end <= start <= until
                    end = until
    with pytest.raises(native.NativeError, match="expected a function of client"):
        sessions[1].times_of(made[0][0], 0, WAIT_S)
    assert sessions[0].times_of(made[0][0], 0, WAIT_S)[1], "the other client lives"
    sessions[0].close()
