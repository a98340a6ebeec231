"""Compiles shards of rTask bodies, each once, while the caller still schedules other bodies.

TVM and LLVM run without Python's lock, so that threads of this process compile beside the one that
schedules. A shard depends on its bodies and its number alone: regions with other signatures, and
other plans, share it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.codegen.guard import runs_here
from tvm_rammer.backend.cpu.codegen.llvm_text import support_functions
from tvm_rammer.backend.cpu.codegen.lowering import module_builder
from tvm_rammer.backend.cpu.codegen.shards import (
    SHARD_BODIES,
    Shard,
    dispatcher_address,
    lower_shard,
    shards_of,
)
from tvm_rammer.kernel.code_size import code_size
from tvm_rammer.machine.target import architecture


@dataclass
class ShardCompiler:
    """The compiled shards of a mapping of bodies that only grows.

    Parameters
    ----------
    target : Target
        Of kind ``llvm``.
    """

    target: tvm.target.Target
    _shards: dict[tuple[str, ...], Future[Shard]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor | None = None

    def start(self, bodies: Mapping[str, tirx.PrimFunc], complete: bool = False) -> None:
        """Start to compile the shards that no further body will join.

        Those are the full ones, and all if the bodies are ``complete``.
        """
        if complete:
            self._submit(bodies, shards_of(list(bodies)))
        elif len(bodies) // SHARD_BODIES > len(self._shards):
            self._submit(bodies, [n for n in shards_of(list(bodies)) if len(n) == SHARD_BODIES])

    def shards(self, bodies: Mapping[str, tirx.PrimFunc]) -> list[Shard]:
        """All shards in order, when they are compiled; a library keeps no idle threads."""
        try:
            return [shard.result() for shard in self._submit(bodies, shards_of(list(bodies)))]
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
                self._threads = None

    def seconds(self, bodies: Mapping[str, tirx.PrimFunc]) -> dict[str, float]:
        """What each compiled body took of a core: its shard's time by its part of the code."""
        found: dict[str, float] = {}
        for names, shard in self._shards.items():
            if shard.done() and not shard.exception():
                nodes = {name: code_size(bodies[name].body).nodes for name in names}
                found |= {
                    n: shard.result().seconds * k / sum(nodes.values()) for n, k in nodes.items()
                }
        return found

    def _submit(
        self, bodies: Mapping[str, tirx.PrimFunc], parts: list[tuple[str, ...]]
    ) -> list[Future[Shard]]:
        build = module_builder(self.target)
        support = support_functions(architecture(self.target))
        loads_here = runs_here(self.target)

        def compiled(number: int, own: dict[str, tirx.PrimFunc]) -> Shard:
            started = time.thread_time()
            module = build(lower_shard(number, own, list(own), support))
            address = dispatcher_address(number, module) if loads_here else 0
            return Shard(module, address, time.thread_time() - started)

        for number, names in enumerate(parts):
            if names not in self._shards:
                own = {name: bodies[name] for name in names}
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
                self._shards[names] = self._threads.submit(compiled, number, own)
        return [self._shards[names] for names in parts]
