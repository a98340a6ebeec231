#!/usr/bin/env python3
"""Write a model's merged kernels as HIP, for GPUs of AMD such as gfx90a.

    python python/generate_hip.py model.onnx -o kernels.hip.cpp
    hipcc --offload-arch=gfx90a -c kernels.hip.cpp

The same kernels as for NVIDIA's, bodies, dispatcher and table walk, in HIP's words. Nothing here
launches them: TVM's wheel makes code for AMD from its own kernels alone, and has no runtime for it.
"""

from __future__ import annotations

from pathlib import Path

import click
import onnx
from bench.cuda_estimate import kernel_sources
from bench.hip_text import hip_text

from tvm_rammer.backend import resolve_target
from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model

#: Kernels for it are written; what a block may have of a GPU of AMD is more.
_TARGET = {"kind": "cuda", "arch": "sm_80"}


@click.command()
@click.argument("model")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, writable=True, path_type=Path)
)
@click.option("--quick", is_flag=True, help="A model of the zoo at the reduced size of the tests.")
def main(model: str, output: Path, quick: bool) -> None:
    """Write the kernels of MODEL, an ONNX file or the name of a model of the zoo."""
    try:
        if Path(model).suffix == ".onnx":
            if not Path(model).exists():
                raise click.BadParameter(f"there is no file {model}", param_hint="MODEL")
            proto = onnx.load(model)
        else:
            info = get_model(model)
            proto = info.tiny() if quick else info.build()
        (source,) = kernel_sources(proto, resolve_target(_TARGET))
        output.write_text(hip_text(source))
    except RammerError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{output}: compile it with hipcc --offload-arch=gfx90a -c {output.name}")


if __name__ == "__main__":
    main()
