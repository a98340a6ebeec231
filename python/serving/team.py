"""Compiles models, starts processes that serve them, and lets these take turns."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tvm_rammer
from serving.turn import Turn
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

#: Sets of inputs for each model.
_INPUTS = 3
#: Seconds that a process may take to load, and beyond a turn.
_PATIENCE = 300
_HERE = Path(__file__).parents[1]

#: Name, file, files of inputs, files of wanted outputs.
Files = tuple[str, str, list[str], list[str]]


@dataclass(frozen=True)
class Server:
    """What runs the models in every process.

    Attributes
    ----------
    name : str
        For people.
    engine : str
        See :func:`~serving.served.served`.
    files : tuple
        The models.
    reloads : bool
        Whether the process loads the models one after the other under one path.
    """

    name: str
    engine: str
    files: tuple[Files, ...]
    reloads: bool = False


def read_models(names: str, tiny: bool = False) -> dict[str, onnx.ModelProto]:
    """Models of the zoo, maybe at their reduced sizes, and ONNX files, separated by commas.

    Raises
    ------
    RammerError
        For what is neither.
    """
    found = {}
    for name in names.split(","):
        if name.endswith(".onnx"):
            try:
                found[Path(name).stem] = onnx.load(name)
            except Exception as error:
                raise RammerError(f"{name}: cannot be read as an ONNX model: {error}") from error
        else:
            info = get_model(name)
            found[name] = info.tiny() if tiny else info.build()
    return found


def ours(
    models: Mapping[str, onnx.ModelProto], num_veus: int, folder: Path, report: Callable[[str], Any]
) -> Server:
    """This project's libraries for so many vEUs, with what they compute on one thread."""
    files, work = [], []
    for name, model in models.items():
        report(f"compiling {name} for {num_veus} vEUs")
        stem = str(folder / f"{name}-{num_veus}")
        library = tvm_rammer.build(model, num_veus=num_veus).export_library(f"{stem}.so")
        inputs = _inputs(name, model, folder)
        wanted = [f"{stem}-{number}.npz" for number in range(len(inputs))]
        work += [(str(library), *each) for each in zip(inputs, wanted, strict=True)]
        files.append((name, str(library), inputs, wanted))
    report("running on one thread")
    _run("serving.reference", json.dumps(work), TVM_NUM_THREADS="1")
    return Server(f"{num_veus} vEU{'s' * (num_veus > 1)}", "rammer", tuple(files))


def onnxruntime(models: Mapping[str, onnx.ModelProto], threads: int, folder: Path) -> Server:
    """ONNX Runtime with so many threads; 0 is its default."""
    files = []
    for name, model in models.items():
        path = folder / f"{name}.onnx"
        onnx.save(model, str(path))
        files.append((name, str(path), _inputs(name, model, folder), list[str]()))
    name = f"onnxruntime-{threads}" if threads else "onnxruntime"
    return Server(name, f"onnxruntime{threads}", tuple(files))


class Process:
    """A process that serves the models of a server."""

    def __init__(self, server: Server) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serving.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        self._serves = 0.0
        self._say({"engine": server.engine, "files": server.files, "reloads": server.reloads})

    def loaded(self) -> None:
        """Wait until it has the models."""
        self._heard()

    def prepare(self, clients: int, forked: bool = False) -> None:
        """Start clients: threads, or forked children."""
        self._say({"clients": clients, "forked": forked})
        self._heard()

    def begin(self, seconds: float) -> None:
        """Let what was started run for so long."""
        self._serves = seconds
        self._say(seconds)

    def turn(self) -> Turn:
        """What came of it."""
        return Turn.from_json(self._heard(self._serves))

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _say(self, request: Any) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # why it ended is the next thing that is heard

    def _heard(self, seconds: float = 0.0) -> Any:
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds + _PATIENCE):
                raise RammerError(f"a process that serves has hung for {_PATIENCE} s")
        line = self._process.stdout.readline()
        if not line:
            raise RammerError(f"a process that serves ended with status {self._process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise RammerError(answer["error"])
        return answer


@contextmanager
def processes(servers: Sequence[Server]) -> Iterator[list[Process]]:
    """A process for each of them, with its models loaded; they end with the block."""
    with ExitStack() as stack:
        started = []
        for server in servers:
            started.append(Process(server))
            stack.callback(started[-1].stop)
        for process in started:
            process.loaded()
        yield started


def _inputs(name: str, model: onnx.ModelProto, folder: Path) -> list[str]:
    paths = [folder / f"{name}-in{number}.npz" for number in range(_INPUTS)]
    for number, path in enumerate(paths):
        if not path.exists():
            np.savez(path, **random_inputs(model, number))  # type: ignore[arg-type]
    return list(map(str, paths))


def _run(module: str, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=_environment() | environment, stderr=subprocess.PIPE)
    if done.returncode:
        raise RammerError(f"{module}: {done.stderr.decode(errors='replace').strip()}")


def _environment() -> dict[str, str]:
    path = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
