"""Measuring on other machines, through TVM's own RPC tracker and servers.

The tracker's protocol is spoken here rather than by ``tvm.rpc.TrackerSession``, which waits a
minute for a tracker that is not there, and for ever for a server.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

from tvm import rpc
from tvm.rpc.base import RPC_TRACKER_MAGIC, TrackerCode, recvall, recvjson, sendjson
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.rpc_runner import default_cleanup

from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.machine.vdevice import positive_count
from tvm_rammer.tuning.worker import name_remote_choices, run_remote_choices
from tvm_rammer.units import listed

#: Seconds until a tracker must have answered.
ANSWER_SECONDS = 10.0
#: Seconds that a server has for one measurement, and until one is taken for lost that is silent.
_RUN_SECONDS, _SILENT_SECONDS = 90, 120.0
#: Seconds until a tracker is asked again whether it still has servers; all may be busy for long.
_BUSY_SECONDS = 5.0
#: Seconds between two tries to reach what refuses a connection.
_PAUSE_SECONDS = 0.2
#: Seconds in which a server that is dying is dead.
_DYING_SECONDS = 1.0
_PORTS = range(1, 1 << 16)


class NoServerError(TuningError):
    """A tracker has no server, or cannot be asked for one."""


class ServerLostError(TuningError):
    """The server of a measurement ended, or cannot be reached any more."""


@dataclass(frozen=True)
class Tracker:
    """Machines of one kind, which a tracker of TVM hands out one measurement at a time.

    TVM's RPC has no authentication: whoever reaches a tracker or a server can run anything there.

    Attributes
    ----------
    host : str
    port : int
        Where the tracker listens.
    key : str
        What the servers of these machines were started with.
    parallel : int, optional
        Measurements at a time at most; as many as there are servers if not given.

    Raises
    ------
    InputError
        If one of them cannot be.
    """

    host: str
    port: int
    key: str
    parallel: int | None = None

    def __post_init__(self) -> None:
        if not self.host or self.port not in _PORTS:
            raise _no_address(self.address)
        if not self.key:
            raise InputError("key is '': give the key that the servers were started with")
        if self.parallel is not None:
            positive_count("parallel", self.parallel)

    @classmethod
    def parse(cls, address: str, key: str, parallel: int | None = None) -> Tracker:
        """A tracker whose address is written ``HOST:PORT``; an InputError says what is wrong."""
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdecimal():
            raise _no_address(address)
        return cls(host, int(port), key, parallel)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def servers(self) -> list[str]:
        """The addresses of the servers with the key, busy ones among them.

        Raises
        ------
        TuningError
            If no tracker answers, or it has no such server.
        """
        known = [
            (str(each["key"]).partition(":")[2], ":".join(map(str, each["addr"])))
            for each in self._ask([TrackerCode.SUMMARY], ANSWER_SECONDS)[1]["server_info"]
        ]
        found = sorted(address for key, address in known if key == self.key)
        if not found:
            keys = listed(sorted({repr(key) for key, _ in known}))
            raise TuningError(
                f"the RPC tracker at {self.address} has no server with the key {self.key!r} "
                f"(keys that it has: {keys}); start one: python -m tvm.exec.rpc_server "
                f"--tracker {self.address} --key {self.key}"
            )
        return found

    def runner(self, scratch: Path) -> ms.runner.RPCRunner:
        """MetaSchedule's runner for the choices of tasks in a folder of this machine.

        Raises
        ------
        TuningError
            As :meth:`servers`.
        """
        servers = len(self.servers())
        return ms.runner.RPCRunner(
            ms.runner.RPCConfig(self.host, self.port, self.key, session_timeout_sec=_RUN_SECONDS),
            f_create_session=partial(open_session, self),
            f_alloc_argument=name_remote_choices,
            f_run_evaluator=partial(run_remote_choices, scratch),
            f_cleanup=close_session,
            max_workers=min(self.parallel or servers, servers),
        )

    def free_server(self) -> tuple[str, int, str]:
        """Host, port and password of a server that is ours now; waits while all are busy.

        Raises
        ------
        NoServerError
            If there is none, busy or not.
        """
        while True:
            try:
                self.servers()
                with suppress(_SilentError):
                    wanted = [TrackerCode.REQUEST, self.key, "", 1]
                    host, port, password = self._ask(wanted, _BUSY_SECONDS)[1]
                    return str(host), int(port), str(password)
            except TuningError as error:
                raise NoServerError(str(error)) from error

    def _ask(self, question: Sequence[Any], seconds: float) -> Any:
        """What the tracker answers to a question within some time."""
        try:
            with self._connected() as tracker:
                tracker.settimeout(seconds)
                sendjson(tracker, question)
                return recvjson(tracker)
        except (ValueError, LookupError, struct.error) as error:
            raise TuningError(f"what answers at {self.address} is no RPC tracker") from error
        except TimeoutError as error:
            raise _SilentError(
                f"the RPC tracker at {self.address} does not answer, for {seconds:.0f} s"
            ) from error
        except OSError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        """A connection to the tracker, both having said what they are."""
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            left = max(end - time.monotonic(), _PAUSE_SECONDS)
            try:
                connection = socket.create_connection((self.host, self.port), left)
                break
            except ConnectionRefusedError as error:  # it may be about to start
                if time.monotonic() > end:
                    raise self._unreachable(error) from error
                time.sleep(_PAUSE_SECONDS)
            except TimeoutError as error:
                raise self._unreachable(error) from error
        with connection:
            connection.sendall(struct.pack("<i", RPC_TRACKER_MAGIC))
            if recvall(connection, 4) != struct.pack("<i", RPC_TRACKER_MAGIC):
                raise ValueError
            yield connection

    def _unreachable(self, error: OSError) -> TuningError:
        return TuningError(
            f"no RPC tracker answers at {self.address} ({error.strerror or error}; waited up to "
            f"{ANSWER_SECONDS:.0f} s); start it there: python -m tvm.exec.rpc_tracker --host "
            f"{self.host} --port {self.port}"
        )


class _SilentError(TuningError):
    """A tracker has not answered in time."""


def _no_address(address: str) -> InputError:
    return InputError(
        f"the tracker's address is {address!r}: give HOST:PORT, such as 127.0.0.1:9190"
    )


# What follows runs in the processes of the runner.


def open_session(tracker: Tracker, config: ms.runner.RPCConfig) -> rpc.RPCSession:
    """A session with a server, for one measurement, which ends whatever the server does.

    Raises
    ------
    NoServerError
        If there is none.
    ServerLostError
        If it went away just now.
    """
    host, port, password = tracker.free_server()
    try:
        session = rpc.connect(host, port, password, config.session_timeout_sec)
    except Exception as error:
        raise ServerLostError(f"the server at {host}:{port} cannot be reached") from error
    session.server = (host, port)
    # A machine without power says nothing, not even that the connection is closed.
    session.watch = Timer(_SILENT_SECONDS, os._exit, [1])
    session.watch.daemon = True
    session.watch.start()
    return session


def close_session(session: rpc.RPCSession | None, path: str | None) -> None:
    """Remove what a measurement left on its server.

    Raises
    ------
    ServerLostError
        If the server is not there any more.
    TuningError
        If it still is, and the process ended in which it runs choices.
    """
    if session is None:
        return
    reason = sys.exc_info()[1]
    session.watch.cancel()
    try:
        default_cleanup(session, path)
    except Exception as error:
        if isinstance(reason, TuningError):
            return
        where = ":".join(map(str, session.server))
        if "RPCSessionTimeoutError" in str(reason):  # which the server has sent
            how = f"took longer than {_RUN_SECONDS} s"
        elif _gone(session.server):
            raise ServerLostError(f"the server at {where} is gone") from error
        else:
            how = "ended its process"
        raise TuningError(f"on the server at {where} it {how}") from error


def _gone(server: tuple[str, int]) -> bool:
    """Whether nobody listens there any more; of what is being killed, the listener may be last."""
    try:
        connection = socket.create_connection(server, ANSWER_SECONDS)
    except OSError:
        return True
    with connection:
        connection.settimeout(_DYING_SECONDS)
        try:
            # Who listens waits for our first word.
            connection.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True
    return True
