"""Who floods a cluster, or does not read what it asked for, is ended; memory stays, and others go on."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import zmq

from ptpathways import core
from ptpathways.testing import wait_until
from tests.fuzz import hostile
from tests.proc.conftest import StartCluster

WAIT_S = 60.0
MIB = 1 << 20
_QUERY, _STATUS = 22, 6


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_answers_that_nobody_reads_have_a_limit(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    client: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    client.linger = 0
    client.rcvhwm = 1
    client.connect(cluster.controller.endpoints[0])

    def known() -> bool:
        return any(each["name"] == "silent" for each in json.loads(cluster.controller.status_json())["clients"])

    with client:
        client.send(hostile.hello(core.__version__, "silent"))
        wait_until(known, WAIT_S)
        number = struct.unpack("<I", client.recv_multipart()[0][24:28])[0]
        before = _resident_bytes()
        asked = 0
        while known():
            assert asked < 3_000_000, "it is still a member"
            for _ in range(2000):
                asked += 1
                body = struct.pack("<QBQI", (number << 48) + asked, _STATUS, 0, 0)
                client.send(hostile.on_line(hostile.frame(_QUERY, body), asked))
        assert _resident_bytes() - before < 250 * MIB
        array = np.arange(1 << 18, dtype=np.float32)
        np.testing.assert_array_equal(cluster.session.put(array, 0).result(WAIT_S), array)
