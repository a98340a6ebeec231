"""What tuning is worth on a model: its operators, the network, wrong numbers, fronts, spaces."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from corpus.entries import draw_inputs
from corpus.fetch import fetch
from corpus.trained import TRAINED

import tvm_rammer
from bench.compare_spaces import OperatorSpaces, compare_spaces
from bench.contenders import available_threads
from bench.findings import FindingsFile
from bench.graphs import operator_graphs
from bench.library_race import LibraryRace, race_libraries
from bench.wrong_numbers import WonBack, numbers, wrong
from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.errors import InputError
from tvm_rammer.frontend import LoadedModel, load_model
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.rprogram import OperatorGraph, RKernel
from tvm_rammer.schedule import CostModel, auto, policies
from tvm_rammer.testing.models import MODELS
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.tuning.bench import Bench, failure, without_intrinsics
from tvm_rammer.tuning.database import Database
from tvm_rammer.tuning.journal import Progress
from tvm_rammer.tuning.model import tasks_of
from tvm_rammer.tuning.session import WeightedTask, made_race, tune_tasks
from tvm_rammer.tuning.shares import PlanShares
from tvm_rammer.tuning.status import tuning_status

#: vEUs of the device for which fronts are searched, and simulated.
VEUS = 16
#: Of the trials that a model is tuned with, so many answer another question of it.
OF_A_QUESTION = 0.4
#: Time over that of another, and the limits between which it lies with a confidence of 95 %.
Interval = tuple[float, float, float]
#: That of what is the same.
UNCHANGED: Interval = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class TunedOperator:
    """An operator by the records.

    Attributes
    ----------
    name : str
    uses : int
        How often the network has it.
    seconds : float
        Of the untuned choice on one core.
    roofline : float
        Share of its roofline that the untuned choice reaches; 0 if that is not known.
    choice : str
        What a build by the records takes; the untuned one unless something pays.
    ratio : (float, float, float)
        Its time over that of the untuned one, in a race behind all that chose it.
    """

    name: str
    uses: int
    seconds: float
    roofline: float
    choice: str
    ratio: Interval


@dataclass(frozen=True)
class TunedNetwork:
    """A network by the records of its operators.

    Attributes
    ----------
    trials : int
        Choices that were measured.
    minutes : float
        That tuning took, of this process alone where it went on with what was there.
    operators : tuple of TunedOperator
    predicted : float
        The plan's time over that without records, by the last races of the operators.
    ms : (float, float)
        Median milliseconds of a run, without and with records.
    ratio : (float, float, float)
        Of both, in a process each that took turns; :data:`UNCHANGED` where both are the same.
    kept : str
        What the session says of the network.
    gains : tuple of (int, float)
        The plan's gain by trials.
    """

    trials: int
    minutes: float
    operators: tuple[TunedOperator, ...]
    predicted: float
    ms: tuple[float, float]
    ratio: Interval
    kept: str
    gains: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class FrontsGain:
    """What it is worth that an operator may choose among its records.

    Attributes
    ----------
    operators, choices : int
        Of the planned network, and those with more than one rKernel.
    fast, efficient, fronts : float
        Simulated seconds on :data:`VEUS` vEUs: where every operator has the one that is fastest if
        it has them all to itself, the one that takes least of them together, and all on its front.
    vector : int
        Floats of a vector of the processor that measured the rKernels.
    """

    operators: int
    choices: int
    fast: float
    efficient: float
    fronts: float
    vector: int

    @property
    def gain(self) -> float:
        """How many times as fast the network is with fronts."""
        return self.fast / self.fronts


@dataclass(frozen=True)
class TuningStudy:
    """What was found about a model so far."""

    tuned: TunedNetwork | None = None
    wrong: WonBack | None = None
    fronts: FrontsGain | None = None
    spaces: tuple[OperatorSpaces, ...] | None = None


#: What tune_models.py writes.
TUNINGS = FindingsFile("tune_models.py", TuningStudy)


@dataclass(frozen=True)
class Network:
    """A model to tune, and what it runs on."""

    name: str
    loaded: LoadedModel
    inputs: Mapping[str, np.ndarray]

    @staticmethod
    def named(name: str, cache: Path, quick: bool = False) -> Network:
        """One of the zoo, a trained one that a package ships, or an ONNX file.

        Raises
        ------
        InputError
            If there is none.
        """
        if name in MODELS:
            model = MODELS[name].tiny() if quick else MODELS[name].build()
            return Network(name, load_model(model), random_inputs(model))
        for entry in TRAINED:
            if entry.name == name:
                drawn = draw_inputs(entry).items()
                inputs = {each: value for each, value in drawn if each not in entry.constants}
                shapes = {each: value.shape for each, value in inputs.items()}
                loaded = load_model(fetch(entry, cache), shapes, entry.constants)
                return Network(name, loaded, inputs)
        if not Path(name).is_file():
            raise InputError(f"{name}: is no model of the zoo or the corpus, and no file")
        model = onnx.load(name)
        return Network(Path(name).stem, load_model(model), random_inputs(model))


def untold(progress: Progress) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class TuningBudget:
    """How long a part of a study takes.

    Attributes
    ----------
    trials : int
    seconds : float
        To time two networks.
    records : Path
        Folder of the records, one in it for each model and part.
    policy : str
    space_trials : int
        In each space, for each of the operators of which spaces are compared.
    watch : callable
        Called with the progress of a session.
    """

    trials: int
    seconds: float
    records: Path
    policy: str = "auto"
    space_trials: int = 64
    watch: Callable[[Progress], None] = untold

    @property
    def of_a_question(self) -> TuningBudget:
        """For parts that ask one question of a model and need not tune it as well as can be."""
        return replace(self, trials=max(1, round(OF_A_QUESTION * self.trials)))


def tuned(network: Network, budget: TuningBudget) -> TunedNetwork:
    """Tune a model, race what was chosen anew, and time the network without and with records."""
    folder = budget.records / network.name
    started = time.perf_counter()
    database = _database(network, budget, folder)
    minutes = (time.perf_counter() - started) / 60
    tasks, shares = tasks_of(network.loaded.module, Options().resolve())
    operators = tuned_operators(tasks, database)
    libraries = {
        "untuned": _built(network, budget),
        "tuned": _built(network, budget, database),
    }
    (race,) = _timed(network, libraries, budget.seconds)
    ratio = (race.ratio.value, race.ratio.low, race.ratio.high)
    changed = any(database.chosen(each.task) for each in tasks)
    status = tuning_status(folder)
    return TunedNetwork(
        sum(len(database.tried(each.task)) for each in tasks),
        minutes,
        tuple(operators.values()),
        _predicted(shares, [operators.get(number) for number in range(len(tasks))]),
        race.ms,
        ratio if changed else UNCHANGED,
        status.network,
        status.gains,
    )


def won_back(network: Network, budget: TuningBudget) -> WonBack:
    """Build a model by true numbers, by wrong ones, and by those with what tuning found."""
    budget = budget.of_a_question
    true = _built(network, budget)
    with numbers(wrong):
        database = _database(network, budget, budget.records / f"{network.name}-by-wrong-numbers")
        libraries = {
            "wrong": _built(network, budget),
            "true": true,
            "tuned": _built(network, budget, database),
        }
    by_true, by_tuning = _timed(network, libraries, budget.seconds)
    ms = (by_true.ms[1], by_true.ms[0], by_tuning.ms[1])
    return WonBack(network.name, ms, by_true.ratio, by_tuning.ratio)


def fronts_gain(network: Network, budget: TuningBudget) -> FrontsGain:
    """Tune for a device of many vEUs, and plan for it with fronts and with fast records alone."""
    budget = budget.of_a_question
    with numbers(_with_many_veus):
        goal = Options().resolve()
        tasks, shares = tasks_of(network.loaded.module, goal)
        # The plan is for more vEUs than there are: the operators are measured, the network is not.
        database = tune_tasks(
            tasks,
            goal.target,
            budget.records / f"{network.name}-for-{VEUS}-vEUs",
            budget.trials,
            weigh=shares,
            watch=budget.watch,
        )
        graphs = operator_graphs(network.loaded, measured=True, records=database)
        costs = CostModel.of(vdevice_for())
    return FrontsGain(
        sum(len(graph.operators) for graph in graphs),
        sum(len(op.candidates) > 1 for graph in graphs for op in graph.operators),
        _makespan(fastest_alone(graphs), costs),
        _makespan(most_efficient(graphs), costs),
        _makespan(graphs, costs),
        vdevice_for().vector_bytes // 4,
    )


def spaces_compared(network: Network, budget: TuningBudget) -> tuple[OperatorSpaces, ...]:
    """Tune the costliest operators in each space, as many trials each, and race what was found."""
    folder = budget.records / f"{network.name}-by-space"
    return compare_spaces(network.loaded, folder, budget.space_trials, budget.watch)


#: The parts of a study, by the names of its fields.
PARTS: dict[str, Callable[[Network, TuningBudget], Any]] = {
    "tuned": tuned,
    "wrong": won_back,
    "fronts": fronts_gain,
    "spaces": spaces_compared,
}


def _with_many_veus(vdevice: VDevice) -> VDevice:
    return replace(vdevice, num_veus=VEUS)


def _database(network: Network, budget: TuningBudget, folder: Path) -> Database:
    loaded, trials = network.loaded, budget.trials
    return tvm_rammer.tune(loaded, trials=trials, work_dir=folder, watch=budget.watch)


def _built(
    network: Network, budget: TuningBudget, database: Database | None = None
) -> tvm_rammer.Library:
    return tvm_rammer.build(network.loaded, policy=budget.policy, database=database)


def tuned_operators(tasks: Sequence[WeightedTask], database: Database) -> dict[int, TunedOperator]:
    """What a build takes of each operator that was measured, by its number.

    Tuned ones are in a race that had no part in choosing them.
    """
    chosen = {
        number: [0, *(each.number for each in database.front(one.task))]
        for number, one in enumerate(tasks)
        if database.chosen(one.task)
    }
    with tempfile.TemporaryDirectory() as scratch, without_intrinsics():
        bench = Bench([each.task for each in tasks], resolve_target(None), Path(scratch))
        results = bench.measure(list(chosen.items()))
    raced = dict(zip(chosen, results, strict=True))
    found = {}
    for number, one in enumerate(tasks):
        if number in chosen:
            found[number] = _tuned_operator(one, chosen[number], raced[number])
        elif (seconds := database.tried(one.task).get(0, inf)) < inf:
            found[number] = _operator(one, seconds, 0, UNCHANGED)
    return found


def _tuned_operator(one: WeightedTask, numbers: Sequence[int], result: Any) -> TunedOperator:
    if error := failure(result):
        raise InputError(f"{one.name} cannot be measured again: {error}")
    race = made_race(0, one.task, numbers, list(map(float, result.run_secs)))
    return _operator(one, race.seconds, numbers[1], race.raced[1].ratio)


def _operator(one: WeightedTask, seconds: float, number: int, ratio: Interval) -> TunedOperator:
    text = one.task.choice(number).text
    return TunedOperator(one.name, one.uses, seconds, one.bound / seconds, text, ratio)


def _predicted(shares: PlanShares, operators: Sequence[TunedOperator | None]) -> float:
    """The time of a plan over that without records; of those not measured the model's counts."""
    untuned = shares([each.seconds if each else inf for each in operators])[1]
    by_records = shares([each.seconds * each.ratio[0] if each else inf for each in operators])[1]
    return by_records / untuned if untuned else 1.0


def _timed(
    network: Network, libraries: Mapping[str, tvm_rammer.Library], seconds: float
) -> list[LibraryRace]:
    """The first library against each of the others."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        arrays: dict[str, Any] = dict(network.inputs)
        np.savez(inputs, **arrays)
        files = {
            name: library.export_library(Path(folder) / f"{name}.so")
            for name, library in libraries.items()
        }
        first, *others = files
        return [
            race_libraries(
                {name: files[name] for name in (first, other)},
                inputs,
                available_threads(),
                seconds,
            )
            for other in others
        ]


def fastest_alone(graphs: Sequence[OperatorGraph]) -> list[OperatorGraph]:
    """The graphs with the one rKernel of every operator that is fastest with all vEUs to itself."""

    def alone(kernel: RKernel) -> tuple[float, float]:
        together = kernel.num_tiles * kernel.tile_time
        return -(-kernel.num_tiles // VEUS) * kernel.tile_time, together

    return _least(graphs, alone)


def most_efficient(graphs: Sequence[OperatorGraph]) -> list[OperatorGraph]:
    """The graphs with the one rKernel of every operator that takes least of all vEUs together."""
    return _least(graphs, lambda kernel: (kernel.num_tiles * kernel.tile_time, 0.0))


def _least(
    graphs: Sequence[OperatorGraph], cost: Callable[[RKernel], tuple[float, float]]
) -> list[OperatorGraph]:
    return [
        replace(
            graph,
            operators=tuple(
                replace(op, candidates=(min(op.candidates, key=cost),)) for op in graph.operators
            ),
        )
        for graph in graphs
    ]


def _makespan(graphs: Sequence[OperatorGraph], costs: CostModel) -> float:
    return sum(auto(graph, VEUS, costs, policies())[0].predicted for graph in graphs)
