"""Random graphs in the shapes of real networks: planned, compiled and run, plans also edited.

Nothing here was seen by whoever wrote the templates and the policies: how many operators read a
result, where branches meet, which results leave the model, and the sizes of everything are drawn.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import tvm
from tvm import relax

import tvm_rammer
from fuzzing.finds import Find, check_refusal, compare
from fuzzing.mutants import MUTATIONS
from fuzzing.random_graphs import SHAPES, random_graph
from fuzzing.random_models import random_model
from fuzzing.random_programs import random_program
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host import host_target
from tvm_rammer.errors import PlanError, RammerError
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RProgram, verify
from tvm_rammer.rprogram.serialize import from_json, to_json
from tvm_rammer.schedule import POLICIES, choices, plan

#: An output, and how far another may be from it.
Right = tuple[np.ndarray, float]

_FORMS = ("program", "program", "wavefront", "per-op")
_MOST_OPERATORS = 60
#: Of a number of float32.
_ROUNDING = 1e-7
_COSTS = ("launch_seconds", "barrier_seconds", "point_to_point_seconds")
#: The oracle's space and time grow with the square of the rTasks.
_MOST_TASKS = 1_500


def run_network(rng: Random, folder: Path) -> str:
    """A random model computes what stock TVM's own pipeline computes, also after a new plan."""
    shape, operators = rng.choice(SHAPES), rng.randint(1, _MOST_OPERATORS)
    seed = rng.randrange(1 << 30)
    model = random_model(seed, shape, operators)
    options = {"policy": rng.choice(choices()), "num_veus": rng.randint(1, 4)}
    form = rng.choice(_FORMS)
    name = f"{shape} of {operators} operators, {options}, {form}"
    draw = np.random.default_rng(rng.randrange(1 << 30))
    inputs = [
        draw.standard_normal([int(n) for n in param.ty.shape]).astype("float32")
        for param in model["main"].params
    ]
    right = _right(model, random_model(seed, shape, operators, _ROUNDING), inputs)
    try:
        library = tvm_rammer.build(model, form=form, oversubscribe=True, **options)
        _check(name, library, inputs, right)
        anew = library.replan(policy=rng.choice(sorted(POLICIES)), num_veus=rng.randint(1, 2))
        _check(f"{name}, planned anew", anew, inputs, right)
    except RammerError as error:
        return check_refusal(error)
    return "right"


def run_graph(rng: Random, folder: Path) -> str:
    """The plan of a random graph is safe, and so is an edited one, or it is refused."""
    from rprogram.oracle import is_safe

    draw = np.random.default_rng(rng.randrange(1 << 30))
    graph = random_graph(draw, rng.choice(SHAPES), rng.randint(1, 40))
    veus = rng.randint(1, 8)
    if rng.random() < 0.3:
        program = random_program(graph, veus, draw)
    else:
        # Synchronising that costs nothing spreads even tiny operators.
        free = dict.fromkeys(_COSTS, 0.0) if rng.random() < 0.5 else {}
        program = plan(
            graph, replace(_device(), num_veus=veus, **free), rng.choice(sorted(POLICIES))
        )
    if program.num_tasks > _MOST_TASKS:
        return "too large"
    if from_json(to_json(program)) != program:
        raise Find(f"{program.name}: JSON gives another plan")
    if not _agrees(program, is_safe):
        raise Find(f"{program.name} by {program.policy} for {veus} vEUs is not safe")
    mutant = MUTATIONS[rng.choice(sorted(MUTATIONS))](program, draw)
    if mutant is None or _agrees(mutant, is_safe):
        return "safe"
    return "refused"


def _agrees(program: RProgram, is_safe) -> bool:
    """Whether a plan is safe, as ``verify`` and the definitions say alike."""
    safe, reason = is_safe(program)
    try:
        verify(program)
    except PlanError as error:
        if safe:
            raise Find(f"a safe plan is refused: {error}") from error
        check_refusal(error)
        return False
    if not safe:
        raise Find(f"an unsafe plan is accepted: {reason}")
    return True


def _check(name: str, library, inputs: list[np.ndarray], right: list[Right]) -> None:
    for mine, (wanted, tolerance) in zip(library.create()(*inputs), right, strict=True):
        compare(name, mine.numpy(), wanted, tolerance)


def _right(model: tvm.IRModule, noisy: tvm.IRModule, inputs: list[np.ndarray]) -> list[Right]:
    """What stock TVM computes, and how much rounding may change it: deep ones amplify it."""
    return [
        (each, max(1e-4, 30 * float(np.abs(each - other).max())))
        for each, other in zip(_stock(model, inputs), _stock(noisy, inputs), strict=True)
    ]


def _stock(model: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What a model computes as stock TVM's own pipeline compiles it."""
    target = host_target()
    with target:
        module = relax.get_default_pipeline(target)(model)
    machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
    return [each.numpy() for each in machine["main"](*map(tvm.runtime.tensor, inputs))]


@cache
def _device() -> VDevice:
    return vdevice_for()
