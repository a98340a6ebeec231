"""Tuning a model: its operators, weighted by the share of a run's time that they take."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, SupportsIndex

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.errors import InputError, TuningError
from tvm_rammer.frontend import load_model
from tvm_rammer.frontend.input_constants import Constants
from tvm_rammer.frontend.input_shapes import Shapes
from tvm_rammer.options import Goal, Options
from tvm_rammer.region.eligibility import reason_to_leave_out
from tvm_rammer.region.marks import regions_of
from tvm_rammer.relax_util import operator_name, type_shape
from tvm_rammer.transform.pipeline import partition_module
from tvm_rammer.tuning.database import Database
from tvm_rammer.tuning.journal import Journal, Progress
from tvm_rammer.tuning.least_seconds import least_seconds
from tvm_rammer.tuning.race_network import keep_what_pays
from tvm_rammer.tuning.session import WeightedTask, tune_tasks
from tvm_rammer.tuning.shares import PlannedTask, PlanShares
from tvm_rammer.tuning.task import BOTH, SPACES, Task, tuner_of
from tvm_rammer.tuning.tracker import Tracker
from tvm_rammer.units import listed

#: What all generators of random numbers in a search can begin with.
_SEEDS = range(2**31)


def tune(
    model: Any,
    target: Any = None,
    *,
    trials: int,
    work_dir: str | os.PathLike[str],
    num_veus: int | None = None,
    shapes: Shapes | None = None,
    constants: Constants | None = None,
    space: str = "template",
    seed: int = 1,
    tracker: Tracker | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Database:
    """Let TVM's MetaSchedule choose the rTask tiling of a model's operators, by measuring.

    Every operator whose template lists configurations is a task: products, convolutions, depthwise
    convolutions, Winograd's transforms. What is made without tuning is measured first; whatever
    looks better is checked and runs in turns with it, twice, so that a build with these records
    takes nothing that is slower. At the end the network by these records runs in turns with the one
    without, and operators that do not pay in it stay as they are without tuning; on a tracker's
    machines it does not. It takes about half a second a trial.

    Parameters
    ----------
    model, target, num_veus, shapes, constants
        As for :func:`tvm_rammer.build`; the target must be this machine, unless there is a tracker.
    trials : int
        Configurations to try in all, those that the folder has of these operators among them: the
        same call goes on where a session was interrupted.
    work_dir : path
        Folder of the records. A session that was interrupted goes on with what is there, also for
        another model.
    space : str
        Where choices come from: ``"template"``, what templates list; ``"sketch"``, what
        MetaSchedule's own rules make of the loops of any operator; or ``"both"``, in turns.
    seed : int
        Of the search.
    tracker : Tracker, optional
        Of machines that the target stands for: measure on those instead of this one.
    watch : callable
        Called with the :class:`Progress` after each batch.

    Returns
    -------
    Database
        For ``tvm_rammer.build(..., database=...)``.

    Raises
    ------
    InputError
        If ``trials`` is no number from 1, ``seed`` none from 0, ``space`` or ``tracker`` is none,
        or the folder cannot be written.
    TuningError
        If the target is not this machine and no tracker is given, the tracker cannot be reached or
        has no such machine, nothing can be tuned, a library is missing, or another process tunes
        into the same folder.
    ModelError
        If the model cannot be read or imported.
    """
    spaces = spaces_of(space)
    seed = _seed(seed)
    _require_tracker(tracker)
    goal = Options(num_veus=num_veus).resolve(target)
    if tracker:
        tracker.servers()
    elif not goal.vdevice.host:
        raise TuningError(
            f"the target is not this machine, but {goal.vdevice.name}: tune where it is, or give a "
            "tracker of such machines"
        )
    loaded = load_model(model, shapes, constants)
    for name, param in zip(loaded.input_names, loaded.input_params, strict=True):
        if type_shape(param.ty) is None:
            raise InputError(
                f"tune: input {name!r} has sizes that each run decides; give the shapes that it is "
                "to be tuned for"
            )
    tasks, shares = tasks_of(loaded.module, goal, spaces)
    if not tasks:
        raise TuningError("no operator of the model has configurations to choose from")

    def finish(database: Database, journal: Journal) -> None:
        if tracker is None:
            keep_what_pays(loaded, goal.target, num_veus, tasks, database, journal)

    return tune_tasks(
        tasks,
        goal.target,
        work_dir,
        trials,
        seed=seed,
        weigh=shares,
        spaces=spaces,
        tracker=tracker,
        watch=watch,
        finish=finish,
    )


def spaces_of(space: str) -> tuple[str, ...]:
    """Where a user wants choices from, or an InputError."""
    if space == BOTH:
        return SPACES
    if space not in SPACES:
        raise InputError(f"space is {space!r}: it must be one of {listed((*SPACES, BOTH))}")
    return (space,)


def _seed(given: Any) -> int:
    """A seed as Python's own integer, which alone TVM takes; numpy's are seeds, too."""
    whole = isinstance(given, SupportsIndex) and not isinstance(given, bool)
    if not whole or index(given) not in _SEEDS:
        raise InputError(f"seed is {given!r}: it must be a whole number from 0 to {_SEEDS[-1]:,}")
    return index(given)


def _require_tracker(tracker: object) -> None:
    if tracker is not None and not isinstance(tracker, Tracker):
        raise InputError(
            f"tracker is {tracker!r}: give a Tracker, such as "
            "tvm_rammer.Tracker('127.0.0.1', 9190, 'the key of its servers')"
        )


def tasks_of(
    mod: tvm.IRModule, goal: Goal, spaces: Sequence[str] = SPACES[:1]
) -> tuple[list[WeightedTask], PlanShares]:
    """The operators of a model that offer a choice, the costliest first, and its plan's shares.

    Parameters
    ----------
    mod : IRModule
        As an importer makes it.
    goal : Goal
    spaces : sequence of str
        Where choices may come from.
    """
    partitions = partition_module(mod, goal)
    module, kernels = partitions.merged_for(goal.vdevice), partitions.compiler.kernels
    backend, vdevice = kernels.backend, kernels.vdevice
    tuner_of(backend)
    with goal.target:
        graphs = [region.graph for region in partitions.compiler.graphs(module).values()]
        within = kernels.uses.copy()
        for call in _outside(module):
            operands = enumerate(call.args[1].fields)
            constants = frozenset(k for k, x in operands if isinstance(x, GenericConst))
            kernels.get(module[call.args[0]], constants)
    ceilings = backend.ceilings(goal.target, vdevice)
    found: list[tuple[WeightedTask, PlannedTask]] = []
    # Asking again counts again.
    for key, count in list(kernels.uses.items()):
        func, constants = key
        task = Task(func, tuple(sorted(constants)), vdevice, kernels.winograd_tolerance)
        if not any(map(task.has, spaces)):
            continue
        kernel = kernels.get(func, constants)
        name = f"{kernel.stages[-1].kernel.origin} {len(found)}: {kernel.stages[-1].kernel.tiling}"
        bound = least_seconds(task, ceilings) if ceilings else 0.0
        planned = PlannedTask.of(kernel, count - within[key])
        found.append((WeightedTask(name, task, count, bound), planned))
    found.sort(key=lambda each: -each[0].uses * each[1].seconds)
    shares = PlanShares(graphs, [planned for _, planned in found], vdevice, backend.costs(vdevice))
    return [task for task, _ in found], shares


def _outside(module: tvm.IRModule) -> list[Any]:
    """The calls of operators outside of regions."""
    regions = regions_of(module)
    calls: list[Any] = []
    for symbol, func in module.functions_items():
        if isinstance(func, relax.Function) and symbol not in regions:
            tvm_ffi.structural_walk(func.body, (Call, calls.append))
    return [
        call
        for call in calls
        if operator_name(call) == "relax.call_tir" and reason_to_leave_out(call, module) is None
    ]
