"""A program that times all schedules of a model's operators on a GPU.

The generated part names operators and schedules, each body in a kernel of its own; what times them
is `gpu_schedules.cu`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import tirx

from tvm_rammer.backend.cuda.arch_target import LIMITS, vdevice_of
from tvm_rammer.backend.cuda.codegen.region_kernels import build_regions
from tvm_rammer.backend.cuda.cubin import find_tool
from tvm_rammer.backend.cuda.schedules import every_schedule
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.errors import DeviceError
from tvm_rammer.tensors import extent
from tvm_rammer.tuning.meta_schedule_records import operators_to_tune

_MAIN = Path(__file__).with_suffix(".cu")
#: Blocks of a launch beyond which nobody takes a schedule, and which take long to time.
_MOST_TILES = 8192
#: Seconds of the launch in which every block has tiles all the time.
_LONG = 2e-4
_DEFINITIONS = re.compile(r'(?m)^(?=(?:extern "C" )?__(?:device|global)__ )')


@dataclass(frozen=True)
class TimedSchedule:
    """A schedule of one stage, and what the model says that it takes.

    Attributes
    ----------
    key : str
        Names its body.
    rule : str
    shapes : tuple of tuple of int
        Of the operator's tensors, the result last.
    rows : tuple of (int, int, int)
        Of the operator's tensors: elements of a row, from a row to the next, and in all. What is
        written into a part of a wider tensor has rows that lie apart.
    arguments : tuple of int
        Those of the body, as places among the tensors.
    tiles : int
    tile, alone : float
        Seconds of a tile where all blocks are busy, and of all tiles.
    """

    key: str
    rule: str
    shapes: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, int, int], ...]
    arguments: tuple[int, ...]
    tiles: int
    tile: float
    alone: float


def schedules_of(
    model: Any, target: Any
) -> tuple[list[list[TimedSchedule]], dict[str, tirx.PrimFunc]]:
    """Schedules of each operator of a model, and their bodies by key; of float32 alone."""
    vdevice = vdevice_of(target)
    operators: list[list[TimedSchedule]] = []
    bodies: dict[str, tirx.PrimFunc] = {}
    for number, func in enumerate(operators_to_tune(model, target).values()):
        if any(str(p.ty.dtype) != "float32" for p in func.params):
            continue
        shapes = tuple(tuple(map(int, p.ty.shape)) for p in func.params)
        rows = tuple(_rows(p) for p in func.params)
        found: list[TimedSchedule] = []
        for rule, made in every_schedule(func, vdevice, LIMITS):
            stage, *more = made.split.stages
            if more or stage.num_tiles > _MOST_TILES:
                continue
            key = f"body{number}_{len(found)}"
            bodies[key] = stage.body
            times = (stage.tile_seconds, made.alone(vdevice.num_veus))
            arguments = tuple(map(int, stage.arguments))
            found.append(TimedSchedule(key, rule, shapes, rows, arguments, stage.num_tiles, *times))
        if found:
            operators.append(found)
    return operators, bodies


def _rows(buffer: tirx.Buffer) -> tuple[int, int, int]:
    """Elements of a row of a tensor, from a row to the next, and from the first to the last."""
    shape, strides = tuple(map(int, buffer.shape)), tuple(map(int, buffer.strides))
    whole, row = extent(shape, strides), 1
    if strides:
        for n, step in zip(reversed(shape), reversed(strides), strict=True):
            if n > 1 and step != row:
                return row, step, whole
            row *= n
    return whole, whole, whole


def program_text(
    operators: Sequence[Sequence[TimedSchedule]], bodies: dict[str, tirx.PrimFunc], target: Any
) -> str:
    """CUDA C++ of the program."""
    spec = TensorSpec((1,), "float32")
    built = build_regions(bodies, [RegionSignature("unused", (spec,), (spec,))], target, LIMITS)
    (text,) = (each.inspect_source() for each in built.imports if each.kind == "cuda")
    parts = [
        part
        for part in _DEFINITIONS.split(text)
        if "rammer_dispatch(" not in part and "__global__" not in part.partition("{")[0]
    ]
    kernels = [_kernel(each) for some in operators for each in some]
    lists = [_list(some) for some in operators]
    whole = "std::vector<Operator> Operators() {\n  return {\n" + ",\n".join(lists) + "};\n}\n"
    return "".join([*parts, _MAIN.read_text(), *kernels, whole])


def _kernel(schedule: TimedSchedule) -> str:
    """A launch that computes all tiles once, or some of them in every block."""
    pointers = ", ".join(f"(float*)tensors[{place}]" for place in schedule.arguments)
    call = f"{schedule.key}(tile, tile + 1, {pointers});"
    return f"""
__global__ void __launch_bounds__(kThreads, 2)
    run_{schedule.key}(void* const* tensors, int tiles, int repeats) {{
  if (repeats == 1) {{
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {call}
    return;
  }}
  for (int k = 0; k < repeats; ++k) {{
    const int tile = (blockIdx.x * repeats + k) % tiles;
    {call}
  }}
}}
"""


def _list(schedules: Sequence[TimedSchedule]) -> str:
    counts = ", ".join(str(whole) for *_, whole in schedules[0].rows)
    row, pitch, _ = schedules[0].rows[-1]
    rows = ", ".join(
        f'{{"{each.key}", run_{each.key}, {each.tiles}, {_repeats(each)}}}' for each in schedules
    )
    return f"    {{{{{counts}}}, {row}, {pitch}, {{{rows}}}}}"


def _repeats(schedule: TimedSchedule) -> int:
    return int(min(200, max(4, _LONG / schedule.tile)))


def compile_program(text: str, arch: str, path: Path) -> None:
    """Write the program for an architecture.

    Raises
    ------
    DeviceError
        When nvcc is not there, or refuses it.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        raise DeviceError("nvcc is not there, which compiles schedules to time")
    source = path.with_suffix(".cu")
    source.write_text(text)
    options = ["-w", "-O3", "-std=c++17", f"-arch={arch}", "-o", str(path)]
    done = subprocess.run([str(nvcc), *options, str(source)], capture_output=True, text=True)
    source.unlink()
    if done.returncode:
        raise DeviceError(f"nvcc refuses the schedules: {done.stderr.strip().splitlines()[0]}")


def choices(
    times: Mapping[str, Any], operators: Sequence[Sequence[TimedSchedule]]
) -> Iterator[float]:
    """What the model takes for the fastest of each operator, over the time of the fastest."""
    for some in operators:
        taken = min(some, key=lambda each: each.alone)
        yield times[taken.key]["alone"] / min(times[each.key]["alone"] for each in some)
