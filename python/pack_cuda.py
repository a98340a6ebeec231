#!/usr/bin/env python3
"""Pack a model for a machine that has a GPU of NVIDIA and no compiler.

    python python/pack_cuda.py model.onnx --arch sm_90 -o packed
    python python/pack_cuda.py lstm_8x8x256 --arch sm_80 --python 3.12 -o packed

The folder holds a library for each form (the kernels launched one by one, a launch for each
wavefront, one cooperative launch), inputs, what ONNX Runtime computes of them, TVM's runtime
without its compiler, and `run.py`, which needs numpy: `python packed/run.py` says there which GPU
it found, checks what the libraries compute, and times them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import tvm
import tvm_ffi
from bench import run_packed
from bench.packed_runtime import copy_runtime, cudart_name, this_python

import tvm_rammer
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cuda.codegen import machine_code
from tvm_rammer.backend.cuda.cubin import check_nvcc
from tvm_rammer.errors import RammerError
from tvm_rammer.options import Form
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing.models import get_model
from tvm_rammer.testing.reference import random_inputs

#: Largest relative error of an output.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class _PackedForm:
    form: Form
    policy: str


#: What the times of the others are compared with comes first.
_FORMS = {
    "one-by-one": _PackedForm("per-op", "sequential"),
    "wavefront": _PackedForm("wavefront", "wavefront"),
    "persistent": _PackedForm("program", "auto"),
}


@click.command()
@click.argument("model")
@click.option("--arch", required=True, help="Of the GPU, such as sm_90.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder that is not there yet.",
)
@click.option("--num-veus", type=click.IntRange(1), help="Resident blocks; all if not given.")
@click.option("--python", default=this_python(), show_default=True, help="Version of it there.")
@click.option("--no-runtime", is_flag=True, help="apache-tvm is installed there.")
@click.option("--quick", is_flag=True, help="A model of the zoo at the reduced size of the tests.")
def main(
    model: str,
    arch: str,
    output: Path,
    num_veus: int | None,
    python: str,
    no_runtime: bool,
    quick: bool,
) -> None:
    """Pack MODEL, an ONNX file or the name of a model of the zoo, for a GPU machine."""
    if output.exists():
        raise click.ClickException(f"{output} is there already: give another folder, or remove it")
    _require_compiler()
    try:
        target = {"kind": "cuda", "arch": arch}
        # A wrong architecture is known before the model is.
        device = vdevice_for(target, num_veus=num_veus)
        check_nvcc(arch)
        proto = _read(model, quick)
        output.mkdir(parents=True)
        forms = {
            name: _pack_form(proto, target, device.num_veus, each, output / f"{name}.so")
            for name, each in _FORMS.items()
        }
        inputs = random_inputs(proto)
        np.savez(output / "inputs.npz", *inputs.values())
        np.savez(output / "expected.npz", *run_onnxruntime(proto, inputs))
        if not no_runtime:
            copy_runtime(output / "runtime", python)
        resident = {"blocks_per_sm": device.threads // device.cores}
        facts = _facts(Path(model).stem, arch, python) | resident | {"forms": forms}
    except RammerError as error:
        shutil.rmtree(output, ignore_errors=True)
        raise click.ClickException(str(error)) from error
    (output / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    shutil.copy(run_packed.__file__, output / "run.py")
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    click.echo(f"{output}: {size / 1e6:.1f} MB; on the other machine: python {output.name}/run.py")


def _require_compiler() -> None:
    """Without nvcc, or a GPU for which TVM compiles at once, libraries hold CUDA C."""
    compiles = tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True)
    if machine_code.find_tool("nvcc") is None and compiles is None:
        raise click.ClickException(
            "nvcc is not there: the libraries would hold CUDA C, which a machine without a "
            "compiler cannot run; install CUDA's compiler, and put it on the PATH or name its "
            "folder in CUDA_HOME"
        )


def _read(model: str, quick: bool) -> onnx.ModelProto:
    if Path(model).suffix == ".onnx":
        if not Path(model).exists():
            raise click.BadParameter(f"there is no file {model}", param_hint="MODEL")
        return onnx.load(model)
    info = get_model(model)
    return info.tiny() if quick else info.build()


def _pack_form(
    model: onnx.ModelProto, target: Mapping[str, str], veus: int, given: _PackedForm, path: Path
) -> dict[str, Any]:
    """Write the library of a form; what the other machine has to know of it."""
    click.echo(f"compiling {path.stem}", err=True)
    library = tvm_rammer.build(
        model, dict(target), policy=given.policy, num_veus=veus, form=given.form
    )
    library.export_library(path)
    # Blocks of one cooperative launch are resident together, those of others need not be.
    together = library.description.num_veus if given.form == "program" else 0
    return {"file": path.name, "resident_blocks": together}


def _facts(model: str, arch: str, python: str) -> dict[str, Any]:
    cudart = cudart_name()
    return {
        "model": model,
        "arch": arch,
        "python": python,
        "tvm": tvm.__version__,
        "cudart": cudart,
        "cuda": int(cudart.rpartition(".")[2]),
        "tolerance": _TOLERANCE,
    }


if __name__ == "__main__":
    main()
