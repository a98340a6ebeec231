"""Check that an rProgram is well-formed: indices, modes, places of buffers, every tile once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import isfinite
from typing import get_args

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.happens_before import Place, task_label
from tvm_rammer.rprogram.program import (
    ALIGNMENT,
    CELLS,
    TILE_RANGES,
    Buffer,
    Mode,
    RKernel,
    RProgram,
    Space,
    dtype_bytes,
)
from tvm_rammer.rprogram.rows import (
    Rows,
    columns_of,
    predecessors_of,
    root_of,
    row_strides,
    rows_of,
)

#: More than any machine has, and few enough to be added up in 64 bits.
_MOST_BYTES = 1 << 46
#: All parts together consist of no more rows, as each takes time and memory.
_MOST_ROWS = 1 << 25


def check_structure(program: RProgram) -> list[Rows]:
    """Check everything but waits and the order of accesses.

    Returns
    -------
    list of Rows
        The bytes of every buffer.

    Raises
    ------
    PlanError
        Naming the first thing that is wrong.
    """
    for name in ("arena_bytes", "constant_bytes"):
        if not 0 <= getattr(program, name) <= _MOST_BYTES:
            raise PlanError(f"{name} is {getattr(program, name)}, which no machine has; correct it")
    for buffer in program.buffers:
        _check_buffer(program, buffer)
    _check_parts(program)
    rows = [rows_of(program.buffers, number) for number in range(len(program.buffers))]
    outputs = sorted(buffer.index for buffer in program.buffers if buffer.space == "output")
    if outputs != list(range(len(outputs))):
        raise PlanError(f"outputs are numbered {outputs}; number them from 0, each once")
    for kernel in program.kernels:
        _check_kernel(kernel)
    _check_operators(program, rows)
    _check_order(program)
    check_tasks(program)
    return rows


def _check_kernel(kernel: RKernel) -> None:
    where = f"kernel {kernel.name!r}"
    if kernel.num_tiles < 0 or not (isfinite(kernel.tile_time) and kernel.tile_time >= 0):
        raise PlanError(
            f"{where} has {kernel.num_tiles} tiles of {kernel.tile_time} s; "
            "give it finite numbers from 0"
        )
    for mode in kernel.modes:
        if mode not in get_args(Mode):
            raise PlanError(f"{where} has the mode {mode!r}; use read or write")
    if kernel.in_place is not None and not _is_read_and_written(kernel, *kernel.in_place):
        raise PlanError(
            f"{where} may have the pointers {kernel.in_place} in one place; "
            "name one that is read, and one that is written"
        )
    if kernel.footprints and len(kernel.footprints) != len(kernel.modes):
        raise PlanError(
            f"{where} has {len(kernel.footprints)} footprints for {len(kernel.modes)} pointers; "
            "give one for each, or none at all"
        )
    for masks in kernel.footprints:
        if masks and (len(masks) > TILE_RANGES or min(masks) < 0 or max(masks) >> CELLS):
            raise PlanError(
                f"{where} has a footprint that is not up to {TILE_RANGES} masks of {CELLS} cells; "
                "correct it, or leave it empty"
            )


def _is_read_and_written(kernel: RKernel, source: int, result: int) -> bool:
    modes = dict(enumerate(kernel.modes))
    return (modes.get(source), modes.get(result)) == ("read", "write")


def _check_order(program: RProgram) -> None:
    """Operators come after those whose results they read: whoever looks at a plan relies on it."""
    for number, producers in enumerate(predecessors_of(program)):
        if producers and max(producers) >= number:
            late = program.operators[max(producers)].name
            raise PlanError(
                f"operator {program.operators[number].name!r} reads what {late!r} writes and "
                "stands before it; list operators in the order of their data"
            )


def _check_buffer(program: RProgram, buffer: Buffer) -> None:
    """The type of a buffer, and its place unless that is another buffer."""
    where = f"buffer {buffer.name!r}"
    if buffer.space not in get_args(Space):
        raise PlanError(f"{where} is in the space {buffer.space!r}; use one of {get_args(Space)}")
    if any(extent < 0 for extent in buffer.shape):
        raise PlanError(f"{where} has the shape {buffer.shape}; give it extents from 0")
    if not _is_dtype(buffer.dtype):
        raise PlanError(f"{where} has the unknown dtype {buffer.dtype!r}; use a TVM dtype")
    if buffer.nbytes > _MOST_BYTES:
        raise PlanError(
            f"{where} has {buffer.nbytes} bytes, which no machine has; correct its shape"
        )
    if buffer.space == "part":
        return
    if buffer.pitch:
        raise PlanError(f"{where} has the pitch {buffer.pitch} and is no part; give it the pitch 0")
    if buffer.space in ("input", "output"):
        if buffer.offset or buffer.index < 0:
            raise PlanError(
                f"{where} is {buffer.space} {buffer.index} at offset {buffer.offset}; "
                "give it an index from 0 and the offset 0"
            )
        return
    if buffer.offset % ALIGNMENT:
        raise PlanError(f"{where} is at offset {buffer.offset}; give it a multiple of {ALIGNMENT}")
    size = program.arena_bytes if buffer.space == "arena" else program.constant_bytes
    if buffer.offset < 0 or buffer.offset + buffer.nbytes > size:
        rows = Rows(buffer.space, buffer.offset, buffer.nbytes)
        raise PlanError(
            f"{where} is at {rows}, outside of the {size} bytes there are; "
            f"correct its offset or {buffer.space}_bytes"
        )


def _check_parts(program: RProgram) -> None:
    """Every part lies in a buffer that is none, and all parts of one have the same pitch."""
    pitches: dict[int, int] = {}
    count = 0
    for buffer in program.buffers:
        if buffer.space != "part":
            continue
        where = f"buffer {buffer.name!r}"
        if not 0 <= buffer.index < len(program.buffers):
            raise PlanError(
                f"{where} is a part of buffer {buffer.index}, but there are "
                f"{len(program.buffers)}; correct the index"
            )
        whole = program.buffers[buffer.index]
        if whole.space == "part":
            raise PlanError(
                f"{where} is a part of {whole.name!r}, which is a part itself; "
                "let it be a part of the buffer that both lie in"
            )
        if pitches.setdefault(buffer.index, buffer.pitch) != buffer.pitch:
            raise PlanError(
                f"{where} has the pitch {buffer.pitch}, another part of {whole.name!r} has "
                f"{pitches[buffer.index]}; give all of its parts the same"
            )
        _check_columns(buffer, whole, where)
        count += whole.nbytes // buffer.pitch
        if count > _MOST_ROWS:
            raise PlanError(
                f"the parts up to {where} have {count} rows, a plan may have "
                f"{_MOST_ROWS}; correct their pitches"
            )


def _check_columns(part: Buffer, whole: Buffer, where: str) -> None:
    """A part is some columns of its whole, each row of them whole items."""
    item = dtype_bytes(part.dtype)
    if part.pitch <= 0 or part.pitch % item or not whole.nbytes or whole.nbytes % part.pitch:
        raise PlanError(
            f"{where} has the pitch {part.pitch}, which does not divide the {whole.nbytes} bytes "
            f"of {whole.name!r} into rows of {part.dtype}; correct it"
        )
    count = whole.nbytes // part.pitch
    length = part.nbytes // count
    if part.nbytes % count or row_strides(part.shape, length // item, part.pitch // item) is None:
        raise PlanError(
            f"{where} of shape {part.shape} does not fall into the {count} rows of "
            f"{whole.name!r}; correct its shape or its pitch"
        )
    stop = part.offset + length
    if part.offset < 0 or part.offset % item or stop > part.pitch:
        raise PlanError(
            f"{where} is at bytes [{part.offset}, {stop}) of rows of {part.pitch} bytes; "
            f"let it be whole items inside of them"
        )


def _is_dtype(dtype: str) -> bool:
    # numpy knows more than names: repeat counts, records, byte orders.
    try:
        return dtype.isidentifier() and dtype_bytes(dtype) > 0
    except TypeError:
        return False


def _check_operators(program: RProgram, rows: list[Rows]) -> None:
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
                _check_written(program, rows, op.arguments, position, where)
                number = op.arguments[position]
                first = producers.setdefault(number, index)
                if first != index:
                    raise PlanError(
                        f"operators {program.operators[first].name!r} and {op.name!r} both write "
                        f"buffer {program.buffers[number].name!r}; give each a buffer of its own"
                    )
    _check_disjoint(program, producers)


def _check_written(
    program: RProgram, rows: list[Rows], arguments: tuple[int, ...], position: int, where: str
) -> None:
    """A written buffer is writable, and shares no byte with another argument of the operator."""
    number = arguments[position]
    buffer = program.buffers[number]
    space = program.buffers[root_of(program.buffers, number)].space
    if space in ("input", "constant"):
        raise PlanError(f"{where} writes {space} {buffer.name!r}; write an arena or output buffer")
    for other_position, other in enumerate(arguments):
        if other_position != position and (other == number or rows[other].overlaps(rows[number])):
            raise PlanError(
                f"{where} writes buffer {buffer.name!r} over its own argument "
                f"{program.buffers[other].name!r} on {rows[other].between(rows[number])}; "
                "place them apart"
            )


def _check_disjoint(program: RProgram, producers: dict[int, int]) -> None:
    """What operators write of one buffer, all of it or parts, has no byte twice."""
    written: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number in producers:
        if program.buffers[number].nbytes:
            columns = columns_of(program.buffers, number)
            written[root_of(program.buffers, number)].append((*columns, number))
    for root, parts in written.items():
        for (_, stop, number), (start, _, other) in pairwise(sorted(parts)):
            if start < stop:
                whole = program.buffers[root].name
                first, second = (program.buffers[n].name for n in (number, other))
                raise PlanError(
                    f"buffers {first!r} and {second!r} are both written and share bytes of every "
                    f"row of {whole!r}; place them side by side"
                )


def check_tasks(program: RProgram) -> None:
    """Check that tile ranges are valid, and that every tile of every operator runs once."""
    if not program.veus:
        raise PlanError("the program has no vEU; give it at least one")
    runs: list[list[tuple[int, int, Place]]] = [[] for _ in program.operators]
    most_waves = program.num_tasks + len(program.operators)
    for veu, position, task in program.tasks():
        if not 0 <= task.operator < len(program.operators):
            raise PlanError(
                f"the rTask on vEU {veu} at position {position} is of operator {task.operator}, "
                f"but there are {len(program.operators)}; correct the index"
            )
        tiles = program.kernel_of(task.operator).num_tiles
        if not 0 <= task.start < task.stop <= tiles and not task.gathers:
            raise PlanError(
                f"{task_label(program, veu, position)} is not a range of the {tiles} tiles "
                "of its operator; correct it"
            )
        if not 0 <= task.wave < most_waves:
            raise PlanError(
                f"{task_label(program, veu, position)} is in wave {task.wave}; "
                f"number them from 0 to below {most_waves}"
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
