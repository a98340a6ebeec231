"""Measures what the last-level cache keeps of data that are read in turn, and what memory delivers.

The weights of a network are read in the same order in every run. A cache that others share, and
that does not drop the oldest line first, has lost some of them long before they are as large as it
says it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.host.ceiling_text import read_loop, read_step
from tvm_rammer.backend.cpu.host.cpu_target import host_target, vdevice_of

#: Sizes that are read in turn, as parts of the last-level cache; the first one stays in it, and of
#: the last one nothing does.
_PARTS = (0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 3.0)
_MOST_BYTES = 192 << 20
_STREAMS = 4
#: All is read so many times, in pieces of so many bytes for each worker.
_PASSES = 12
_PIECE_BYTES = 1 << 20


def sweeps(workers: int) -> dict[str, Any]:
    """The fields of :class:`~.vdevice.MemoryCosts` that concern memory, but for transfers.

    Parameters
    ----------
    workers : int
        How many of the pool share the data.
    """
    vdevice = vdevice_of()
    lanes = vdevice.vector_bytes // 4
    step = read_step(lanes, _STREAMS) * _STREAMS
    read = _compile(lanes)
    cache = vdevice.l3_bytes
    sizes = sorted({min(int(part * cache), _MOST_BYTES) for part in _PARTS})
    # The sums go behind all that is read, two lines for each worker.
    memory = tvm.runtime.tensor(np.ones(sizes[-1] // 4 + 64 * (workers + 1), "int32"))

    def seconds_per_byte(count: int, nbytes: int) -> float:
        share = max(step, nbytes // count // step * step)
        piece = max(step, min(_PIECE_BYTES, share) // step * step)
        firsts = range(0, share - piece + 1, piece)
        reads = [partial(read, count, piece, share, first, memory) for first in firsts]
        return _seconds(reads) / (piece * count * len(reads))

    together = [seconds_per_byte(workers, size) for size in sizes]
    least, most = together[0], together[-1]
    missing = [
        (size, min(1.0, max(0.0, (each - least) / (most - least))))
        for size, each in zip(sizes, together, strict=True)
        # Otherwise memory was as fast as the cache: something else was measured.
        if most > least
    ]
    return {
        "core_bandwidth": 1 / seconds_per_byte(1, sizes[-1]),
        "bandwidth": 1 / most,
        "missing": missing,
    }


def _seconds(reads: Sequence[Callable[[], None]]) -> float:
    """Seconds of all reads, one after the other and over and over.

    Of each read a fast time counts: other programs disturb some, not the same ones every time. The
    fastest would be one that found in the cache by chance what it has lost most of the time.
    """
    samples: list[list[float]] = []
    for _ in range(_PASSES + 1):
        samples.append([])
        for read in reads:
            started = time.perf_counter()
            read()
            samples[-1].append(time.perf_counter() - started)
    return float(np.quantile(samples[1:], 0.25, axis=0).sum())


def _compile(lanes: int) -> Any:
    """``read(workers, bytes, share, first, memory)``: read some bytes of every worker's share."""
    workers = tirx.Var("workers", "int32")
    nbytes, share, first = (tirx.Var(name, "int64") for name in ("bytes", "share", "first"))
    memory = tirx.decl_buffer((tirx.Var("words", "int64"),), "int32", name="memory")
    worker = tirx.Var("worker", "int32")
    number = worker.astype("int64")
    start = tirx.floordiv(number * share + first, 4)
    result = memory.shape[0] - 64 * (number + 1)
    places = [tirx.address_of(memory[place]) for place in (start, result)]
    call = tirx.call_extern("void", f"ceiling_read_{_STREAMS}", 1, nbytes, *places)
    loop = tirx.For(worker, 0, workers, tirx.ForKind.PARALLEL, tirx.Evaluate(call))
    body = tirx.AttrStmt(0, "pragma_import_llvm", read_loop(lanes, _STREAMS), loop)
    attributes = {"global_symbol": "read", "tirx.is_scheduled": True, "s_tir": True}
    params = [workers, nbytes, share, first, memory]
    func = tirx.PrimFunc(params, body).with_attrs(attributes)
    return tvm.tirx.build(tvm.IRModule({"read": func}), host_target())["read"]
