"""What one core reaches at best: multiply-adds per second, and bytes per second of every cache.

A kernel's time means little by itself. Next to the least time that the machine allows it says how
much there is to gain. Measured once (in under a second), kept on disk between processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import metadata
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from tvm_rammer.backend.cpu.host.ceiling_text import (
    multiply_add_loop,
    multiply_adds,
    read_loop,
    read_step,
)
from tvm_rammer.backend.cpu.host.one_core import on_every_core, on_one_core
from tvm_rammer.backend.cpu.host.processor import host_cpu
from tvm_rammer.machine.cache import CacheFile
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.machine.vdevice import VDevice

#: Raised when the measuring changes, so that older results are not used.
FORMAT_VERSION = 1

#: Seconds of a timed call (short, so that some are not disturbed), and of all calls of one kind:
#: to find the best, and to find out what this moment allows.
_CALL_SECONDS = 2e-4
_TOTAL_SECONDS, _MOMENT_SECONDS = 0.03, 3e-3
#: One stream, and several: prefetchers draw more from memory where they see more than one.
_STREAMS = (1, 4)
#: What is read to measure a cache must leave room for others in it; a last-level cache is shared.
_MOST_L3_BYTES = 8 << 20
_MOST_DRAM_BYTES = 128 << 20
_PAGE_BYTES = 2 << 20


def ceilings(target: Any, vdevice: VDevice, *, refresh: bool = False) -> Ceilings | None:
    """The ceilings of one core for code of a target, from the cache or measured and kept.

    Parameters
    ----------
    target : tvm.target.Target
        States the vectors that may be used.
    vdevice : VDevice
        The device behind the target.
    refresh : bool
        Measure again even if the cache knows; the better of both is kept.

    Returns
    -------
    Ceilings or None
        None where the target is not this machine: nothing can be measured.
    """
    if not vdevice.host:
        return None
    known: Ceilings | None = _CEILINGS.load().get(_key(vdevice))
    if known is not None and not refresh:
        return known
    measured = measure(target, vdevice)
    best = measured if known is None else measured.best(known)
    _CEILINGS.add({_key(vdevice): asdict(best)})
    return best


def measure(target: Any, vdevice: VDevice) -> Ceilings:
    """Measure the ceilings, in a thread that stays on one core."""
    loops, most = _compile(target, vdevice), max(_sizes(vdevice).values())
    return on_one_core(lambda: _measured(vdevice, *loops, _memory(most), _best_per_second))


class CeilingsTogether:
    """What all cores that we may use reach at the same time, added up, asked again and again.

    They share memory and the heat of a chip: what one reaches while another rests is no measure of
    both. So what counts of each core is not its best call, but the median.
    """

    def __init__(self, target: Any, vdevice: VDevice) -> None:
        self._vdevice = vdevice
        self._loops = _compile(target, vdevice)
        most = max(_sizes(vdevice).values())
        self._memories = on_every_core(lambda: _memory(most))

    def measure(self) -> Ceilings:
        """Measure now (some hundredths of a second)."""
        left = list(self._memories)
        found = on_every_core(
            lambda: _measured(self._vdevice, *self._loops, left.pop(), _usual_per_second)
        )
        totals = zip(*(asdict(one).values() for one in found), strict=True)
        return Ceilings(*map(sum, totals))


def _sizes(vdevice: VDevice) -> dict[str, int]:
    """How many bytes are read to measure each memory."""
    return {
        "l1": vdevice.l1_bytes // 2,
        "l2": max(vdevice.l2_bytes // 2, 2 * vdevice.l1_bytes),
        "l3": max(min(vdevice.l3_bytes // 4, _MOST_L3_BYTES), 2 * vdevice.l2_bytes),
        "dram": max(min(2 * vdevice.l3_bytes, _MOST_DRAM_BYTES), 4 * vdevice.l2_bytes),
    }


def _measured(
    vdevice: VDevice,
    compute: Any,
    reads: dict[int, Any],
    memory: Any,
    per_second: Callable[[Callable[[int], None]], float],
) -> Ceilings:
    lanes, sizes = vdevice.vector_bytes // 4, _sizes(vdevice)
    out = _memory(vdevice.vector_bytes)
    round_flops = 2 * lanes * multiply_adds(chains(vdevice))
    flops = round_flops * per_second(lambda rounds: compute(rounds, out))
    step = max(streams * read_step(lanes, streams) for streams in _STREAMS)
    speeds = {level: 0.0 for level in sizes}
    for level, read in product(sizes, reads.values()):
        nbytes = sizes[level] - sizes[level] % step
        passes = per_second(partial(_read, read, nbytes, memory, out))
        speeds[level] = max(speeds[level], nbytes * passes)
    return Ceilings(flops, **speeds)


def _read(read: Any, nbytes: int, memory: Any, out: Any, passes: int) -> None:
    read(passes, nbytes, memory, out)


def _best_per_second(run: Callable[[int], None]) -> float:
    """Repetitions per second of ``run(repetitions)`` while nothing disturbs."""
    count = repetitions(run, _CALL_SECONDS)
    return count / min(_calls(run, count, _TOTAL_SECONDS))


def _usual_per_second(run: Callable[[int], None]) -> float:
    """Repetitions per second of ``run(repetitions)`` as they are at this moment."""
    count = repetitions(run, _CALL_SECONDS)
    return count / median(_calls(run, count, _MOMENT_SECONDS))


def _calls(run: Callable[[int], None], count: int, seconds: float) -> list[float]:
    """The seconds of calls that take so long together, of one at least."""
    end = time.perf_counter() + seconds
    found = [seconds_of(run, count)]
    while time.perf_counter() < end:
        found.append(seconds_of(run, count))
    return found


def repetitions(run: Callable[[int], None], seconds: float) -> int:
    """How many repetitions take ``run(repetitions)`` about so many seconds."""
    count = 1
    while (taken := min(seconds_of(run, count) for _ in range(3))) < seconds / 4:
        count *= 4
    return max(1, round(count * seconds / taken))


def seconds_of(run: Callable[[int], None], count: int) -> float:
    """Seconds of one call of ``run(count)``."""
    started = time.perf_counter()
    run(count)
    return time.perf_counter() - started


def _memory(nbytes: int) -> Any:
    """Memory that starts on a large page: across two, some caches take their lines for the same."""
    import tvm_ffi

    held = np.ones(nbytes + _PAGE_BYTES, np.uint8)
    start = -held.ctypes.data % _PAGE_BYTES
    return tvm_ffi.from_dlpack(held[start : start + nbytes].view(np.int32))


def chains(vdevice: VDevice) -> int:
    """Independent multiply-adds: all registers but those of the two factors and a few to spare."""
    return max(8, min(vdevice.vector_registers - 4, 24))


def _compile(target: Any, vdevice: VDevice) -> tuple[Any, dict[int, Any]]:
    module = compile_loops(target, vdevice)
    return module["compute"], {streams: module[f"read{streams}"] for streams in _STREAMS}


def compile_loops(target: Any, vdevice: VDevice) -> Any:
    """The module of the loops: ``compute(rounds, out)`` and ``read<N>(passes, bytes, ...)``."""
    import tvm
    from tvm import tirx

    lanes = vdevice.vector_bytes // 4
    fused = bool({"fma", "avx512f", "neon"} & set(vdevice.features))
    texts = [multiply_add_loop(lanes, chains(vdevice), fused)]
    texts += [read_loop(lanes, streams) for streams in _STREAMS]
    out = tirx.decl_buffer((lanes,), "int32", name="out")
    memory = tirx.decl_buffer((tirx.Var("words", "int64"),), "int32", name="memory")
    count, nbytes = tirx.Var("count", "int32"), tirx.Var("bytes", "int64")
    calls = {"compute": ("ceiling_multiply_add", [count, out], [count, out.data])}
    for streams in _STREAMS:
        arguments = [count, nbytes, memory.data, out.data]
        calls[f"read{streams}"] = (
            f"ceiling_read_{streams}",
            [count, nbytes, memory, out],
            arguments,
        )
    functions = {}
    for name, (symbol, params, arguments) in calls.items():
        call = tirx.Evaluate(tirx.call_extern("void", symbol, *arguments))
        body = tirx.AttrStmt(0, "pragma_import_llvm", "\n".join(texts), call)
        attributes = {"global_symbol": name, "tirx.is_scheduled": True, "s_tir": True}
        functions[name] = tirx.PrimFunc(params, body).with_attrs(attributes)
    return tvm.tirx.build(tvm.IRModule(functions), target)


def _check(found: Ceilings) -> None:
    if not all(1e6 < value < 1e18 for value in asdict(found).values()):
        raise ValueError(f"are no ceilings of a core: {found}")


_CEILINGS = CacheFile("ceilings.json", Ceilings, _check)


def _key(vdevice: VDevice) -> str:
    """All that a measurement depends on."""
    return json.dumps(
        {
            "cpu": host_cpu().model,
            "vector_bytes": vdevice.vector_bytes,
            "features": list(vdevice.features),
            "caches": [vdevice.l1_bytes, vdevice.l2_bytes, vdevice.l3_bytes],
            "tvm": metadata.version("apache-tvm"),
            "format": FORMAT_VERSION,
        }
    )
