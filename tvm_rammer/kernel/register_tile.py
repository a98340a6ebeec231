"""The register tile of an outer-product kernel, computed from the vDevice."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.vdevice import VDevice

#: TVM keeps a buffer on the stack (and LLVM then in registers) only below this many bytes.
STACK_LIMIT = 1024
#: Cycles of latency times multiply-adds per cycle: so many independent accumulators hide it.
_LATENCY = 4.0


@dataclass(frozen=True)
class RegisterTile:
    """``rows`` x (``vectors`` x ``lanes``) accumulators."""

    rows: int
    vectors: int
    lanes: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.vectors} vectors of {self.lanes}"


def lanes_for(columns: int, vdevice: VDevice) -> int | None:
    """The widest of a full, half or quarter vector that divides ``columns`` (float32)."""
    full = vdevice.vector_bytes // 4
    widths = [n for n in (full, full // 2, full // 4) if n > 1 and columns % n == 0]
    return widths[0] if columns and widths else None


def register_tile(
    rows: int, columns: int, vdevice: VDevice, *, max_vectors: int = 4
) -> RegisterTile | None:
    """Choose the tile that needs the fewest modelled cycles for ``rows`` x ``columns`` outputs.

    One step of the reduction costs a tile of ``r`` rows and ``v`` vectors as many cycles as the
    largest of its ``r * v`` multiply-adds, its ``r + v`` loads and the latency that must be hidden;
    small tiles pay more loop overhead and a ragged last tile a little more. ``None`` when no vector
    width divides the columns.
    """
    lanes = lanes_for(columns, vdevice)
    if lanes is None:
        return None
    blocks = columns // lanes
    best: tuple[float, RegisterTile] | None = None
    for vectors in range(1, max_vectors + 1):
        if blocks % vectors:
            continue
        for height in range(1, min(rows, 15) + 1):
            tile = RegisterTile(height, vectors, lanes)
            if not _fits(tile, vdevice):
                continue
            cycles = _cycles(tile, rows, vdevice) * (blocks // vectors)
            if best is None or cycles < best[0] * (1 - 1e-9):
                best = cycles, tile
    return best[1] if best else None


def _fits(tile: RegisterTile, vdevice: VDevice) -> bool:
    accumulators = tile.rows * tile.vectors
    registers = accumulators + tile.vectors + 2
    return registers <= vdevice.vector_registers and accumulators * tile.lanes * 4 < STACK_LIMIT


def _cycles(tile: RegisterTile, rows: int, vdevice: VDevice) -> float:
    width = tile.lanes * 4 / vdevice.vector_bytes if vdevice.vector_bytes >= 64 else 1.0
    per_load = 1.0 if tile.lanes * 4 >= 64 else 0.5

    def step(height: int) -> float:
        multiply_adds = height * tile.vectors * width
        return max(multiply_adds, (height + tile.vectors) * per_load, _LATENCY)

    full, ragged = divmod(rows, tile.rows)
    cycles = full * step(tile.rows) + (step(ragged) if ragged else 0.0)
    return cycles * (1.0 + 0.02 * bool(ragged) + 0.3 / (tile.rows * tile.vectors))
