"""Check that an rProgram is well-formed: indices, modes, places of buffers, every tile once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import get_args

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.happens_before import Place, task_label
from tvm_rammer.rprogram.program import ALIGNMENT, Buffer, Mode, RProgram, Space, dtype_bytes


@dataclass(frozen=True)
class Span:
    """The bytes of a buffer. Every input and every output is a space of its own."""

    space: str
    start: int
    stop: int

    def overlaps(self, other: Span) -> bool:
        return self.space == other.space and (
            max(self.start, other.start) < min(self.stop, other.stop)
        )

    def intersection(self, other: Span) -> Span:
        return Span(self.space, max(self.start, other.start), min(self.stop, other.stop))

    def __str__(self) -> str:
        return f"{self.space} bytes [{self.start}, {self.stop})"


def check_structure(program: RProgram) -> list[Span]:
    """Check everything but waits and the order of accesses.

    Returns
    -------
    list of Span
        The bytes of every buffer.

    Raises
    ------
    PlanError
        Naming the first thing that is wrong.
    """
    spans = [_span(program, buffer) for buffer in program.buffers]
    outputs = sorted(buffer.index for buffer in program.buffers if buffer.space == "output")
    if outputs != list(range(len(outputs))):
        raise PlanError(f"outputs are numbered {outputs}; number them from 0, each once")
    for kernel in program.kernels:
        if kernel.num_tiles < 0 or not (isfinite(kernel.tile_time) and kernel.tile_time >= 0):
            raise PlanError(
                f"kernel {kernel.name!r} has {kernel.num_tiles} tiles of {kernel.tile_time} s; "
                "give it finite numbers from 0"
            )
        for mode in kernel.modes:
            if mode not in get_args(Mode):
                raise PlanError(f"kernel {kernel.name!r} has the mode {mode!r}; use read or write")
    _check_operators(program, spans)
    _check_tasks(program)
    return spans


def _span(program: RProgram, buffer: Buffer) -> Span:
    where = f"buffer {buffer.name!r}"
    if buffer.space not in get_args(Space):
        raise PlanError(f"{where} is in the space {buffer.space!r}; use one of {get_args(Space)}")
    if any(extent < 0 for extent in buffer.shape):
        raise PlanError(f"{where} has the shape {buffer.shape}; give it extents from 0")
    if not _is_dtype(buffer.dtype):
        raise PlanError(f"{where} has the unknown dtype {buffer.dtype!r}; use a TVM dtype")
    stop = buffer.offset + buffer.nbytes
    if buffer.space in ("input", "output"):
        if buffer.offset or buffer.index < 0:
            raise PlanError(
                f"{where} is {buffer.space} {buffer.index} at offset {buffer.offset}; "
                "give it an index from 0 and the offset 0"
            )
        return Span(f"{buffer.space} {buffer.index}", 0, stop)
    if buffer.offset % ALIGNMENT:
        raise PlanError(f"{where} is at offset {buffer.offset}; give it a multiple of {ALIGNMENT}")
    size = program.arena_bytes if buffer.space == "arena" else program.constant_bytes
    span = Span(buffer.space, buffer.offset, stop)
    if buffer.offset < 0 or stop > size:
        raise PlanError(
            f"{where} is at {span}, outside of the {size} bytes there are; "
            f"correct its offset or {buffer.space}_bytes"
        )
    return span


def _is_dtype(dtype: str) -> bool:
    # numpy knows more than names: repeat counts, records, byte orders.
    try:
        return dtype.isidentifier() and dtype_bytes(dtype) > 0
    except TypeError:
        return False


def _check_operators(program: RProgram, spans: list[Span]) -> None:
    producers: dict[int, int] = {}
    for index, op in enumerate(program.operators):
        where = f"operator {op.name!r}"
        if not 0 <= op.kernel < len(program.kernels):
            raise PlanError(
                f"{where} has kernel {op.kernel}, but there are {len(program.kernels)}; "
                "correct the index"
            )
        modes = program.kernels[op.kernel].modes
        if len(op.arguments) != len(modes):
            raise PlanError(
                f"{where} has {len(op.arguments)} arguments, but its kernel "
                f"{program.kernels[op.kernel].name!r} has {len(modes)}; pass one for each"
            )
        for argument in op.arguments:
            if not 0 <= argument < len(program.buffers):
                raise PlanError(
                    f"{where} has buffer {argument}, but there are {len(program.buffers)}; "
                    "correct the index"
                )
        for position, mode in enumerate(modes):
            if mode == "write":
                _check_written(program, spans, op.arguments, position, where)
                number = op.arguments[position]
                first = producers.setdefault(number, index)
                if first != index:
                    raise PlanError(
                        f"operators {program.operators[first].name!r} and {op.name!r} both write "
                        f"buffer {program.buffers[number].name!r}; give each a buffer of its own"
                    )


def _check_written(
    program: RProgram, spans: list[Span], arguments: tuple[int, ...], position: int, where: str
) -> None:
    """A written buffer is writable, and shares no byte with another argument of the operator."""
    number = arguments[position]
    buffer = program.buffers[number]
    if buffer.space in ("input", "constant"):
        raise PlanError(
            f"{where} writes {buffer.space} {buffer.name!r}; write an arena or output buffer"
        )
    for other_position, other in enumerate(arguments):
        if other_position != position and (other == number or spans[other].overlaps(spans[number])):
            shared = spans[other].intersection(spans[number])
            raise PlanError(
                f"{where} writes buffer {buffer.name!r} over its own argument "
                f"{program.buffers[other].name!r} on {shared}; place them apart"
            )


def _check_tasks(program: RProgram) -> None:
    """Tile ranges are valid, and every tile of every operator runs exactly once."""
    if not program.veus:
        raise PlanError("the program has no vEU; give it at least one")
    runs: list[list[tuple[int, int, Place]]] = [[] for _ in program.operators]
    for veu, position, task in program.tasks():
        if not 0 <= task.operator < len(program.operators):
            raise PlanError(
                f"the rTask on vEU {veu} at position {position} is of operator {task.operator}, "
                f"but there are {len(program.operators)}; correct the index"
            )
        tiles = program.kernel_of(task.operator).num_tiles
        if not 0 <= task.start < task.stop <= tiles:
            raise PlanError(
                f"{task_label(program, veu, position)} is not a range of the {tiles} tiles "
                "of its operator; correct it"
            )
        runs[task.operator].append((task.start, task.stop, (veu, position)))
    for number, ranges in enumerate(runs):
        for problem in _tile_problems(program, number, sorted(ranges)):
            raise PlanError(f"{problem}; run every tile once")


def _tile_problems(
    program: RProgram, operator: int, ranges: list[tuple[int, int, Place]]
) -> Iterator[str]:
    """Gaps and overlaps of the tile ranges, which are sorted."""
    name, reached, last = program.operators[operator].name, 0, (0, 0)
    for start, stop, place in ranges:
        if start > reached:
            yield f"tiles [{reached}, {start}) of operator {name!r} do not run"
        if start < reached:
            first, second = task_label(program, *last), task_label(program, *place)
            yield f"tile {start} runs twice, in {first} and in {second}"
        reached, last = stop, place
    tiles = program.kernel_of(operator).num_tiles
    if reached < tiles:
        yield f"tiles [{reached}, {tiles}) of operator {name!r} do not run"
