"""``tvm-rammer run``: run a model or a library on files or on random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer.commands.command import Command, Result
from tvm_rammer.commands.sources import build_options, open_library
from tvm_rammer.errors import InputError
from tvm_rammer.whole_files import refusals_told

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from tvm_rammer.commands.tensor_files import InputTensor
    from tvm_rammer.region.library_content import Interface, TensorInfo
    from tvm_rammer.runtime.graph_module import BenchmarkResult, GraphModule
    from tvm_rammer.runtime.library import Library

_EXAMPLES = """\b
Examples:
  tvm-rammer run squeezenet.onnx
  tvm-rammer run model.so --input x.npy --output results
  tvm-rammer run model.so --input data=x.npy --input mask=m.npy
  tvm-rammer run model.onnx --input all.npz --repeat 100 --json
"""


@click.command("run", cls=Command, short_help="Run a model or a library.", epilog=_EXAMPLES)
@click.argument("source", metavar="MODEL|LIBRARY", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A .npy file (or an .npz with the inputs' names); repeatable. Random if not given.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write each output there as .npy.",
)
@click.option("--repeat", default=10, show_default=True, metavar="N", help="Timed runs.")
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of the random inputs.")
@build_options
def command(
    source: Path,
    inputs: Sequence[str],
    output: Path | None,
    repeat: int,
    seed: int,
    **options: Any,
) -> Result:
    """Run a model, or a library that 'tvm-rammer compile' wrote.

    Prints what came out and how long a run takes. A model is compiled first, which the time does
    not count.
    """
    import numpy as np

    from tvm_rammer.commands.native_work import native_work
    from tvm_rammer.commands.tensor_files import random_input, read_inputs, save_outputs, statistics
    from tvm_rammer.units import counted

    if repeat < 1:
        raise InputError(f"--repeat is {repeat}; it must be at least 1")
    if seed < 0:
        raise InputError(f"--seed is {seed}; it must be at least 0")
    _make_folder(output)
    library = open_library(source, **options)
    given = {each.name: each for each in read_inputs(inputs, library.description.inputs)}
    interface = _fitting(library, given)
    rng = np.random.default_rng(seed)
    sizes = _sizes(interface, given) or {}
    infos = [info.with_sizes(sizes) for info in interface.inputs]
    values = [given.get(info.name) or random_input(info, rng) for info in infos]
    with native_work(f"running {source.name}"):
        module = library.create()
        _set_inputs(module, values)
        module.run()
        results = _outputs(module, interface.outputs)
        times = module.benchmark(repeat=repeat, number=1, warm_up=1)
    measured = {name: statistics(value) for name, value in results.items()}
    saved = save_outputs(output, results) if output else []
    return Result(
        {
            "source": str(source),
            "inputs": [_document(t.name, t.value) | {"source": t.source} for t in values],
            "outputs": [_document(n, v) | measured[n] for n, v in results.items()],
            "files": list(map(str, saved)),
            "median_ms": times.median * 1e3,
            "runs_ms": [seconds * 1e3 for seconds in times.results],
            "num_veus": module.num_veus,
            "num_workers": module.num_workers,
        },
        (
            _input_table(values),
            "",
            _output_table(results, measured),
            "",
            _timing(module, times),
            *([f"  {counted(len(saved), 'file')} written to {output}"] if saved else []),
        ),
    )


def _make_folder(folder: Path | None) -> None:
    if folder is not None:
        with refusals_told(f"{folder}: the folder cannot be made", "choose another"):
            folder.mkdir(parents=True, exist_ok=True)


def _fitting(library: Library, given: Mapping[str, InputTensor]) -> Interface:
    """The first interface with inputs of the shapes that are given; the first if there is none."""
    every = library.description.interfaces
    return next((each for each in every if _sizes(each, given) is not None), every[0])


def _sizes(interface: Interface, given: Mapping[str, InputTensor]) -> dict[str, int] | None:
    """What the sizes are that each run decides, by the inputs that are given and fit."""
    from tvm_rammer.region.library_content import sizes_of

    known = [info for info in interface.inputs if info.name in given]
    shapes = [given[info.name].value.shape for info in known]
    return sizes_of([info.shape for info in known], shapes)


def _set_inputs(module: GraphModule, tensors: Sequence[InputTensor]) -> None:
    for tensor in tensors:
        try:
            module.set_input(tensor.name, tensor.value)
        except InputError as error:
            raise InputError(f"{tensor.source}: {error}; convert the array") from error


def _outputs(module: GraphModule, infos: Sequence[TensorInfo]) -> dict[str, np.ndarray]:
    # A copy: the timed runs overwrite the outputs.
    return {
        info.name: module.get_output(number).numpy().copy() for number, info in enumerate(infos)
    }


def _document(name: str, value: np.ndarray) -> dict[str, Any]:
    return {"name": name, "shape": list(value.shape), "dtype": str(value.dtype)}


def _input_table(tensors: Sequence[InputTensor]) -> Table:
    from tvm_rammer.commands.render import columns
    from tvm_rammer.units import dimensions

    table = columns("input", "dtype", "shape", "from")
    for tensor in tensors:
        value = tensor.value
        table.add_row(tensor.name, str(value.dtype), dimensions(value.shape), tensor.source)
    return table


def _output_table(
    results: Mapping[str, np.ndarray], measured: Mapping[str, Mapping[str, Any]]
) -> Table:
    from tvm_rammer.commands.render import columns
    from tvm_rammer.units import dimensions

    broken = any(numbers["not_finite"] for numbers in measured.values())
    names = ("min", "mean", "max", "std", *(("not_finite",) if broken else ()))
    headings = ("output", "dtype", "shape", *(name.replace("_", " ") for name in names))
    table = columns(*headings, right=range(3, len(headings)))
    for output, value in results.items():
        numbers = measured[output]
        cells = ("-" if numbers[name] is None else f"{numbers[name]:.4g}" for name in names)
        table.add_row(output, str(value.dtype), dimensions(value.shape), *cells)
    return table


def _timing(module: GraphModule, times: BenchmarkResult) -> Any:
    from rich.text import Text

    from tvm_rammer.units import counted, duration

    text = Text.assemble("  ", (duration(times.median), "bold green"), " a run")
    text.append(f"  (median of {len(times.results)}, {duration(times.min)} to ", style="dim")
    text.append(f"{duration(times.max)}; {counted(module.num_veus, 'vEU')} on ", style="dim")
    return text.append(f"{counted(module.num_workers, 'worker')})", style="dim")
