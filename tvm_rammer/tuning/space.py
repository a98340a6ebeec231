"""The choices that templates list for a task, as a space of MetaSchedule.

A template writes its TIR by hand, so that a schedule of MetaSchedule only carries the number of a
choice: one categorical sample, which is also an annotation of the root block. Who builds, and who
computes features, emits the choice.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.tuning.task import Task, tile_count

#: Annotation of the root block: the number of a choice, or a text of several.
CHOICE = "tvm_rammer.choice"
#: What features a choice has that cannot be emitted.
_NO_FEATURES = np.zeros((1, 164))


def is_annotated(mod: tvm.IRModule) -> bool:
    """Whether a module stands for choices, rather than being one."""
    return CHOICE in mod["main"].body.block.annotations


def choice_numbers(mod: tvm.IRModule) -> list[int]:
    """The numbers of the choices that an annotated workload stands for."""
    found = mod["main"].body.block.annotations[CHOICE]
    return [int(number) for number in str(found).split()]


def standing_for(workload: tvm.IRModule, numbers: Sequence[int]) -> tvm.IRModule:
    """A workload that stands for choices, whatever the space offers."""
    schedule = s_tir.Schedule(workload)
    schedule.annotate(schedule.get_sblock("root"), CHOICE, " ".join(map(str, numbers)))
    return schedule.mod


def trace_of(workload: tvm.IRModule, count: int, number: int) -> Any:
    """The trace that stands for a choice."""
    schedule = s_tir.Schedule(workload)
    _sample(schedule, count)
    trace = schedule.trace
    (sample,) = _samples(trace)
    return trace.with_decision(sample, number, True)


def space_of(task: Task, seed: int) -> ms.SpaceGenerator:
    """The space of a task."""
    count, texts = len(task.choices), [choice.text for choice in task.choices]
    return ms.space_generator.ScheduleFn(
        lambda schedule: _sample(schedule, count),
        sch_rules=[],
        postprocs=[],
        mutator_probs={NextChoice(texts, seed): 1.0},
    )


def _sample(schedule: s_tir.Schedule, count: int) -> None:
    number = schedule.sample_categorical(list(range(count)), [1.0 / count] * count)
    schedule.annotate(schedule.get_sblock("root"), CHOICE, number)


def _samples(trace: Any) -> list[Any]:
    return [step for step in trace.insts if step.kind.name == "SampleCategorical"]


@derived_object
class NextChoice(ms.mutator.PyMutator):
    """Takes a choice that differs in few words, now and then any.

    Parameters
    ----------
    texts : sequence of str
        Of the choices.
    seed : int
    """

    def __init__(self, texts: Sequence[str], seed: int) -> None:
        super().__init__()
        self.texts = list(texts)
        self.words = [text.split() for text in texts]
        self.random = random.Random(seed)
        self.near: dict[int, list[int]] = {}

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, trace: Any, _: Any) -> Any:
        """Another trace of the space; ``None`` where there is none."""
        if len(self.texts) < 2:
            return None
        (sample,) = _samples(trace)
        now = int(trace.get_decision(sample))
        near = self._near(now) if self.random.random() < 0.8 else []
        other = self.random.choice(near or [k for k in range(len(self.texts)) if k != now])
        return trace.with_decision(sample, other, True)

    def clone(self) -> Any:
        """The same with other random numbers."""
        return NextChoice(self.texts, self.random.randrange(1 << 30))

    def _near(self, number: int) -> list[int]:
        """The choices of as many words, one or two of which differ."""
        if number not in self.near:
            own = self.words[number]
            self.near[number] = [
                k
                for k, words in enumerate(self.words)
                if len(words) == len(own)
                and 0 < sum(a != b for a, b in zip(words, own, strict=True)) <= 2
            ]
        return self.near[number]


@derived_object
class EmittedFeatures(ms.feature_extractor.PyFeatureExtractor):
    """Features of the TIR that a choice emits, by TVM's own extractor; each made once.

    Parameters
    ----------
    tasks : mapping of str to Task
        By the names of their contexts.
    """

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.inner = ms.feature_extractor.PerStoreFeature()
        self.tasks = dict(tasks)
        self.known: dict[tuple[str, int], Any] = {}

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Any]:
        """The features of each candidate."""
        return [self._features(context, candidate) for candidate in candidates]

    def _features(self, context: Any, candidate: Any) -> Any:
        if not is_annotated(candidate.sch.mod):
            (features,) = self.inner.extract_from(context, [candidate])
            return features
        name = str(context.task_name)
        (number,) = choice_numbers(candidate.sch.mod)
        if (name, number) not in self.known:
            self.known[name, number] = self._made(context, self.tasks[name], number)
        return self.known[name, number]

    def _made(self, context: Any, task: Task, number: int) -> Any:
        # An exception here would end all tuning.
        try:
            func = task.choice(number).emit().func.with_attr("global_symbol", "main")
            task.known.tiles[number] = tile_count(func)
            schedule = s_tir.Schedule(tvm.IRModule({"main": func}))
            (features,) = self.inner.extract_from(context, [ms.MeasureCandidate(schedule, [])])
        except Exception:
            return tvm.runtime.tensor(_NO_FEATURES)
        return features
