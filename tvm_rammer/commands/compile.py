"""``tvm-rammer compile``: from a model file to a library."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.files import require_writable
from tvm_rammer.commands.sources import build_library, build_options, require_model
from tvm_rammer.errors import LibraryError

if TYPE_CHECKING:
    from tvm_rammer.runtime.check import OutputError
    from tvm_rammer.runtime.library import Library

_EXAMPLES = """\b
Examples:
  tvm-rammer compile squeezenet.onnx -o squeezenet.so
  tvm-rammer compile model.onnx -o model.so --shape data=1,3,224,224
  tvm-rammer compile model.onnx -o model.so --shape ids=1,16 --shape ids=1,128
  tvm-rammer compile model.onnx -o model.so --check
  tvm-rammer compile model.onnx -o model.so --num-veus 4 --policy sequential
  tvm-rammer compile model.onnx -o model.so --target '{"kind": "llvm", "mcpu": "x86-64-v3"}'
"""


@click.command(
    "compile", cls=Command, short_help="Compile a model into a library.", epilog=_EXAMPLES
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The library: a .so."
)
@click.option(
    "--check",
    is_flag=True,
    help="Compare the library's outputs with ONNX Runtime's, or PyTorch's, before writing it.",
)
@build_options
def command(model: Path, output: Path, check: bool, **options: Any) -> Result:
    """Compile MODEL (.onnx, .json of tvm.ir.save_json, .pt2) into a library.

    TVM's runtime alone loads and runs the library; here that is 'tvm-rammer run' and
    tvm_rammer.load. Linking it takes a C++ compiler.
    """
    from rich.text import Text

    from tvm_rammer.commands.native_work import native_work
    from tvm_rammer.commands.render import description_facts, facts, left_out, report_facts
    from tvm_rammer.units import duration, size

    _check(output, options["backend"])
    if check:
        from tvm_rammer.runtime.check import require_reference

        require_model(model)
        require_reference(model)
    started = time.perf_counter()
    library = build_library(model, **options)
    compiled = time.perf_counter()
    errors = _checked(library, model, options) if check else ()
    checked = time.perf_counter()
    with native_work(f"writing {output.name}"):
        library.export_library(output)
    exported = time.perf_counter()
    description, report = library.description, library.report
    nbytes = output.stat().st_size
    headline = Text.assemble(
        (f"{output}", "bold green"),
        f"  {size(nbytes)}, compiled in {duration(compiled - started)}, "
        f"written in {duration(exported - checked)}",
    )
    remaining = left_out(report)
    return Result(
        {
            "model": str(model),
            "library": str(output),
            "bytes": nbytes,
            "compile_seconds": compiled - started,
            "export_seconds": exported - checked,
            "target": description.target,
            "options": dict(description.content["options"]),
            "num_veus": description.num_veus,
            "interfaces": description.content["interfaces"],
            "report": report.to_dict(),
            "check": [asdict(error) for error in errors] if check else None,
        },
        (
            headline,
            "",
            facts(
                [
                    *description_facts(description),
                    *report_facts(report),
                    *(
                        (
                            f"error {error.name}",
                            f"{error.error:.2g} of its largest value{error.place}",
                        )
                        for error in errors
                    ),
                ]
            ),
            *(() if remaining is None else ("", remaining)),
        ),
    )


def _checked(library: Library, model: Path, options: dict[str, Any]) -> tuple[OutputError, ...]:
    from tvm_rammer.commands.native_work import native_work
    from tvm_rammer.commands.sources import given_options
    from tvm_rammer.runtime.check import check_library

    with native_work(f"checking {model.name}"):
        given = given_options(options)
        return check_library(library, model, given.get("constants"), given.get("states"))


def _check(output: Path, backend: str | None) -> None:
    """Find out in milliseconds what would otherwise fail after the compiling."""
    if output.suffix != ".so":
        raise LibraryError(f"{output}: a library's name ends in .so")
    require_writable(output)
    if backend is not None:
        from tvm_rammer.backend import backend_named
        from tvm_rammer.runtime.library import require_exports

        require_exports(backend_named(backend), output)
    from tvm.support import cc

    if not cc.get_cc():
        raise LibraryError(
            f"{output}: no C++ compiler is found to link the library; install g++ "
            "(`tvm-rammer run` and `show` take the model and need none)"
        )
