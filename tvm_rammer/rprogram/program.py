"""The plan's data types: what runs where, in which order, on which bytes.

An :class:`RProgram` is plain data. It can be printed, saved, verified, interpreted, drawn, and made
anew for another number of vEUs without compiling anything again. The vocabulary is Rammer's (OSDI
2020, section 3): an operator is a set of independent, homogeneous rTasks (*rOperator*), one
implementation of it is an *rKernel*, and the program assigns the rTasks to virtual execution units
(*vEUs*) and orders them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from math import prod
from operator import or_
from typing import Literal

import numpy as np

from tvm_rammer.typed_json import Bits

Space = Literal["arena", "constant", "input", "output", "part"]
Mode = Literal["read", "write"]

#: Every buffer of the arena and of the constant pool starts on a multiple of this many bytes.
ALIGNMENT = 64

#: Of a footprint: the parts that a buffer is cut into, and the most ranges of a kernel's tiles.
CELLS = 256
TILE_RANGES = 64


@cache
def dtype_bytes(dtype: str) -> int:
    """Size of one element of a TVM dtype in bytes (``bool`` takes one byte)."""
    return 1 if dtype == "bool" else np.dtype(dtype).itemsize


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to a multiple of :data:`ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def cell_rows(rows: int) -> int:
    """How many rows the cells of a matrix of ``rows`` rows form; at least one."""
    return next((count for count in (64, 32, 16, 8, 4, 2) if count <= rows), 1)


@lru_cache(maxsize=4096)
def cells_by_row(cells: int, rows: int) -> tuple[int, ...]:
    """How many cells of each row a mask has, of :data:`CELLS` cells in ``rows`` rows."""
    across = CELLS // rows
    row = (1 << across) - 1
    return tuple((cells >> start & row).bit_count() for start in range(0, CELLS, across))


@dataclass(frozen=True)
class Buffer:
    """A tensor that rTasks read or write.

    Attributes
    ----------
    name : str
        For people.
    shape, dtype
        Its logical type; the bytes are row-major, and compact unless it is a part.
    space : {"arena", "constant", "input", "output", "part"}
        Where its bytes live: the arena (intermediate results of one run), the pool of constants, a
        tensor that the caller passes in, or another buffer, of which it is a part.
    index : int
        Which input or output; of a part, which buffer it lies in, its *whole*, itself no part (0
        for the arena and the constants).
    offset : int
        Bytes from the start of the arena, of the constant pool or of the whole (0 for inputs and
        outputs).
    pitch : int
        Of a part, bytes from one of its rows to the next: rows of so many bytes are what the whole
        consists of, and the part is the same columns of each (0 for all others).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    space: Space
    index: int = 0
    offset: int = 0
    pitch: int = 0

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * dtype_bytes(self.dtype)


@dataclass(frozen=True)
class RKernel:
    """One implementation of an rOperator, cut into independent tiles.

    Attributes
    ----------
    name : str
        Symbol of the compiled body, called as ``body(start, stop, *pointers)``; it computes the
        tiles ``start <= i < stop``.
    num_tiles : int
        Tiles of the whole operator; they are independent of each other.
    modes : tuple of {"read", "write"}
        What the body does to each of its pointers.
    tile_time : float
        Seconds that one tile takes alone on one vEU, measured or modelled.
    origin : str
        Which rule made it, e.g. ``"matmul"`` or ``"generic"``.
    tiling : str
        The tile, for people, e.g. ``"2x64 outputs, 4 vectors of 16"``.
    footprints : tuple of tuple of int
        For each pointer the cells of its buffer that each of some equal ranges of tiles touches, as
        a bit mask; empty if that is not known, and every tile may touch everything.
    note : str, optional
        What a user should know besides, such as why a tuner's record was not used.
    in_place : tuple of (int, int), optional
        A pointer that is read and one that is written: both may be the same memory, since every
        element is read by the tile that writes it, and before.
    """

    name: str
    num_tiles: int
    modes: tuple[Mode, ...]
    tile_time: float = 1e-6
    origin: str = ""
    tiling: str = ""
    footprints: tuple[tuple[Bits, ...], ...] = ()
    note: str | None = None
    in_place: tuple[int, int] | None = None

    def __hash__(self) -> int:
        """Of what tells kernels apart: footprints take long to go through."""
        return hash((self.name, self.num_tiles))

    def touched(self, pointer: int, start: int, stop: int) -> int:
        """The cells of a pointer's buffer that the tiles ``start <= i < stop`` touch.

        What is not known is everything that a read may need, and of a write a share like that of
        the tiles.
        """
        key = (pointer, start, stop)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._touched(pointer, start, stop)
        return found

    @cached_property
    def _known(self) -> dict[tuple[int, int, int], int]:
        """What was asked for: operators of one kernel, in plan after plan, have the same ranges."""
        return {}

    def _touched(self, pointer: int, start: int, stop: int) -> int:
        if start >= stop:
            return 0
        if self.footprints and self.footprints[pointer]:
            masks = self.footprints[pointer]
            first = start * len(masks) // self.num_tiles
            last = -(-stop * len(masks) // self.num_tiles)
            return reduce(or_, masks[first:last])
        if self.modes[pointer] == "read":
            return (1 << CELLS) - 1
        first = start * CELLS // self.num_tiles
        last = -(-stop * CELLS // self.num_tiles)
        return (1 << last) - (1 << first)


@dataclass(frozen=True)
class ROperator:
    """An operator of the network with the rKernel that was chosen for it.

    ``arguments[k]`` is the index (in ``RProgram.buffers``) of the buffer behind pointer ``k`` of
    the kernel; ``kernel`` indexes ``RProgram.kernels``.
    """

    name: str
    kernel: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Do not start before vEU ``veu`` has completed the first ``count`` rTasks of its list."""

    veu: int
    count: int


@dataclass(frozen=True)
class RTask:
    """What is scheduled: the tiles ``start <= i < stop`` of one operator, run by one vEU in one go.

    All ``waits`` are waited for before the first tile starts. ``wave`` is the wavefront that the
    policy put the task in. A task of no tiles, from 0 to 0, touches nothing: it *gathers* waits, so
    that others need to wait for it alone.
    """

    operator: int
    start: int
    stop: int
    waits: tuple[Wait, ...] = ()
    wave: int = 0

    @property
    def gathers(self) -> bool:
        """Whether it is there for its waits alone."""
        return self.start == self.stop == 0


@dataclass(frozen=True)
class RProgram:
    """A complete static schedule of one region of a network.

    Operators come after those whose results they read. ``veus[v]`` is the ordered list of rTasks of
    vEU ``v``. Task ``i`` of a vEU happens before task ``j > i`` of the same vEU, and the first
    ``count`` tasks of vEU ``u`` happen before a task that holds ``Wait(u, count)``; happens-before
    is the transitive closure of the two. ``launches`` are the kernel symbols of the compiled
    program in the order in which they are launched: one for all, or one per wavefront; none while
    it is only a plan.
    """

    name: str
    policy: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[RKernel, ...]
    operators: tuple[ROperator, ...]
    veus: tuple[tuple[RTask, ...], ...]
    arena_bytes: int = 0
    constant_bytes: int = 0
    launches: tuple[str, ...] = ()

    @property
    def num_veus(self) -> int:
        return len(self.veus)

    @property
    def num_tasks(self) -> int:
        return sum(map(len, self.veus))

    @property
    def num_waves(self) -> int:
        return 1 + max((task.wave for tasks in self.veus for task in tasks), default=-1)

    def kernel_of(self, operator: int) -> RKernel:
        """The rKernel of operator number ``operator``."""
        return self.kernels[self.operators[operator].kernel]

    def reads(self, operator: int) -> tuple[int, ...]:
        """Buffers that the operator reads, in the order of its pointers."""
        return self._arguments(operator, "read")

    def writes(self, operator: int) -> tuple[int, ...]:
        """Buffers that the operator writes, in the order of its pointers."""
        return self._arguments(operator, "write")

    def _arguments(self, operator: int, wanted: Mode) -> tuple[int, ...]:
        op = self.operators[operator]
        modes = self.kernels[op.kernel].modes
        return tuple(b for b, mode in zip(op.arguments, modes, strict=True) if mode == wanted)

    def tasks(self) -> Iterator[tuple[int, int, RTask]]:
        """Every rTask as ``(vEU, position on it, task)``."""
        for veu, tasks in enumerate(self.veus):
            for position, task in enumerate(tasks):
                yield veu, position, task
