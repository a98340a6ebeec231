"""Tuning on the servers of an RPC tracker, one of which dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf

import psutil
import pytest
from test_tune import model
from tvm.rpc import RPCSession
from tvm.s_tir.meta_schedule.runner import RPCConfig

import tvm_rammer
from tvm_rammer.backend import resolve_target
from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.options import Options
from tvm_rammer.tuning import tracker as tracker_module
from tvm_rammer.tuning.database import RECORDS, Database
from tvm_rammer.tuning.journal import read_log
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.tracker import ServerLostError, Tracker, close_session, open_session

KEY = "bench"


@dataclass
class Pool:
    """A tracker, and servers by their addresses."""

    tracker: Tracker
    servers: dict[str, subprocess.Popen]


@contextmanager
def serving(kind: str, *options: object) -> Iterator[tuple[int, subprocess.Popen]]:
    """One of TVM's own processes on loopback, and the port that it listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--host", "127.0.0.1", "--port", port, "--port-end", port + 1]
    child = subprocess.Popen(
        [sys.executable, "-m", f"tvm.exec.{kind}", "--silent", *map(str, [*place, *options])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield port, child
    finally:
        kill(child)


def kill(child: subprocess.Popen) -> None:
    """Kill a process with all that it has started, which would go on without it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def pool() -> Iterator[Pool]:
    with ExitStack() as stack:
        port, _ = stack.enter_context(serving("rpc_tracker"))
        tracker = Tracker.parse(f"127.0.0.1:{port}", KEY)
        servers = {}
        for _ in range(2):
            place = ["--tracker", tracker.address, "--key", KEY]
            server, child = stack.enter_context(serving("rpc_server", *place))
            servers[f"127.0.0.1:{server}"] = child
        until(lambda: known(tracker) == sorted(servers))
        yield Pool(tracker, servers)


def known(tracker: Tracker) -> list[str]:
    try:
        return tracker.servers()
    except TuningError:
        return []


def measuring(server: subprocess.Popen) -> bool:
    """Whether a server runs a session: each is a process of its own."""
    return len(psutil.Process(server.pid).children(recursive=True)) > 1


def elsewhere() -> dict[str, object]:
    """A machine with this one's code and more cores."""
    return {**resolve_target(None).export(), "num-cores": 64}


def seconds(database: Database) -> list[float]:
    """All that was measured for it."""
    module = tvm_rammer.load_model(model()).module
    tasks, _ = tasks_of(module, Options().resolve(elsewhere()))
    return [each for found in tasks for each in database.tried(found.task).values()]


def refusal(kind: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_a_server_dies_while_it_measures(pool, tmp_path):
    """What it measured is measured again on the other, and nothing is lost or counted twice."""
    address, victim = next(iter(pool.servers.items()))

    def murder() -> None:
        until(lambda: measuring(victim))
        kill(victim)

    murderer = threading.Thread(target=murder)
    murderer.start()
    database = tvm_rammer.tune(
        model(), elsewhere(), trials=6, work_dir=tmp_path, tracker=pool.tracker
    )
    murderer.join()
    assert pool.tracker.servers() == [each for each in pool.servers if each != address]
    assert len(found := seconds(database)) == 6 and max(found) < inf
    assert len((tmp_path / RECORDS).read_text().splitlines()) == 6
    notes = [line["note"] for line in read_log(tmp_path) if "note" in line]
    assert notes == ["servers were lost: 1 measurement repeated on others"]
    assert not [line for line in read_log(tmp_path) if "error" in line]
    others = replace(pool.tracker, key="rpi5")
    assert refusal(TuningError, others.servers) == (
        f"the RPC tracker at {others.address} has no server with the key 'rpi5' (keys that it "
        "has: 'bench'); start one: python -m tvm.exec.rpc_server --tracker "
        f"{others.address} --key rpi5"
    )


def test_all_servers_die(pool, tmp_path):
    """The session ends, what it has recorded stays, and nothing counts as failed."""

    def murder(progress: object) -> None:
        for child in pool.servers.values():
            kill(child)

    said = refusal(
        TuningError,
        lambda: tvm_rammer.tune(
            model(),
            elsewhere(),
            trials=6,
            work_dir=tmp_path,
            tracker=pool.tracker,
            watch=murder,
        ),
    )
    address = pool.tracker.address
    assert said == (
        f"the RPC tracker at {address} has no server with the key 'bench' (keys that it has: "
        f"none); start one: python -m tvm.exec.rpc_server --tracker {address} --key bench; "
        "the same call goes on where it was"
    )
    assert len(found := seconds(Database(tmp_path))) == 2 and max(found) < inf
    assert not [line for line in read_log(tmp_path) if "error" in line]


def test_what_a_choice_takes_along(pool):
    """It may hang, or end the process that runs it; a server ends by others."""
    tracker = pool.tracker
    hung = opened(tracker, 1)

    def hang() -> None:
        try:
            time.sleep(1.5)
            hung.listdir("")
        finally:
            close_session(hung, "choices.tar")

    said = refusal(TuningError, hang)
    assert said == f"on the server at {address(hung)} it took longer than 90 s"
    sessions = [opened(tracker, 60) for _ in range(2)]
    crashed, gone = map(address, sessions)
    psutil.Process(pool.servers[crashed].pid).children(recursive=True)[-1].kill()
    kill(pool.servers[gone])
    said = refusal(TuningError, lambda: close_session(sessions[0], "choices.tar"))
    assert said == f"on the server at {crashed} it ended its process"
    said = refusal(ServerLostError, lambda: close_session(sessions[1], "choices.tar"))
    assert said == f"the server at {gone} is gone"


def opened(tracker: Tracker, seconds: int) -> RPCSession:
    config = RPCConfig(tracker.host, tracker.port, KEY, session_timeout_sec=seconds)
    return open_session(tracker, config)


def address(session: RPCSession) -> str:
    return ":".join(map(str, session.server))


def test_a_tracker_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker_module, "ANSWER_SECONDS", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        tracker = Tracker("127.0.0.1", port, KEY)
        started = time.monotonic()
        said = refusal(
            TuningError,
            lambda: tvm_rammer.tune(model(), trials=1, work_dir=tmp_path, tracker=tracker),
        )
        assert 1 <= time.monotonic() - started < 5
    assert said == (
        f"no RPC tracker answers at 127.0.0.1:{port} (Connection refused; waited up to 1 s); "
        f"start it there: python -m tvm.exec.rpc_tracker --host 127.0.0.1 --port {port}"
    )


def test_what_is_no_tracker(monkeypatch):
    monkeypatch.setattr(tracker_module, "ANSWER_SECONDS", 1.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        tracker = Tracker("127.0.0.1", other.getsockname()[1], KEY)
        assert refusal(TuningError, tracker.servers) == (
            f"the RPC tracker at {tracker.address} does not answer, for 1 s"
        )
        greeter = threading.Thread(target=lambda: other.accept()[0].sendall(b"HTTP"))
        other.accept()
        greeter.start()
        assert refusal(TuningError, tracker.servers) == (
            f"what answers at {tracker.address} is no RPC tracker"
        )
        greeter.join()


@pytest.mark.parametrize(
    "address", ["", "9190", ":9190", "host:", "host:x", "host:0", "host:65536"]
)
def test_an_address_that_is_none(address):
    assert refusal(InputError, lambda: Tracker.parse(address, KEY)) == (
        f"the tracker's address is {address!r}: give HOST:PORT, such as 127.0.0.1:9190"
    )


def test_no_key():
    said = refusal(InputError, lambda: Tracker("127.0.0.1", 9190, ""))
    assert said == "key is '': give the key that the servers were started with"


def test_none_at_a_time():
    said = refusal(InputError, lambda: Tracker.parse("127.0.0.1:9190", KEY, 0))
    assert said == "parallel is 0: it must be a whole number of at least 1"
