#!/usr/bin/env python3
"""Run compiled models under valgrind: no byte is touched or used that is not theirs or not written.

    python python/check_memory.py
    python python/check_memory.py --models squeezenet,lstm_8x8x256 --policy ios

Models at the reduced sizes of the tests are compiled for a CPU that valgrind knows (AVX2) and run
in TVM's bare runtime, which keeps each tensor in a block of its own. What counts are errors within
the compiled code, and outputs that nothing wrote; the exit status is 1 then. Tensors that share the
arena of a model are beside each other without a gap: there the tests of single kernels look.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import click
import numpy as np
import tvm
from rich.console import Console

import tvm_rammer
from tvm_rammer.errors import RammerError
from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.testing.reference import random_inputs

#: The newest that valgrind 3.19 can execute.
_TARGET = {"kind": "llvm", "mcpu": "haswell"}
#: Small in the reduced form and of all kinds of operators.
_MODELS = "mlp,lstm_8x8x256,gru_8x8x256,recommender,squeezenet,inception_v1,shufflenet,bert_base"
_RUNS = 2
#: Runs models where nothing of this package is; outputs are written to where valgrind sees it.
_RUN = """
import ctypes, json, os, sys
import numpy as np
import tvm_ffi

runtime, runs, models = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
sink = os.open(os.devnull, os.O_WRONLY)

def tensors(value):
    return [value] if isinstance(value, tvm_ffi.Tensor) else [t for v in value for t in tensors(v)]

for library, inputs in models:
    machine = tvm_ffi.load_module(library)["vm_load_executable"]()
    cpu, pooled = (1, 0), 2
    machine["vm_initialization"](*cpu, pooled, *cpu, pooled)
    with np.load(inputs) as saved:
        given = [tvm_ffi.from_dlpack(saved[name]) for name in saved.files]
    machine["set_input"]("main", *given)
    for _ in range(runs):
        machine["invoke_stateful"]("main")
        for output in tensors(machine["get_output"]("main")):
            os.write(sink, np.from_dlpack(output))
"""


@dataclass(frozen=True)
class Fault:
    """What valgrind says, and where."""

    model: str
    what: str
    where: str


@click.command()
@click.option("--models", default=_MODELS, show_default=True, help="Names, or all.")
@click.option("--policy", default="wavefront", type=click.Choice(sorted(POLICIES)))
@click.option("--num-veus", default=2, show_default=True, type=click.IntRange(1, 64))
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(models: str, policy: str, num_veus: int, json_path: Path | None) -> None:
    """Look for accesses to foreign memory in compiled models."""
    console = Console()
    names = list(MODELS) if models == "all" else models.split(",")
    try:
        with tempfile.TemporaryDirectory() as folder, console.status("compiling") as status:
            files = []
            for name in names:
                status.update(f"compiling {name}")
                files.append(compiled(name, policy, num_veus, Path(folder)))
            status.update("running under valgrind")
            found = faults(files)
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    for fault in found:
        console.print(f"{fault.model}: {fault.what} ({fault.where})", style="red", markup=False)
    console.print(f"{len(names)} models, {len(found)} faults")
    if json_path is not None:
        document = {"models": names, "policy": policy, "faults": [asdict(each) for each in found]}
        json_path.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(1 if found else 0)


def compiled(name: str, policy: str, num_veus: int, folder: Path) -> tuple[str, str]:
    """The library of a model and its inputs, as files."""
    model = get_model(name).tiny()
    library = tvm_rammer.build(
        model, target=_TARGET, policy=policy, num_veus=num_veus, oversubscribe=True
    )
    inputs = folder / f"{name}.npz"
    np.savez(inputs, **random_inputs(model))  # type: ignore[arg-type]
    return str(library.export_library(folder / f"{name}.so")), str(inputs)


def faults(files: Sequence[tuple[str, str]], run: str = _RUN) -> list[Fault]:
    """What valgrind finds in libraries while they run.

    Raises
    ------
    RammerError
        If they cannot be run so.
    """
    if shutil.which("valgrind") is None:
        raise RammerError("valgrind is not installed; install it with the system's packages")
    runtime = Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tool = ["valgrind", "--xml=yes", f"--xml-file={report}", "--error-limit=no"]
        tool += ["--keep-debuginfo=yes"]  # a library that is unloaded is still named
        work = [str(runtime), str(_RUNS), json.dumps(files)]
        done = subprocess.run(
            [*tool, sys.executable, "-c", run, *work],
            env={**os.environ, "PYTHONMALLOC": "malloc"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise RammerError(f"the libraries do not run under valgrind: {last}")
        return _read(report, {library for library, _ in files})


def _read(report: Path, libraries: set[str]) -> list[Fault]:
    found = []
    for error in ElementTree.parse(report).iter("error"):
        if error.findtext("kind", "").startswith("Leak_"):
            continue  # with XML they are always reported, and the process keeps what it has
        frames = [(f.findtext("obj", ""), f.findtext("fn", "?")) for f in error.iter("frame")]
        what = error.findtext("what") or error.findtext("xwhat/text") or "?"
        ours = [(obj, function) for obj, function in frames if obj in libraries]
        if ours:
            library, function = ours[0]
            found.append(Fault(Path(library).stem, what, function))
        elif what.startswith("Syscall param write(buf) points to uninitialised"):
            found.append(Fault("an output", "bytes that nothing wrote", frames[0][1]))
    return found


if __name__ == "__main__":
    main()
