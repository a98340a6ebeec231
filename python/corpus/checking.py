"""Checks one model in one form: compile it, run it, compare it with the reference.

check
    files of a trained model: fetch
    files of an architecture: export (a process of its own)
    the reference: ONNX Runtime (a process of its own), or what eager PyTorch gave
    compile_library, load_library (a process of their own each), compare
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench.contenders import contender
from bench.fresh_cache import fresh_cache

from corpus import export as exported
from corpus.difference import Difference, compare
from corpus.entries import (
    Architecture,
    Constant,
    Entry,
    Form,
    TrainedModel,
    draw_inputs,
)
from corpus.fetch import fetch
from corpus.stages import STAGES, search_path
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.fair_timing import TimedContender
from tvm_rammer.testing.timing_process import ContenderError, ContenderProcess, MissingError

#: A process that waits for others may take so many times its CPU time, and so many seconds more.
_PATIENCE, _LEAST_PATIENCE = 6, 120


@dataclass(frozen=True)
class Limits:
    """What a process may use: seconds of CPU time, and MiB of memory."""

    cpu_s: int = 240
    memory_mb: int = 12288


@dataclass(frozen=True)
class Case:
    """A model in one form; ``cache`` is the folder of what was downloaded and exported."""

    entry: Entry
    form: Form
    cache: Path
    limits: Limits
    threads: int


@dataclass(frozen=True)
class Files:
    """What a model is checked with.

    Attributes
    ----------
    model, inputs : path
        As the compiler is given it, and an ``.npz`` file of its inputs.
    onnx, onnx_inputs : path or None
        As others are given it; there all inputs are inputs.
    shapes, constants : mapping
        Options of :func:`tvm_rammer.build`: what a user knows about the inputs.
    eager : path or None
        What PyTorch computes, if that is the reference.
    """

    model: Path
    inputs: Path
    onnx: Path | None
    onnx_inputs: Path | None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    eager: Path | None = None


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes
    ----------
    stage : str
        Where it ended: ``fetch``, ``export``, ``reference``, ``build``, ``run``, ``compare``, or
        ``done``.
    cause : str
        Why it did not get further; empty if it did.
    difference : Difference or None
    build : mapping of str to number
        Seconds, CPU seconds and MiB of compiling; operators planned and left out.
    """

    stage: str
    cause: str = ""
    difference: Difference | None = None
    build: Mapping[str, Any] = field(default_factory=dict)


class _StageError(Exception):
    """A stage failed."""

    def __init__(self, stage: str, cause: str) -> None:
        super().__init__(f"{stage}: {cause}")
        self.stage, self.cause = stage, cause


def check(case: Case, then: Callable[[Files, Path], None] | None = None) -> Checked:
    """Check a model in one form.

    Parameters
    ----------
    case : Case
    then : callable, optional
        Called with the files and the compiled library if the outputs agree.
    """
    build: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="check-models-") as name:
        folder = Path(name)
        try:
            files = _files(case, folder)
            want = _reference(case, files, folder)
            library = folder / "library.so"
            build |= _compiled(case, files, library)
            got = _outputs(loaded(library, files.inputs, case.threads), "run", case, folder)
            difference, reason = compare(got, want)
            if reason:
                return Checked("compare", reason, difference, build)
            if then:
                then(files, library)
        except _StageError as error:
            return Checked(error.stage, error.cause, build=build)
    return Checked("done", "", difference, build)


def loaded(library: Path, inputs: Path, threads: int) -> TimedContender:
    """A compiled library as a contender."""
    arguments = {"library": str(library), "inputs": str(inputs)}
    return TimedContender(
        "auto",
        f"{STAGES}:load_library",
        arguments,
        {"TVM_NUM_THREADS": str(threads), **search_path()},
    )


def _files(case: Case, folder: Path) -> Files:
    if isinstance(case.entry, TrainedModel):
        return _trained(case.entry, case.cache, folder)
    return _exported(case.entry, case, folder)


def _trained(model: TrainedModel, cache: Path, folder: Path) -> Files:
    try:
        path = fetch(model, cache)
    except RammerError as error:
        raise _StageError("fetch", str(error)) from error
    drawn = draw_inputs(model)
    inputs = {name: value for name, value in drawn.items() if name not in model.constants}
    some, every = folder / "inputs.npz", folder / "all_inputs.npz"
    np.savez(some, **inputs)  # type: ignore[arg-type]
    np.savez(every, **drawn)  # type: ignore[arg-type]
    shapes = {name: value.shape for name, value in inputs.items()}
    return Files(path, some, path, every, shapes, model.constants)


def _exported(architecture: Architecture, case: Case, folder: Path) -> Files:
    try:
        key = exported.definition(architecture)
    except ModuleNotFoundError as error:
        raise _StageError("export", f"{error.name or error} is not installed") from error
    home = case.cache / "exported" / f"{architecture.name}-{key}"
    failed = exported.failures(home)
    if failed is None:
        failed = _export(architecture, case, folder, home)
    if case.form in failed:
        raise _StageError("export", failed[case.form])
    onnx, onnx_inputs = home / exported.ONNX, home / exported.ONNX_INPUTS
    if case.form == "onnx":
        return Files(onnx, onnx_inputs, onnx, onnx_inputs)
    timed = "onnx" not in failed
    return Files(
        home / exported.PROGRAM,
        home / exported.PROGRAM_INPUTS,
        onnx if timed else None,
        onnx_inputs if timed else None,
        eager=home / exported.EAGER,
    )


def _export(architecture: Architecture, case: Case, folder: Path, home: Path) -> dict[str, str]:
    written = folder / "exported"
    written.mkdir()
    arguments = {"name": architecture.name, "folder": str(written), **_limits(case)}
    reply = _ask(
        TimedContender("export", f"{STAGES}:export", arguments, search_path()),
        "export",
        case,
        folder,
    )
    exported.note_failures(written, reply["facts"])
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(written, home)
    return dict(reply["facts"])


def _reference(case: Case, files: Files, folder: Path) -> list[np.ndarray]:
    if files.eager:
        return _arrays(files.eager)
    assert files.onnx and files.onnx_inputs
    reference = contender("onnxruntime", files.onnx, files.onnx_inputs, case.threads)
    return _outputs(reference, "reference", case, folder)


def _compiled(case: Case, files: Files, library: Path) -> dict[str, float]:
    arguments = {
        "model": str(files.model),
        "library": str(library),
        "shapes": {name: list(shape) for name, shape in files.shapes.items()},
        "constants": dict(files.constants),
        "threads": case.threads,
        **_limits(case),
    }
    with fresh_cache() as cache:
        environment = {
            "TVM_NUM_THREADS": str(case.threads),
            "TVM_RAMMER_CACHE_DIR": str(cache),
            **search_path(),
        }
        compiler = TimedContender("auto", f"{STAGES}:compile_library", arguments, environment)
        reply = _ask(compiler, "build", case, library.parent)
    return {**reply["facts"], "build_peak_mb": reply["set_up_peak_mb"]}


def _outputs(contender: TimedContender, stage: str, case: Case, folder: Path) -> list[np.ndarray]:
    _ask(contender, stage, case, folder)
    return _arrays(folder / f"{stage}.npz")


def _ask(contender: TimedContender, stage: str, case: Case, folder: Path) -> dict[str, Any]:
    """Have a process do a stage; its outputs are in ``<stage>.npz``."""
    process = None
    try:
        process = ContenderProcess(
            contender.python,
            contender.environment,
            folder / f"{stage}.log",
            _PATIENCE * case.limits.cpu_s + _LEAST_PATIENCE,
        )
        return process.ask(
            {
                "do": "set_up",
                "function": contender.function,
                "arguments": dict(contender.arguments),
                "outputs": str(folder / f"{stage}.npz"),
            }
        )
    except MissingError as error:
        raise _StageError(stage, str(error)) from error
    except ContenderError as error:
        raise _StageError(stage, _why(str(error), case, folder)) from error
    finally:
        if process:
            process.end()


def _why(text: str, case: Case, folder: Path) -> str:
    """What ended a process, in a user's words and without this machine's folders."""
    for place in (case.cache / "trained", case.cache / "exported", folder):
        text = text.replace(f"{place}{os.sep}", "")
    if "(SIGXCPU)" in text or "(SIGKILL)" in text:
        last = text.partition(": ")[2]
        where = f" (it was {last})" if last else ""
        return f"no end within {case.limits.cpu_s} s of CPU time{where}"
    return text


def _limits(case: Case) -> dict[str, int]:
    return {"cpu_s": case.limits.cpu_s, "memory_mb": case.limits.memory_mb}


def _arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as saved:
        return [saved[name] for name in saved.files]
