"""Threads run models, a file that is loaded again and again changes, and children fork meanwhile.

Several versions of a model take turns under one path: replaced, as an export does it, or written
over, as ``cp`` does it, so that a loader meets half a file. Every output must be bit-equal to that
of a version; a file that is half written must be refused.

TVM's virtual machine runs in the forking thread and in the children alone: it takes locks of the
process for its memory, and what another thread holds at a fork stays locked in the child.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_rammer.errors import LibraryError
from tvm_rammer.runtime.build import build
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.loading import load
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs

#: Seconds after which a child that hangs is killed.
_LIMIT = 60
_VERSIONS = 4

#: From inputs to the bytes of the output.
Run = Callable[..., bytes]


@dataclass
class StressFindings:
    """What happened, and how much memory there was.

    Attributes
    ----------
    counts : Counter
        Of runs, loads, refused loads, changed files and children.
    wrong : list of str
        What must not happen.
    resident : list of int
        Bytes of memory, ten times in the course of the stress.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Versions:
    """Files of several models of one interface, and what each computes."""

    files: tuple[Path, ...]
    inputs: tuple[np.ndarray, ...]
    outputs: tuple[bytes, ...]

    def of(self, run: Run) -> int:
        """Run, and tell which version it was; -1 if none."""
        found = run(*self.inputs)
        return self.outputs.index(found) if found in self.outputs else -1


def stress(folder: Path, seconds: float, threads: int = 16, seed: int = 0) -> StressFindings:
    """Run, reload and fork for so long, each at least once.

    Parameters
    ----------
    folder : Path
        For the files.
    seconds : float
    threads : int
        That run models.
    seed : int
    """
    versions = _build(folder)
    path = folder / "current.so"
    shutil.copy(versions.files[0], path)
    findings, end = StressFindings(), time.monotonic() + seconds
    jobs: list[Callable[[random.Random], None]] = [
        *[lambda rng: _run(path, versions, findings, end, rng)] * threads,
        lambda rng: _change(path, versions, findings, end, rng),
        lambda rng: _fork(path, versions, findings, end),
    ]

    def guarded(job: Callable[[random.Random], None], rng: random.Random) -> None:
        try:
            job(rng)
        except Exception as error:
            findings.wrong.append(f"{type(error).__name__}: {error}")

    workers = [
        threading.Thread(target=guarded, args=(job, random.Random(seed + number)))
        for number, job in enumerate(jobs)
    ]
    for worker in workers:
        worker.start()
    for part in range(1, 11):
        time.sleep(max(0.0, end - seconds * (1 - part / 10) - time.monotonic()))
        findings.resident.append(_resident())
    for worker in workers:
        worker.join()
    return findings


def _build(folder: Path) -> _Versions:
    inputs: dict[str, Any] = {}
    files, outputs = [], []
    for number in range(_VERSIONS):
        model = models.lstm(2, 2, 32, seed=number)
        inputs = inputs or random_inputs(model)
        files.append(build(model, policy="wavefront").export_library(folder / f"{number}.so"))
        outputs.append(_instance(load(files[-1]))(*inputs.values()))
    return _Versions(tuple(files), tuple(inputs.values()), tuple(outputs))


def _instance(library: Library) -> Run:
    """An instance that the library makes."""
    module = library.create()
    return lambda *inputs: bytes(module(*inputs)[0].numpy())


def _machine(library: Library) -> Run:
    """The library under TVM's virtual machine."""
    machine = relax.VirtualMachine(library.executable, tvm.cpu())
    return lambda *inputs: bytes(machine["main"](*map(tvm.runtime.tensor, inputs)).numpy())


def _load(path: Path, counts: Counter[str]) -> Library:
    """Load what is there, as soon as it is whole."""
    while True:
        try:
            library = load(path)
        except LibraryError:
            counts["refused loads"] += 1
            time.sleep(0.001)
        else:
            counts["loads"] += 1
            return library


def _run(
    path: Path, versions: _Versions, findings: StressFindings, end: float, rng: random.Random
) -> None:
    counts: Counter[str] = Counter()
    while not counts or time.monotonic() < end:
        run = _instance(_load(path, counts))
        runs = rng.randrange(1, 50)
        seen = {versions.of(run) for _ in range(runs)}
        counts["runs"] += runs
        if len(seen) != 1 or -1 in seen:
            findings.wrong.append(f"a library computed as versions {sorted(seen)}")
    findings.counts.update(counts)


def _change(
    path: Path, versions: _Versions, findings: StressFindings, end: float, rng: random.Random
) -> None:
    while not findings.counts["changed files"] or time.monotonic() < end:
        new = rng.choice(versions.files)
        if rng.random() < 0.5:
            other = path.with_suffix(".new")
            shutil.copy(new, other)
            os.replace(other, path)
        else:
            content = new.read_bytes()
            half = rng.randrange(len(content))
            with path.open("wb") as file:
                file.write(content[:half])
                file.flush()
                time.sleep(0.001)
                file.write(content[half:])
        findings.counts["changed files"] += 1
        time.sleep(0.02)


def _fork(path: Path, versions: _Versions, findings: StressFindings, end: float) -> None:
    """Children run what was loaded before, with its workers lost, and what they load themselves."""
    library = load(versions.files[0])
    loaded = _instance(library), _machine(library)
    while not findings.counts["children"] or time.monotonic() < end:
        assert [versions.of(run) for run in loaded] == [0, 0]
        child = os.fork()
        if child == 0:
            os._exit(_in_child(path, versions, loaded))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        findings.counts["children"] += 1
        if status:
            findings.wrong.append(f"a child ended with {status}")
        time.sleep(0.2)


def _in_child(path: Path, versions: _Versions, loaded: Sequence[Run]) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LIMIT)
    try:
        results = [versions.of(run) for run in loaded]
        thread = threading.Thread(target=lambda: results.extend(map(versions.of, loaded)))
        thread.start()
        thread.join()
        anew = _load(path, Counter())
        own = {versions.of(make(anew)) for make in (_instance, _machine)}
    except BaseException:
        return 2
    return 0 if results == [0] * 4 and len(own) == 1 and -1 not in own else 1


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
