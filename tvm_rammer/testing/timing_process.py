"""The parent's end of a contender's process: ask, wait for the answer, put it to sleep again."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_rammer

_ROOT = str(Path(tvm_rammer.__file__).parents[1])


class MissingError(Exception):
    """What a contender needs is not installed."""


class ContenderError(Exception):
    """A contender cannot go on."""


class ContenderProcess:
    """A process that answers one request at a time and is stopped in between.

    Waiting on its pipe is not enough: idle workers of a thread pool spin for up to a second, in the
    next contender's time. A stopped process has no such threads.
    """

    def __init__(
        self, python: str, environment: Mapping[str, str], errors: Path, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._errors = errors
        # The worker's own file and not the module, so that another interpreter needs no package.
        command = [python, str(Path(__file__).with_name("timing_worker.py"))]
        try:
            with errors.open("wb") as stderr:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={**os.environ, "PYTHONPATH": _search_path(python), **environment},
                )
        except OSError as error:
            raise MissingError(f"cannot start {python}: {error.strerror}") from error
        self.pid = self._process.pid
        assert self._process.stdin and self._process.stdout
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._replies, selectors.EVENT_READ)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Wake the process, send a request, return its reply, stop the process."""
        self._signal(signal.SIGCONT)
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise ContenderError(self._obituary()) from None
        reply: dict[str, Any] = json.loads(self._line())
        self._signal(signal.SIGSTOP)
        if "missing" in reply:
            raise MissingError(reply["missing"])
        if "error" in reply:
            raise ContenderError(reply["error"])
        return reply

    def end(self) -> None:
        """Kill the process and free what it held."""
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._requests, self._replies):
            pipe.close()

    def _line(self) -> bytes:
        received, deadline = b"", time.monotonic() + self._timeout_s
        while not received.endswith(b"\n"):
            if not self._selector.select(deadline - time.monotonic()):
                raise ContenderError(f"no answer within {self._timeout_s:g} s")
            chunk = os.read(self._replies.fileno(), 1 << 16)
            if not chunk:
                raise ContenderError(self._obituary())
            received += chunk
        return received

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _obituary(self) -> str:
        """How the process ended and the last line it wrote."""
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return f"its process ended ({how})" + (f": {lines[-1]}" if lines else "")


def _search_path(python: str) -> str:
    """The worker's import path: ours, or only this package under another interpreter."""
    return os.pathsep.join([_ROOT, *_ours(sys.path)] if python == sys.executable else [_ROOT])


def _ours(paths: Sequence[str]) -> list[str]:
    return [path or os.getcwd() for path in paths]
