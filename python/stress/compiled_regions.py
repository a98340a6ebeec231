"""Regions of small models, planned in any way, compiled once and run without Relax around them."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import tvm
import tvm_ffi

from tvm_rammer.backend.cpu.host import configure_pool
from tvm_rammer.backend.protocol import EncodedPlan
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.frontend import load_model
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.region.compiler import RegionCompiler, signature_of
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.rprogram import ALIGNMENT, OperatorGraph, RProgram, verify
from tvm_rammer.schedule import (
    AUTO,
    POLICIES,
    CostModel,
    Placed,
    Placement,
    auto,
    plan,
    plan_memory,
    synchronise,
)
from tvm_rammer.schedule.policies import finish
from tvm_rammer.testing.models.zoo import get_model
from tvm_rammer.transform.pipeline import partition_module

#: Longer than any of these runs takes on a busy machine.
TIMEOUT = 300.0


@dataclass
class Source:
    """A model that is one region, and the compiler that keeps what does not depend on the plan."""

    graph: RegionGraph
    compiler: RegionCompiler

    @classmethod
    def of_module(cls, mod: tvm.IRModule, target: Any = None) -> Source:
        (source,) = cls.all_of_module(mod, target)
        return source

    @classmethod
    def all_of_module(cls, mod: tvm.IRModule, target: Any = None) -> list[Source]:
        """One for each region of a model."""
        goal = Options().resolve(target)
        partitions = partition_module(mod, goal)
        compiler = partitions.compiler
        graphs = compiler.graphs(partitions.merged_for(goal.vdevice))
        return [cls(graph, compiler) for graph in graphs.values()]

    @property
    def ids(self) -> dict[str, int]:
        return self.compiler.kernels.ids

    def plan(self, policy: str, num_veus: int) -> RProgram:
        """A plan of a policy, or of the policy ``random<seed>``.

        Synchronising costs nothing, so that even tiny operators are spread over the vEUs.
        """
        graph = self.graph.graph
        if policy.startswith("random"):
            return random_plan(graph, num_veus, int(policy.removeprefix("random")))
        return plan(graph, self._device(num_veus), policy)

    def plans(self, num_veus: int) -> dict[str, RProgram]:
        """The plans of all policies; what ``auto`` tries is made once."""
        graph, device = self.graph.graph, self._device(num_veus)
        costs = CostModel.of(device)
        policies = {name: replace(p, place=cache(p.place)) for name, p in POLICIES.items()}
        made = {
            name: finish(synchronise(graph, policy(graph, num_veus, costs), costs))
            for name, policy in policies.items()
        }
        return {**made, AUTO: finish(auto(graph, num_veus, costs, policies)[0].program)}

    def _device(self, num_veus: int) -> VDevice:
        return replace(
            self.compiler.kernels.vdevice,
            num_veus=num_veus,
            launch_seconds=0.0,
            barrier_seconds=0.0,
            point_to_point_seconds=0.0,
        )

    def compile(self, program: RProgram, by_wave: bool = False) -> Compiled:
        waves = program.num_waves if by_wave else 0
        signature = signature_of(self.graph.graph, waves)
        module = self.compiler.module((signature,))
        return Compiled(self, program, signature, module[signature.name], by_wave)

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        specs = signature_of(self.graph.graph).inputs
        return [aligned_copy(_random(rng, spec)) for spec in specs]


def _random(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    """Whole numbers may be indices: they are 0."""
    if np.dtype(spec.dtype).kind == "f":
        return rng.standard_normal(spec.shape).astype(spec.dtype)
    return np.zeros(spec.shape, spec.dtype)


@cache
def source_of(name: str) -> Source:
    """A small model for this machine; what is compiled of it serves all tests."""
    return Source.of_module(tiny_model(name))


def tiny_model(name: str) -> tvm.IRModule:
    """A model of the zoo at the size for quick tests."""
    return load_model(get_model(name).tiny()).module


@dataclass
class Compiled:
    """A plan and the kernel that runs it."""

    source: Source
    program: RProgram
    signature: RegionSignature
    kernel: Any
    by_wave: bool = False

    @cached_property
    def code(self) -> EncodedPlan:
        backend, ids = self.source.compiler.backend, self.source.ids
        return backend.encode(self.program, self.signature, ids, self.by_wave)

    @cached_property
    def table(self) -> np.ndarray:
        return self.code.table

    @cached_property
    def arena(self) -> np.ndarray:
        """Poisoned before the first run, and whatever that left behind before later ones."""
        return aligned_copy(np.full(self.code.arena_bytes, 0xFF, np.uint8))

    def outputs(self) -> list[np.ndarray]:
        return [aligned_copy(np.full(s.shape, 0x55, s.dtype)) for s in self.signature.outputs]

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        outputs = self.outputs()
        self.bind(inputs, outputs)()
        return outputs

    def bind(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], None]:
        """A run on these tensors, as often as it is called."""
        constants = aligned_copy(self.source.graph.constants)
        arrays = [*inputs, constants, aligned_copy(self.table), *outputs, self.arena]
        return partial(self.kernel, *map(tvm_ffi.from_dlpack, arrays))


def aligned_copy(array: np.ndarray, misaligned_by: int = 0) -> np.ndarray:
    """A copy that starts so many bytes behind a multiple of the alignment."""
    memory = np.empty(array.nbytes + 2 * ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT + misaligned_by
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def in_new_thread(work: Callable[[], Any], workers: int | None = None) -> Any:
    """Do work in a thread whose pool has that many workers; a hang is a failure."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            if workers is not None:
                assert configure_pool(workers) == workers
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    with mock.patch.dict(os.environ):
        os.environ.pop("TVM_NUM_THREADS", None)
        thread.start()
        thread.join(TIMEOUT)
    assert not thread.is_alive(), f"still running after {TIMEOUT} s"
    if errors:
        raise errors[0]
    return results[0]


def random_plan(graph: OperatorGraph, num_veus: int, seed: int) -> RProgram:
    """A safe plan that no policy makes: the tiles of each operator in random ranges anywhere."""
    choice = random.Random(seed)
    veus: list[list[Placed]] = [[] for _ in range(num_veus)]
    for number, operator in enumerate(graph.operators):
        tiles = operator.candidates[0].num_tiles
        inner = {choice.randint(0, tiles) for _ in range(num_veus)}
        for start, stop in pairwise(sorted({0, tiles, *inner})):
            placed = Placed(number, 0, start, stop, graph.levels[number])
            choice.choice(veus).append(placed)
    placement = Placement(f"random{seed}", tuple(map(tuple, veus)))
    program = plan_memory(synchronise(graph, placement))
    verify(program)
    return program


def same_bits(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return [array.tobytes() for array in left] == [array.tobytes() for array in right]
