"""MetaSchedule's search of one space of an operator: what it proposes, and what it is told."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.tuning.bench import workers_for
from tvm_rammer.tuning.sketch_choice import is_sketched, sketch_number, trace_text
from tvm_rammer.tuning.sketch_space import sketch_space, sketched_module
from tvm_rammer.tuning.space import choice_numbers, space_of
from tvm_rammer.tuning.task import Task, tile_count

#: Choices that are built and timed together, before the cost model learns from them.
AT_ONCE = 16
#: Of the evolutionary search: lists have some hundred choices, and features take milliseconds.
_POPULATION, _GENERATIONS = 48, 2
#: Records of earlier sessions that the cost model learns from.
_LEARNT = 64
#: Proposals without anything new after which there is nothing left.
_IN_VAIN = 3
#: More sketches than any session tries.
_MANY = 1 << 20

Proposal = tuple[int, ms.MeasureCandidate]


class Search:
    """MetaSchedule's evolutionary search of a space.

    Parameters
    ----------
    space : str
        One of :data:`~tvm_rammer.tuning.task.SPACES`.
    name : str
        Of the operator.
    task : Task
    target : Target
    cost_model : CostModel
        Of all operators.
    records : sequence of TuningRecord
        What earlier sessions measured of the operator.
    seed : int
    """

    def __init__(
        self,
        space: str,
        name: str,
        task: Task,
        target: tvm.target.Target,
        cost_model: ms.CostModel,
        records: Sequence[Any],
        seed: int,
    ) -> None:
        self.space, self.task, self.target, self.cost_model = space, task, target, cost_model
        sketches = space == "sketch"
        mod = sketched_module(task.func, task.constants) if sketches else task.workload()
        self.context = ms.TuneContext(
            mod=mod,
            target=target,
            space_generator=(
                sketch_space(task.vdevice, seed) if sketches else space_of(task, seed)
            ),
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=_POPULATION,
                init_min_unmeasured=AT_ONCE,
                genetic_num_iters=_GENERATIONS,
            ),
            task_name=name,
            rand_state=seed,
            num_threads=workers_for(task.vdevice),
        )
        # The records of a space are of no use for the search of another one.
        self.records = ms.database.MemoryDatabase()
        self.workload = self.records.commit_workload(mod)
        known = [each for each in records if is_sketched(each.trace) == sketches]
        for each in known:
            self._keep(each.trace, each.run_secs)
        self.context.pre_tuning(
            _MANY if sketches else len(task.choices) + AT_ONCE,
            AT_ONCE,
            database=self.records,
            cost_model=cost_model,
        )
        best = self.records.get_top_k(self.workload, _LEARNT)
        if len(best) > 1:
            cost_model.update(
                self.context,
                [record.as_measure_candidate() for record in best],
                [ms.runner.RunnerResult(record.run_secs, None) for record in best],
            )

    def proposed(self, tried: Container[int]) -> list[Proposal]:
        """Choices that were not tried; none if there is none left."""
        for _ in range(_IN_VAIN):
            if self.space == "template" and all(k in tried for k in range(len(self.task.choices))):
                break
            candidates = self.context.generate_measure_candidates()
            if candidates is None:
                break
            found = {self._number(each): each for each in candidates}
            if fresh := [(number, each) for number, each in found.items() if number not in tried]:
                return fresh
        return []

    def learn(self, proposals: Sequence[Proposal], results: Sequence[Any]) -> None:
        """Take what was measured into account."""
        candidates = [candidate for _, candidate in proposals]
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                self._keep(candidate.sch.trace, result.run_secs)
        self.cost_model.update(self.context, candidates, results)
        self.context.notify_runner_results(candidates, results)

    def _keep(self, trace: Any, seconds: Sequence[float]) -> None:
        record = ms.database.TuningRecord(trace, self.workload, seconds, self.target, [])
        self.records.commit_tuning_record(record)

    def _number(self, candidate: ms.MeasureCandidate) -> int:
        """The number of a proposed choice, which the task knows from then on."""
        if self.space == "template":
            return choice_numbers(candidate.sch.mod)[0]
        text = trace_text(candidate.sch.trace)
        number = sketch_number(text)
        self.task.known.traces[number] = text
        self.task.known.tiles[number] = tile_count(candidate.sch.mod["main"])
        return number
