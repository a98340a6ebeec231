"""What tuning finds for the costliest operators of a network, by the space that it looks in.

Templates' lists, sketches that become rTasks, and MetaSchedule as it comes: its own rules,
measured by its own runner on TVM's threads. So many choices are tried in each, and what was fastest
in each then runs in turns with what is made without tuning, the way rTasks run: parallel loops
are cut into tiles, one core takes all of them, operands are not in its caches, and the results are
compared with the operator as it was written. The stock schedule is not timed by fork and join,
since a network that is planned has none.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.errors import TuningError
from tvm_rammer.frontend import LoadedModel
from tvm_rammer.options import Options
from tvm_rammer.tuning.bench import Bench, failure, without_intrinsics
from tvm_rammer.tuning.journal import Progress
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.session import WeightedTask, made_race, tune_tasks
from tvm_rammer.tuning.sketch_choice import sketch_number, trace_text
from tvm_rammer.tuning.task import SPACES, Task

#: What the third space is called.
STOCK = "stock"
#: Operators of a network, and trials of the stock tuner between two looks at its cost model.
_COSTLIEST, _AT_ONCE = 5, 16
#: Its workers parse all of TVM's intrinsics first, which its own 30 s are too few for where others
#: use the machine.
_BUILD_SECONDS, _RUN_SECONDS = 180.0, 90.0


@dataclass(frozen=True)
class BestOfSpace:
    """The fastest choice that was found in a space.

    Attributes
    ----------
    space : str
    choice : str
        In words.
    tiles : int
        rTasks of the stage that has most.
    ratio : (float, float, float)
        Its time over that without tuning: the median, and the limits between which it lies with a
        confidence of 95 %.
    """

    space: str
    choice: str
    tiles: int
    ratio: tuple[float, float, float]


@dataclass(frozen=True)
class OperatorSpaces:
    """An operator, and what was found for it.

    Attributes
    ----------
    operator : str
    uses : int
        How often the network has it.
    seconds : float
        On one core without tuning.
    found : tuple of BestOfSpace
        Without the spaces that have nothing that is right.
    """

    operator: str
    uses: int
    seconds: float
    found: tuple[BestOfSpace, ...]


def compare_spaces(
    loaded: LoadedModel, folder: Path, trials: int, watch: Callable[[Progress], None]
) -> tuple[OperatorSpaces, ...]:
    """Tune the costliest operators of a model in each space, and race what was found.

    Parameters
    ----------
    loaded : LoadedModel
    folder : Path
        Of the records, with a folder in it for each operator and space.
    trials : int
        In each space, for each operator; those that the records have count.
    watch : callable
        Called with the progress of our own sessions; the stock tuner tells nothing.
    """
    goal = Options().resolve()
    tasks, target = tasks_of(loaded.module, goal, SPACES)[0][:_COSTLIEST], goal.target
    rows = []
    for place, each in enumerate(tasks):
        own = folder / str(place)
        best: dict[str, int] = {}
        for space in SPACES:
            if each.task.has(space):
                best[space] = _tuned(each, space, own / space, trials, target, watch)
        best[STOCK] = _tuned_by_stock(each.task, own / STOCK, trials, target)
        rows.append(_raced(each, best, target))
    return tuple(rows)


def _tuned(
    each: WeightedTask,
    space: str,
    folder: Path,
    trials: int,
    target: tvm.target.Target,
    watch: Callable[[Progress], None],
) -> int:
    """The number of the fastest choice of a space; 0 if there is none that is right."""
    alone = WeightedTask(each.name, each.task, 1)
    # The untuned choice is not one of the trials.
    database = tune_tasks([alone], target, folder, trials + 1, spaces=(space,), watch=watch)
    found = {k: s for k, s in database.tried(each.task).items() if k > 0 and s < inf}
    return min(found, key=found.__getitem__, default=0)


def _tuned_by_stock(task: Task, folder: Path, trials: int, target: tvm.target.Target) -> int:
    """The same by MetaSchedule as it comes.

    Weights stay as they are: what its builder makes where their layout is free, its runner calls
    with arrays of the layout that they had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    mod = tvm.IRModule({"main": compact(task.func).with_attr("global_symbol", "main")})
    # Its rules for this machine's instructions are looked up by name.
    with _silence():
        if not done.exists():
            ms.tune_tir(
                mod,
                target,
                str(folder),
                trials,
                num_trials_per_iter=_AT_ONCE,
                builder=ms.builder.LocalBuilder(timeout_sec=_BUILD_SECONDS),
                runner=ms.runner.LocalRunner(timeout_sec=_RUN_SECONDS),
                seed=1,
            )
            done.touch()
        database = ms.database.JSONDatabase(work_dir=str(folder))
        best = database.get_top_k(database.commit_workload(mod), 1)
    if not best:
        return 0
    text = trace_text(best[0].trace)
    number = sketch_number(text)
    task.known.traces[number] = text
    return number


def compact(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same on tensors without gaps: MetaSchedule's runner makes no others."""
    others = {
        param: tirx.decl_buffer(list(param.shape), str(param.dtype), name=param.name)
        for param in func.params
        if len(param.strides)
    }
    if not others:
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda x: others.get(x, x)))
    params = [others.get(param, param) for param in func.params]
    return tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)


def _raced(
    each: WeightedTask, best: Mapping[str, int], target: tvm.target.Target
) -> OperatorSpaces:
    """Run the best of each space in turns with the untuned choice; wrong ones drop out."""
    task = each.task
    running = {space: number for space, number in best.items() if number}
    with tempfile.TemporaryDirectory() as scratch, without_intrinsics(), _silence():
        bench = Bench([task], target, Path(scratch))
        alone = bench.measure([(0, [number]) for number in running.values()])
        running = {
            space: number
            for (space, number), result in zip(running.items(), alone, strict=True)
            if not failure(result)
        }
        numbers = [0, *running.values()]
        (result,) = bench.measure([(0, numbers)])
    if error := failure(result):
        raise TuningError(f"{each.name}: {error}")
    race = made_race(0, task, numbers, list(map(float, result.run_secs)))
    raced = {one.number: one for one in race.raced}
    found = (
        BestOfSpace(
            space, task.choice(number).emit().tiling, raced[number].tiles, raced[number].ratio
        )
        for space, number in running.items()
    )
    return OperatorSpaces(each.name, each.uses, race.seconds, tuple(found))


@contextmanager
def _silence() -> Iterator[None]:
    """MetaSchedule reports by logging, and on both outputs."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
