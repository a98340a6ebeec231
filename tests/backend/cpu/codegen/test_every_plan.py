"""Plans of every policy for any number of vEUs: proved, interpreted and run, with one result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
from fuzzing.random_graphs import SHAPES
from fuzzing.random_models import random_model
from stress.compiled_regions import Source, in_new_thread, same_bits, tiny_model
from symbolic import SymbolicInterpreter

from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.host import configure_pool, host_cpu
from tvm_rammer.frontend import load_model
from tvm_rammer.kernel.bodies import compile_bodies
from tvm_rammer.rprogram import (
    RProgram,
    interpret_numeric,
    legal_interleavings,
)
from tvm_rammer.rprogram.rows import root_of, writers_of
from tvm_rammer.testing.models import MODELS, get_model

SYMBOLIC, NUMERIC = 20, 3
#: Interpreting numbers is for graphs of up to so many operators.
MOST_NUMERIC = 50
MOST_WORKERS = min(8, 4 * host_cpu().threads)


def check(source: Source, veus: Iterable[int], numeric: bool | None = None) -> int:
    """Prove, interpret and run all plans; how many there are that differ."""
    if numeric is None:
        numeric = len(source.graph.graph.operators) <= MOST_NUMERIC
    inputs = source.inputs()
    alone = source.compile(source.plan("sequential", 1))
    want = in_new_thread(partial(alone.run, inputs), workers=1)
    programs = [program for count in veus for program in source.plans(count).values()]
    distinct = list({replace(program, policy=""): program for program in programs}.values())
    compiled = source.compiler.kernels.bodies if numeric else {}
    bodies = compile_bodies(compiled, source.compiler.target, lowering_pipeline())
    for program in distinct:
        orders = list(islice(legal_interleavings(program, seed=1), SYMBOLIC))
        wanted, interpreter = producers(program), SymbolicInterpreter(program)
        for order in orders:
            interpreter.run(order)
            assert interpreter.seen == wanted, label(program)
        for order in orders[: NUMERIC if numeric else 0]:
            got = interpret_numeric(program, order, bodies, inputs, source.graph.constants)
            assert same_bits(got, want), label(program)
    in_new_thread(partial(run_all, source, distinct, inputs, want), workers=MOST_WORKERS)
    return len(distinct)


def run_all(
    source: Source, programs: list[RProgram], inputs: list[np.ndarray], want: list[np.ndarray]
) -> None:
    """Run on the device, with a worker for each vEU and with two for all of them."""
    for program in programs:
        compiled = source.compile(program)
        for workers in {min(program.num_veus, MOST_WORKERS), min(program.num_veus, 2)}:
            assert configure_pool(workers) == workers
            assert same_bits(compiled.run(inputs), want), f"{label(program)}, {workers} workers"


def producers(program: RProgram) -> dict[tuple[int, int, int], frozenset[int]]:
    """What every read of a result has to see."""
    numbers = range(len(program.operators))
    writers = writers_of(program.buffers, {b: n for n in numbers for b in program.writes(n)})
    seen = {}
    for veu, position, task in program.tasks():
        op = program.operators[task.operator]
        modes = program.kernel_of(task.operator).modes
        for argument, (b, mode) in enumerate(zip(op.arguments, modes, strict=True)):
            whole = program.buffers[root_of(program.buffers, b)]
            if mode == "read" and whole.space in ("arena", "output"):
                empty = not program.buffers[b].nbytes
                seen[veu, position, argument] = frozenset(() if empty else writers[b])
    return seen


def label(program: RProgram) -> str:
    return f"{program.name}: {program.policy}, {program.num_veus} vEUs"


def random_source(seed: int) -> Source:
    """One of 200 graphs of 5 to 500 operators."""
    operators = int(5 * 100 ** np.random.default_rng(seed).random())
    return Source.of_module(random_model(seed, SHAPES[seed % len(SHAPES)], operators))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_few_plans(shape):
    source = Source.of_module(random_model(7, shape, 12))
    assert check(source, (1, 3, 8)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_models(seed):
    check(random_source(seed), range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model(name):
    for source in Source.all_of_module(tiny_model(name)):
        check(source, range(1, 9))


@pytest.mark.slow
def test_lstm_on_numbers():
    (source,) = Source.all_of_module(load_model(get_model("lstm_8x8x256").build()).module)
    check(source, range(1, 9), numeric=True)
