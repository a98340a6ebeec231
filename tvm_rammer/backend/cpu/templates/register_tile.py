"""The register tile of an outer-product kernel, computed from the vDevice."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.machine import VDevice

#: TVM keeps a buffer on the stack (and LLVM then in registers) only below this many bytes.
STACK_LIMIT = 1024
_MOST_VECTORS = 4
#: Accumulators that chains make at most, and the fewest steps of each.
_MOST_CHAINED, _SHORTEST_CHAIN = 8, 16
#: Without and with data of its own for each column.
_MOST_ROWS = (15, 7)
#: Processors with so few vector registers (SSE, AVX) cannot multiply by an element of memory in all
#: lanes. LLVM takes two steps of a single vector at once, and then spills sums of more rows.
_FEW_REGISTERS, _MOST_ROWS_OF_FEW = 16, 10


@dataclass(frozen=True)
class RegisterTile:
    """``rows`` x (``vectors`` x ``lanes``) results, each with an accumulator for every chain.

    Steps of the reduction add to the ``chains`` in turn: to several where a tile has too few
    results to hide the latency of an addition.
    """

    rows: int
    vectors: int
    lanes: int
    chains: int = 1

    def __str__(self) -> str:
        words = f"{self.rows} x {self.vectors} vectors of {self.lanes}"
        return f"{words} in {self.chains} chains" if self.chains > 1 else words


def lanes_for(columns: int, vdevice: VDevice) -> int | None:
    """The widest of a full, half or quarter vector that divides ``columns`` (float32)."""
    full = vdevice.vector_bytes // 4
    widths = [n for n in (full, full // 2, full // 4) if n > 1 and columns % n == 0]
    return widths[0] if columns and widths else None


def overlapping_lanes(columns: int, vdevice: VDevice) -> int | None:
    """The width of the fewest vectors that cover ``columns``, the last one overlapping (float32).

    Narrow vectors of the widest processors take half of the time. At least four lanes.
    """
    full = vdevice.vector_bytes // 4
    widths = [n for n in (full, full // 2, full // 4) if 4 <= n <= columns]

    def cycles(lanes: int) -> float:
        return -(-columns // lanes) * operation_cycles(4 * lanes, vdevice)

    return min(widths, key=cycles, default=None)


def operation_cycles(nbytes: int, vdevice: VDevice) -> float:
    """Cycles of a multiply-add or a load of vectors of so many bytes."""
    core = vdevice.speeds.cycles
    wide = nbytes >= core.wide_vector_bytes
    return core.wide_operation if wide else core.narrow_operation


def register_tile(
    rows: int, columns: int, vdevice: VDevice, itemsize: int = 4, taps: int = 0
) -> RegisterTile | None:
    """The tile without chains that needs the fewest modelled cycles for ``rows`` x ``columns``.

    Several streams of weights come sooner from far caches than chains of sums over one of them.
    ``None`` when there is nothing to compute. Parameters as for :func:`tiles_in_registers`.
    """

    def cycles(tile: RegisterTile) -> float:
        tiles = -(-columns // (tile.vectors * tile.lanes))
        return cycles_of_step(tile, rows, vdevice, itemsize, taps, rows == 1) * tiles

    tiles = tiles_in_registers(rows, columns, vdevice, itemsize, taps)
    return min(tiles, key=cycles, default=None)


def tiles_in_registers(
    rows: int, columns: int, vdevice: VDevice, itemsize: int = 4, taps: int = 0, steps: int = 1
) -> list[RegisterTile]:
    """All tiles for ``rows`` x ``columns`` outputs whose sums stay in registers.

    A tile needs several vectors where one does not divide the columns, as its last ones overlap
    then.

    Parameters
    ----------
    rows, columns : int
        The outputs; the columns are those of one group.
    vdevice : VDevice
    itemsize : int
        Bytes of a sum.
    taps : int
        Where each column has data of its own: how many neighbours of a row are summed up.
    steps : int
        Of the innermost loop of the reduction, where its sums may be chains.
    """
    return [
        tile
        for lanes in _widths(columns, vdevice, itemsize)
        for vectors in range(1, _MOST_VECTORS + 1)
        if (vectors - 1) * lanes < columns and (vectors > 1 or columns % lanes == 0)
        for height in range(1, min(rows, _MOST_ROWS[bool(taps)]) + 1)
        for chains in _chains(height * vectors, steps)
        if _fits(tile := RegisterTile(height, vectors, lanes, chains), vdevice, itemsize, taps)
    ]


def _chains(results: int, steps: int) -> list[int]:
    """How many chains each of so many results may have."""
    most = min(_MOST_CHAINED // results, steps // _SHORTEST_CHAIN)
    return [1, *(chains for chains in (2, 4) if chains <= most)]


def _widths(columns: int, vdevice: VDevice, itemsize: int) -> list[int]:
    """Lanes of a full vector and of its halves that the columns fill, the widest first."""
    lanes = max(1, vdevice.vector_bytes // itemsize)
    while lanes > max(1, columns):
        lanes //= 2
    return [width for k in range(3) if (width := lanes >> k)] if columns else []


def _fits(tile: RegisterTile, vdevice: VDevice, itemsize: int, taps: int) -> bool:
    sums = tile.rows * tile.vectors * tile.chains
    per_vector = max(1, tile.lanes * itemsize // vdevice.vector_bytes)
    registers = (sums + (sums if taps else tile.vectors)) * per_vector + 2
    spilt = spills(tile, vdevice, _MOST_ROWS_OF_FEW) and not taps
    fits = registers <= vdevice.vector_registers and not spilt
    return fits and sums * tile.lanes * itemsize < STACK_LIMIT


def spills(tile: RegisterTile, vdevice: VDevice, most_rows: int) -> bool:
    """Whether a tile of a single vector has more than ``most_rows`` where registers are few."""
    few = vdevice.vector_registers <= _FEW_REGISTERS
    return few and tile.vectors == 1 and tile.rows > most_rows


def cycles_of_step(
    tile: RegisterTile,
    rows: int,
    vdevice: VDevice,
    itemsize: int = 4,
    taps: int = 0,
    once: bool = False,
) -> float:
    """Modelled cycles of one step of the reduction, for ``rows`` rows of one tile's columns.

    A step costs a tile of ``r`` rows and ``v`` vectors as many cycles as the largest of its
    ``r * v`` multiply-adds, its ``r + v`` loads and the latency that must be hidden, and a little
    for the weights, which come from farther away; small tiles pay more loop overhead and a ragged
    last tile a little more. Where each weight is used ``once``, by the only row that there is, a
    step takes what the weights take from the last-level cache, which hides all but the bare
    latency. Parameters as for :func:`tiles_in_registers`.
    """
    core = vdevice.speeds.cycles
    wide = tile.lanes * itemsize >= core.wide_vector_bytes
    narrow = core.narrow_tap if taps else core.narrow_product
    each = core.wide_operation if wide else narrow

    def step(height: int) -> float:
        # With taps, a step loads what the next ones use again.
        loads = tile.vectors * (height + 2 * taps - 1) / taps if taps else height + tile.vectors
        load = core.wide_load if wide and not taps else core.load
        sums, latency = height * tile.vectors * each, core.multiply_add_latency
        if once and not taps:
            streamed = tile.vectors * tile.lanes * itemsize / vdevice.speeds.cache_bytes
            return max(sums, loads * each * load, latency / tile.chains, streamed)
        # Weights come from the second-level cache or from beyond it, data mostly from the first.
        far = 0.0 if taps else core.far_weights * tile.vectors * each
        slack = core.latency_slack
        return max(sums, loads * each * load, (latency + slack) / tile.chains) + far

    full, ragged = divmod(rows, tile.rows)
    cycles = full * step(tile.rows) + (step(ragged) if ragged else 0.0)
    # Unrolled taps are code enough for a loop: more vectors of them only take longer to compile.
    unrolled = tile.rows if taps else tile.rows * tile.vectors * tile.chains
    return cycles * (1.0 + core.ragged_tile * bool(ragged) + core.loop_overhead / unrolled)
