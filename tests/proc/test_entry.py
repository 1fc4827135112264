"""Who gets into a cluster, and in which role: docs/security.md, line by line. The attackers speak the protocol."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import zmq

from ptpathways import core, launch, native
from ptpathways.testing import wait_until
from tests.fuzz import hostile
from tests.proc import attackers

COMMAND = [sys.executable, "-m", "ptpathways.cli"]
WAIT_S = 60.0


@dataclass
class Standing:
    """A controller and a worker that were started by hand, as the README shows."""

    address: str
    runtime: Path
    log: Path

    @property
    def token(self) -> str:
        (path,) = (self.runtime / "ptpathways").glob("*.token")
        return path.read_text().strip()

    def session(self, name: str = "honest") -> native.Session:
        return native.Session.connect(self.address, name, 20.0, token=self.token)

    def serving(self) -> int:
        """The controller's process that members talk to, not its standby."""
        with self.session("asks") as session:
            pid: int = json.loads(session.status_json(WAIT_S))["controller"]["pid"]
            return pid


def _environment(runtime: Path) -> dict[str, str]:
    without = {k: v for k, v in os.environ.items() if k not in (core.TOKEN_VARIABLE, "PTPATHWAYS_ADDRESS")}
    return {**without, "XDG_RUNTIME_DIR": str(runtime)}


@contextmanager
def _standing(folder: Path, *arguments: str, bind: str = "tcp://127.0.0.1:*") -> Iterator[Standing]:
    runtime, log = folder / "runtime", folder / "log"
    runtime.mkdir(mode=0o700, exist_ok=True)
    environment = _environment(runtime)
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            [*COMMAND, "controller", "--bind", bind, *arguments],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        ) as controller,
    ):  # fmt: skip
        assert controller.stdout is not None
        found = re.search(r" at (\S+)", controller.stdout.readline())
        assert found is not None, log.read_text()
        insecure = [argument for argument in arguments if argument == "--insecure"]
        root = folder / "root"
        root.mkdir()
        worker = subprocess.Popen(
            [*COMMAND, "worker", "--join", found[1], "--name", "w", "--root", str(root), *insecure],
            stderr=errors,
            env=environment,
        )
        try:
            yield Standing(found[1], runtime, log)
        finally:
            controller.send_signal(signal.SIGINT)
            assert controller.wait(WAIT_S) == 0
            assert worker.wait(WAIT_S) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with _standing(tmp_path_factory.mktemp("cluster")) as standing, standing.session("first") as session:
        wait_until(lambda: session.device_count == 1, WAIT_S)
        yield standing


def _check_unharmed(cluster: Standing) -> None:
    with cluster.session() as session:
        array = np.arange(300_000, dtype=np.float32)
        np.testing.assert_array_equal(session.put(array, 0).result(WAIT_S), array)


def test_programs_of_the_same_user_need_no_token(cluster: Standing) -> None:
    """The README's cluster by hand: the worker has joined, and others find the token, too."""
    file = next((cluster.runtime / "ptpathways").glob("*.token"))
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    environment = _environment(cluster.runtime)
    status = [*COMMAND, "status", "--address", cluster.address, "--json"]
    assert subprocess.run(status, env=environment, capture_output=True, timeout=WAIT_S).returncode == 0
    script = "import sys, ptpathways as pw; print(pw.init(sys.argv[1]).device_count)"
    done = subprocess.run(
        [sys.executable, "-c", script, cluster.address], env=environment, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize("token", ["", core.make_token()], ids=["none", "another"])
def test_strangers_on_this_machine_are_not_heard(cluster: Standing, token: str) -> None:
    with cluster.session() as session:
        endpoint = session.hosts()[0]["data_endpoint"]
    for address, server in ((cluster.address, "controller"), (endpoint, "worker")):
        with attackers.connect(address, token, server=server, kind=attackers.DEALER) as stranger:
            attackers.say(stranger, attackers.hello())
            assert attackers.answer(stranger, 1.0) == (0, b"")
    _check_unharmed(cluster)


def test_an_abstract_socket_needs_the_token_too(tmp_path: Path) -> None:
    name = f"ipc://@pw-entry-{os.getpid()}"
    with _standing(tmp_path, bind=name) as cluster, cluster.session() as session:
        wait_until(lambda: session.device_count == 1, WAIT_S)
        with attackers.connect(name) as stranger:
            attackers.say(stranger, attackers.hello())
            assert attackers.answer(stranger, 1.0) == (0, b"")


def test_insecure_is_said_loudly_and_stays_on_this_machine(tmp_path: Path) -> None:
    with _standing(tmp_path, "--insecure") as cluster:
        assert "WARNING" in cluster.log.read_text()
        assert not list((cluster.runtime / "ptpathways").glob("*.token"))
        with native.Session.connect(cluster.address, "any", 20.0, token=core.INSECURE) as session:
            wait_until(lambda: session.device_count == 1, WAIT_S)
        with attackers.connect(cluster.address) as anybody:  # no pickle of whom nobody knows
            kind, body = attackers.ask(anybody, attackers.hello())
            number = struct.unpack("<I", body[:4])[0]
            asked = struct.pack("<QQIIQQ", number << 48 | 1, number << 48 | 2, 0, 1, 1000, 1000) + hostile.text("x")
            kind, body = attackers.ask(anybody, hostile.on_line(hostile.frame(45, asked), 1), b"cbuiltins\nprint\n.")
            assert kind == 23 and b"join token" in body
    done = subprocess.run(
        [*COMMAND, "controller", "--bind", "tcp://0.0.0.0:*", "--insecure"],
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 1 and "without a join token" in done.stderr


def test_a_token_file_goes_with_its_controller_and_is_not_believed_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    token, address = core.make_token(), "tcp://127.0.0.1:7450"
    assert launch.find(address) == ""
    files = launch.keep([address], token)
    assert launch.find(address) == launch.find("tcp://localhost:7450") == token
    assert launch.find("tcp://127.0.0.1:7451") == launch.find("tcp://192.0.2.1:7450") == ""
    files[0].chmod(0o640)
    with pytest.raises(core.InvalidOption, match="mode 600"):
        launch.find(address)
    files[0].unlink()
    (tmp_path / "planted").write_text(core.make_token())
    files[0].symlink_to(tmp_path / "planted")
    with pytest.raises(core.InvalidOption, match="plain file"):
        launch.find(address)
    launch.keep([address], token)  # replaces the link itself
    assert launch.find(address) == token and not files[0].is_symlink()
    launch.forget(files, core.make_token())  # another controller's by now
    assert launch.find(address) == token
    launch.forget(files, token)
    assert launch.find(address) == ""
    launch.keep(["tcp://0.0.0.0:7450"], token)
    assert launch.find(address) == token and launch.find("tcp://192.0.2.1:7450") == ""
    (runtime / "ptpathways").chmod(0o755)
    assert launch.find(address) == ""
    with pytest.raises(core.InvalidOption, match="mode 700"):
        launch.keep([address], token)


# --- roles


@pytest.mark.parametrize(("key", "role"), [("client", 2), ("worker", 1)])
def test_nobody_joins_in_anothers_role(cluster: Standing, key: str, role: int) -> None:
    with attackers.connect(cluster.address, cluster.token, key) as liar:
        kind, body = attackers.ask(liar, attackers.hello(role))
        assert kind == attackers.REJECT and f"got that of a {key}" in attackers.text_of(body)
        assert attackers.ask(liar, hostile.frame(5, bytes(45)))[0] == attackers.REJECT, "it has not joined"
    _check_unharmed(cluster)


def test_a_client_does_not_sit_at_an_islands_table(cluster: Standing) -> None:
    text = hostile.text
    join = text(core.__version__) + text("h") + struct.pack("<Q", 1) + text("i") + struct.pack("<I", 1) + text("cpu")
    with attackers.connect(cluster.address, cluster.token) as liar:
        kind, body = attackers.ask(liar, hostile.frame(39, join + text("p") + struct.pack("<Q", 1000)))
        assert kind == attackers.REJECT and "got that of a client" in attackers.text_of(body)


def test_a_role_token_serves_its_role_only(cluster: Standing) -> None:
    client, worker = (launch.role_token(cluster.token, role) for role in launch.ROLES[::-1])
    with native.Session.connect(cluster.address, "client", 20.0, token=client) as session:
        assert session.put(np.float32(3), 0).result(WAIT_S) == 3
    with pytest.raises(native.NativeError, match="another role"):
        native.Session.connect(cluster.address, "client", 20.0, token=worker)
    with pytest.raises(native.NativeError, match="another role"):
        native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": False, "token": client})
    refused = subprocess.run(
        [*COMMAND, "worker", "--join", cluster.address, "--token", "-"],
        input=client, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert refused.returncode == 2 and "a worker needs" in refused.stderr and "a client's token" in refused.stderr
    printed = subprocess.run(
        [*COMMAND, "token", "--role", "client", "--token", "-"],
        input=cluster.token, capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    assert printed.stdout.strip() == client
    with cluster.session() as session:
        pid = session.hosts()[0]["pid"]
    assert cluster.token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize(
    ("key", "expected"), [("client", "worker"), ("client", "controller"), ("worker", "controller")]
)
def test_nobody_listens_in_anothers_role(key: str, expected: str) -> None:
    """Who holds one role's key only, and can make others call it, hears nothing of them."""
    token = core.make_token()
    liar: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    with liar:
        liar.linger = 0
        liar.curve_server = True
        liar.curve_publickey, liar.curve_secretkey = attackers.keys_of(token, key)
        port = liar.bind_to_random_port("tcp://127.0.0.1")
        for server, heard in ((key, True), (expected, False)):  # the first shows that there is a way at all
            caller = attackers.connect(f"tcp://127.0.0.1:{port}", token, server=server)
            with caller:
                attackers.say(caller, b"secret")
                assert bool(liar.poll(10_000 if heard else 1000)) == heard
                if heard:
                    assert liar.recv_multipart()[1] == b"secret"


def test_a_routing_id_does_not_make_an_embedded_client() -> None:
    """Whoever calls itself local/1 is refused, and the client that is local/1 goes on."""
    token = core.make_token()
    controller = native.Controller({"bind": ["tcp://127.0.0.1:*"], "embedded": True, "token": token})
    try:
        with native.Session.connect("", "embedded", 10.0) as session:
            with attackers.connect(controller.endpoints[0], token, identity=b"local/1") as liar:
                for message in (attackers.hello(), hostile.frame(6, hostile.text("bye"))):
                    kind, body = attackers.ask(liar, message)
                    assert kind == attackers.REJECT and "local/" in attackers.text_of(body)
            assert [client["name"] for client in json.loads(session.status_json(10.0))["clients"]] == ["embedded"]
    finally:
        controller.close("the test is over")


def test_a_session_goes_on_by_a_connection_with_its_secret_and_key_only(cluster: Standing) -> None:
    line = hostile.own_line()
    joining = hostile.hello(core.__version__, "owner", line)
    address, token = cluster.address, cluster.token
    with (
        attackers.connect(address, token) as owner,
        attackers.connect(address, token) as guesser,
        attackers.connect(address, token, "worker") as host,
        attackers.connect(address, token) as later,
    ):
        kind, body = attackers.ask(owner, joining)
        assert kind == attackers.WELCOME
        (number,) = struct.unpack("<I", body[:4])
        query = hostile.frame(22, struct.pack("<QBQI", number << 48 | 1, 6, 0, 0))
        for liar, message, reason in (
            (guesser, hostile.heartbeat(line, 1, bytes(16)), "secret"),
            (guesser, hostile.heartbeat(hostile.own_line(), 1), "nothing is known of this session"),
            (host, hostile.heartbeat(line, 1), "key"),
        ):
            kind, body = attackers.ask(liar, message)
            assert kind == attackers.REJECT and reason in attackers.text_of(body)
        later.send(hostile.heartbeat(line, 1))
        assert attackers.next_of(later, attackers.WELCOME) is not None, "what was not taken is sent again"
        owner.send(hostile.on_line(query, 1))  # stale by now
        assert attackers.next_of(owner, 23, 1.5) is None
        later.send(hostile.on_line(query, 1))
        assert attackers.next_of(later, 23) is not None
    _check_unharmed(cluster)


# --- data connections

DATA = 20


def _peer_hello(cluster_name: str) -> bytes:
    return hostile.peer_hello(cluster_name, "elsewhere")


def _data(key: int, payload: bytes, segment: str = "", *, message: int = 1) -> list[bytes]:
    body = struct.pack("<QQQQ", key, 0, len(payload), len(payload)) + hostile.text(segment)
    return [hostile.frame(DATA, body + struct.pack("<QQi", 0, 1, 0) + hostile.text(""), message), payload]


def _number_of_latest(cluster: Standing) -> int:
    """Of the client that joined last: numbers are given in a row, so it can be guessed."""
    with attackers.joined(cluster.address, cluster.token) as (number, _):
        return number - 1


@contextmanager
def _said(cluster: Standing, what: str) -> Iterator[None]:
    """Waits until controller or worker has logged one more line with this text."""
    before = cluster.log.read_text().count(what)
    yield
    wait_until(lambda: cluster.log.read_text().count(what) > before, 20.0)


def test_a_predicted_name_takes_nobodys_place(cluster: Standing) -> None:
    """Another client's fetched values stay that client's, and an owner's connection cannot be taken over."""
    with cluster.session("victim") as session:
        endpoint, number = session.hosts()[0]["data_endpoint"], _number_of_latest(cluster)
        names = [f"c/{number}", f"c/{number}/{number}/{'0' * 32}", "to/w", "w/w", "w/w/1/" + "0" * 32, "local/1"]
        for name in names:
            thief = attackers.connect(endpoint, cluster.token, server="worker", identity=name.encode())
            with thief, _said(cluster, "the name that the controller gave"):
                thief.send(_peer_hello(session.cluster))
                array = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
                np.testing.assert_array_equal(session.put(array, 0).result(WAIT_S), array)
                assert attackers.answer(thief, 0.2) == (0, b"")
    _check_unharmed(cluster)


def test_a_client_does_not_call_as_a_host(cluster: Standing) -> None:
    """Not even by a name that the controller gave a host: the key says that it is a client."""
    with cluster.session() as session, attackers.connect(cluster.address, cluster.token, "worker") as host:
        endpoint = session.hosts()[0]["data_endpoint"]
        kind, body = attackers.ask(host, attackers.hello(2, "other"))
        assert kind == attackers.WELCOME
        name = attackers.identity_in(body)
        assert name.startswith(b"w/other/")
        liar = attackers.connect(endpoint, cluster.token, server="worker", identity=name)
        with liar, _said(cluster, "must be that of its role"):
            liar.send(_peer_hello(session.cluster))


def test_bytes_of_others_transfers_are_not_believed(cluster: Standing) -> None:
    with cluster.session("victim") as session, attackers.joined(cluster.address, cluster.token) as (number, identity):
        keys = [(number - 1) << 48 | low for low in range(1, 40)]
        forged = bytes(np.full(300_000, 7, np.float32))
        endpoint = session.hosts()[0]["data_endpoint"]
        with attackers.connect(endpoint, cluster.token, server="worker", identity=identity) as liar:
            with _said(cluster, "expected PEER_HELLO"):
                for key in keys[:2]:  # a peer's mistakes are told a few times a minute
                    liar.send_multipart(_data(key, forged))
            liar.send(_peer_hello(session.cluster))
            with _said(cluster, "must have its own keys"):
                for message, key in enumerate(keys, start=1):
                    liar.send_multipart(_data(key, forged, message=message))
            array = np.arange(300_000, dtype=np.float32)
            np.testing.assert_array_equal(session.put(array, 0).result(WAIT_S), array)
    _check_unharmed(cluster)


def test_a_segment_is_named_by_its_owner_only(cluster: Standing) -> None:
    with cluster.session("victim") as session, attackers.joined(cluster.address, cluster.token) as (number, identity):
        array = np.arange(3_000_000, dtype=np.float32)
        np.testing.assert_array_equal(session.put(array, 0).result(WAIT_S), array)
        segments = [name for name in os.listdir("/dev/shm") if name.startswith(f"ptpathways-{session.cluster}-")]
        assert segments, "the value travelled through shared memory"
        assert all(os.stat(f"/dev/shm/{name}").st_mode & 0o777 == 0o600 for name in segments)
        endpoint = session.hosts()[0]["data_endpoint"]
        with attackers.connect(endpoint, cluster.token, server="worker", identity=identity) as spy:
            spy.send(_peer_hello(session.cluster))
            for message, segment in enumerate(segments[:3], start=1):
                with _said(cluster, "named by its owner"):
                    spy.send(_data(number << 48 | 5, bytes(4096), f"/{segment}", message=message)[0])


def test_only_the_host_that_was_asked_answers(cluster: Standing) -> None:
    """A second host, which plays its role in the open, cannot answer what the first was asked."""
    with cluster.session("victim") as session, attackers.connect(cluster.address, cluster.token, "worker") as host:
        before = session.device_count  # with those of hosts that are gone
        kind, _ = attackers.ask(host, attackers.hello(2, "liar"))
        assert kind == attackers.WELCOME
        wait_until(lambda: session.device_count == before + 1, WAIT_S)
        victim = _number_of_latest(cluster)
        add_one = session.register(hostile.ADD_ONE, "mlir")
        said = 0
        for _ in range(20):
            for number in range(1, 200):
                request = victim << 48 | number
                body = (
                    struct.pack("<Qi", request, 0) + hostile.text("") + struct.pack("<Q", 4) + hostile.text(b"\0" * 4)
                )
                host.send(hostile.on_line(hostile.frame(14, body), said := said + 1))
            (value,) = session.run(add_one, [session.put(np.float32(41), 0)], 0)
            assert value.result(WAIT_S) == 42
    _check_unharmed(cluster)


# --- files


@contextmanager
def _program(cluster: Standing, code: str) -> Iterator[subprocess.CompletedProcess[str]]:
    head = "import sys, torch, ptpathways as pw\npw.init(sys.argv[1])\nx = torch.arange(8.0).to(pw.device())\n"
    with cluster.session() as session:  # hosts that other tests made up are gone when they have not come back in time
        wait_until(lambda: sum(host["alive"] for host in session.hosts()) == 1, WAIT_S)
    yield subprocess.run(
        [sys.executable, "-c", head + code, cluster.address],
        env=_environment(cluster.runtime), capture_output=True, text=True, timeout=2 * WAIT_S,
    )  # fmt: skip


def test_hosts_read_and_write_below_their_root_only(cluster: Standing, tmp_path: Path) -> None:
    root = cluster.runtime.parent / "root"
    (root / "out").symlink_to(tmp_path)
    code = f"""
def attempt(name, act):
    try:
        act()
        print(name, "done")
    except pw.CheckpointError as error:
        print(name, "refused" if "--root" in str(error) else error)
attempt("inside", lambda: pw.save({str(root / "run")!r}, x=x).wait())
attempt("outside", lambda: pw.save({str(tmp_path / "run")!r}, x=x).wait())
attempt("link", lambda: pw.save({str(root / "out" / "linked")!r}, x=x).wait())
attempt("back", lambda: pw.load({str(root / "run")!r}, x=x))
import shutil
shutil.copytree({str(root / "run")!r}, {str(tmp_path / "copy")!r})
attempt("read", lambda: pw.load({str(tmp_path / "copy")!r}, x=x))
"""
    with _program(cluster, code) as done:
        said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said == {"inside": "done", "outside": "refused", "link": "refused", "back": "done", "read": "refused"}, (
        done.stdout + done.stderr
    )


def test_a_shard_that_was_changed_is_named(cluster: Standing) -> None:
    run = cluster.runtime.parent / "root" / "changed"
    code = f"""
import pathlib
pw.save({str(run)!r}, x=x).wait()
(file,) = pathlib.Path({str(run)!r}).glob("data-*")
content = bytearray(file.read_bytes())
content[-1] ^= 1
file.write_bytes(content)
try:
    pw.load({str(run)!r}, x=x)
except pw.CheckpointError as error:
    print(file.name in str(error) and "is damaged" in str(error), x.tolist() == list(range(8)))
"""
    with _program(cluster, code) as done:
        assert done.stdout.strip() == "True True", done.stdout + done.stderr


# --- limits


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_messages_beyond_the_limits_are_refused_with_the_limit(cluster: Standing) -> None:
    for frames, said in (
        ([attackers.hello(name="x" * (10 << 20))], "at most 128 bytes"),
        ([attackers.hello(name="x" * (16 << 20))], "at most 16 MiB"),
        ([attackers.hello(), *[b"x"] * 9], "at most 4 frames"),
    ):
        with attackers.connect(cluster.address, cluster.token) as greedy:
            kind, body = attackers.ask(greedy, *frames)
            assert kind == attackers.REJECT and said in attackers.text_of(body)
            assert len(body) < 1000
    _check_unharmed(cluster)


def test_the_log_says_who_joins_and_leaves(cluster: Standing) -> None:
    with cluster.session("visitor") as session:
        visitor = f"client 'visitor' (client {session.client_index}, pid {os.getpid()})"
    lines = [f"{visitor} has joined from 127.0.0.1\n", f"{visitor} is gone: "]
    wait_until(lambda: all(line in cluster.log.read_text() for line in lines), 20.0)
    assert "host 'w' (host 0, pid" in cluster.log.read_text()
    assert "has joined from 127.0.0.1: 1 cpu device from number 0 on, island 'w'" in cluster.log.read_text()


def test_silent_and_half_open_connections_are_not_kept(cluster: Standing) -> None:
    host, _, port = cluster.address.removeprefix("tcp://").rpartition(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    silent = [attackers.connect(cluster.address, cluster.token) for _ in range(60)]  # with the key, and without a hello
    half_open = []
    serving = cluster.serving()
    try:
        before = _descriptors(serving)
        for _ in range(min(2000, hard - 500)):
            half_open.append(socket.create_connection((host, int(port))))
        _check_unharmed(cluster)
        assert _descriptors(serving) < before + 700, "strangers from one address have a limit"
        wait_until(lambda: _descriptors(serving) < 40, 25.0)
        used = _processor_s(serving)
        started = time.monotonic()
        _check_unharmed(cluster)
        assert _processor_s(serving) - used < 0.5 * max(time.monotonic() - started, 1.0)
    finally:
        for connection in half_open:
            connection.close()
        for socket_ in silent:
            socket_.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_bad_messages_fill_no_log_and_bring_no_raw_bytes_there(cluster: Standing) -> None:
    before = cluster.log.stat().st_size
    with attackers.connect(cluster.address, cluster.token) as noisy:
        noisy.send(attackers.hello(name="\x1b[2Jnoisy\n"))
        for _ in range(20_000):
            noisy.send(b"\x1b[31mgarbage\n" * 3)
            noisy.send(hostile.frame(99, b""))
        noisy.send(hostile.on_line(hostile.frame(6, hostile.text("bye")), 1))
        _check_unharmed(cluster)
    with cluster.session() as session, attackers.joined(cluster.address, cluster.token) as (_, identity):
        endpoint = session.hosts()[0]["data_endpoint"]
        with attackers.connect(endpoint, cluster.token, server="worker", identity=identity) as noisy:
            for _ in range(20_000):
                noisy.send(b"\x1b[31mgarbage\n" * 3)
            _check_unharmed(cluster)
    added = cluster.log.read_bytes()[before:]
    assert len(added) < 64 << 10
    assert all(byte in b"\n" or 0x20 <= byte < 0x7F for byte in added)
