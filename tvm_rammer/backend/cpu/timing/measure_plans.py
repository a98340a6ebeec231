"""Measure whole plans of a region on this machine, through the code that will run them.

A plan is a table and an arena; kernels, inputs, outputs and constants are the same for all plans of
a region. They take turns, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tvm

from tvm_rammer.backend.cpu.codegen.instruction_table import (
    arena_tensor_bytes,
    instruction_table,
)
from tvm_rammer.backend.cpu.host import configure_pool
from tvm_rammer.backend.plan_rows import BaseLayout
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.rprogram import RProgram, updated_in_place
from tvm_rammer.tensors import as_tensor

#: Seconds of measuring after which no further round starts, and the rounds there are at least (one
#: more than a confidence interval of 95 % takes: several plans are compared) and at most. Of the
#: fewest, the interval of a median reaches from the smallest to the largest value.
_SECONDS = 1.0
_FEWEST_ROUNDS = 7
_MOST_ROUNDS = 201
#: A sample is as many runs as take about this long.
_SAMPLE_SECONDS = 2e-4
#: A first run that takes longer than this is more than a sample, however cold it was.
_SLOW_SECONDS = 2e-2


def measure_plans(
    module: tvm.runtime.Module,
    signature: RegionSignature,
    ids: Mapping[str, int],
    plans: Sequence[tuple[RProgram, bool]],
    constants: np.ndarray,
    race: bool = False,
) -> list[list[float]]:
    """Time plans in turns, as :meth:`.Stopwatch.plans` says."""
    # One vEU is this thread alone: its own clock stands still while other programs have its core.
    clock = time.perf_counter if plans[0][0].num_veus > 1 else time.thread_time
    runs = _bind(module, signature, ids, plans, constants)

    def work() -> list[list[float]]:
        # A thread of its own: the caller's pool is left alone.
        configure_pool(plans[0][0].num_veus)
        return _take_turns(runs, clock, race)

    with ThreadPoolExecutor(1, thread_name_prefix="tvm-rammer-measure-plans") as executor:
        return executor.submit(work).result()


def _bind(
    module: tvm.runtime.Module,
    signature: RegionSignature,
    ids: Mapping[str, int],
    plans: Sequence[tuple[RProgram, bool]],
    constants: np.ndarray,
) -> list[Callable[[], None]]:
    entry = module[signature.name]
    generator = np.random.default_rng(0)
    inputs = [_input(spec, generator) for spec in signature.inputs]
    outputs = [tvm.runtime.empty(spec.shape, spec.dtype) for spec in signature.outputs]
    pool = as_tensor(constants)

    def bound(program: RProgram, by_wave: bool) -> Callable[[], None]:
        layout = BaseLayout.of(signature)
        table = tvm.runtime.tensor(instruction_table(program, layout, ids, by_wave))
        arena = tvm.runtime.tensor(np.zeros(arena_tensor_bytes(program, layout), np.uint8))
        # As it runs where it matters: a state is changed where it is.
        updated = updated_in_place(program)
        results = [inputs[updated[k]] if k in updated else out for k, out in enumerate(outputs)]
        arguments = [*inputs, pool, table, *results, arena]
        return lambda: entry(*arguments)

    return [bound(program, by_wave) for program, by_wave in plans]


def _input(spec: TensorSpec, generator: np.random.Generator) -> Any:
    """Numbers around 0; integers are 0, since they may be indices."""
    if not spec.dtype.startswith("float"):
        return tvm.runtime.empty(spec.shape, spec.dtype).copyfrom(np.zeros(spec.shape, spec.dtype))
    return tvm.runtime.tensor(generator.standard_normal(spec.shape).astype(spec.dtype))


def _take_turns(
    runs: Sequence[Callable[[], None]], clock: Callable[[], float], race: bool
) -> list[list[float]]:
    repeats = [_repeats(run, clock) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    running = list(range(len(runs)))
    started = time.perf_counter()
    for count in range(_MOST_ROUNDS):
        if time.perf_counter() - started > _SECONDS:
            if race:
                running = [0, *(n for n in running[1:] if _always_faster(times[n], times[0]))]
            if count >= _FEWEST_ROUNDS or running == [0]:
                break
        # In another order every time, or a plan would always find the caches of the same one.
        for number in random.Random(count).sample(running, len(running)):
            times[number].append(_time(runs[number], repeats[number], clock))
    return times


def _always_faster(times: Sequence[float], first: Sequence[float]) -> bool:
    return all(own < other for own, other in zip(times, first, strict=True))


def _repeats(run: Callable[[], None], clock: Callable[[], float]) -> int:
    """How often to run a plan for a sample; it has run by then."""
    if _time(run, 1, clock) > _SLOW_SECONDS:
        return 1
    return max(1, math.ceil(_SAMPLE_SECONDS / max(1e-9, _time(run, 1, clock))))


def _time(run: Callable[[], None], repeats: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(repeats):
        run()
    return (clock() - started) / repeats
