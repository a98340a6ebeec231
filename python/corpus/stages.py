"""What is done to a model in a process of its own: export, compile, run the compiled library.

Each function is called by :mod:`tvm_rammer.testing.timing_worker` and returns what it expects: a
callable that runs once, one that gives the outputs, one that gives facts as plain data.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm_rammer
from corpus.entries import Constant

#: This module, for a worker.
STAGES = "corpus.stages"

Staged = tuple[Callable[[], object], Callable[[], list[np.ndarray]], Callable[[], dict[str, Any]]]


def search_path(tree: Path | None = None) -> dict[str, str]:
    """What finds this module, and the package of a checkout, in a worker of any interpreter."""
    package = tree or Path(tvm_rammer.__file__).parents[1]
    return {"PYTHONPATH": os.pathsep.join(map(str, (package, Path(__file__).parents[1])))}


def export(name: str, folder: str, cpu_s: int, memory_mb: int) -> Staged:
    """Write an architecture's files into a folder; see :func:`.export.write_files`."""
    _limit(cpu_s, memory_mb)
    from corpus.architectures import ARCHITECTURES
    from corpus.export import write_files

    architecture = next(item for item in ARCHITECTURES if item.name == name)
    facts = write_files(architecture, Path(folder))
    return _nothing, list, lambda: facts


def compile_library(
    model: str,
    library: str,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Constant],
    threads: int,
    cpu_s: int,
    memory_mb: int,
) -> Staged:
    """Compile a model as a user does, and export the library."""
    _limit(cpu_s, memory_mb)
    from tvm_rammer import build, progress

    options: dict[str, Any] = {"constants": dict(constants)} if constants else {}
    start, cpu = time.perf_counter(), time.process_time()
    # Where it was when a limit ended the process is the last line that it wrote.
    with progress.watching(lambda text: print(text, file=sys.stderr, flush=True)):
        built = build(
            model,
            num_veus=threads,
            shapes={name: tuple(shape) for name, shape in shapes.items()} or None,
            **options,
        )
    facts = {
        "build_s": time.perf_counter() - start,
        "build_cpu_s": time.process_time() - cpu,
        "regions": len(built.report.regions),
        "operators": sum(region.operators for region in built.report.regions),
        "left_out": len(built.report.left_out),
    }
    built.export_library(library)
    return _nothing, list, lambda: facts


def load_library(library: str, inputs: str) -> Staged:
    """Load an exported library and give it its inputs."""
    from tvm_rammer import load

    module = load(library).create()
    with np.load(inputs) as saved:
        for name in saved.files:
            module.set_input(name, saved[name])
    count = range(module.get_num_outputs())
    return module.run, lambda: [module.get_output(i).numpy() for i in count], dict


def _limit(cpu_s: int, memory_mb: int) -> None:
    """End this process when it has computed for so long, and refuse it more memory than that."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, memory_mb << 20))


def _nothing() -> None:
    pass
