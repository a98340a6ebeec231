"""Small databases, written as the tuner writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from kernel_runs import HOST, TARGET, constant, legalized_func, numbers
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.tuning.database import RACES, RECORDS, WORKLOADS, TaskRace
from tvm_rammer.tuning.fronts import RacedChoice
from tvm_rammer.tuning.space import trace_of
from tvm_rammer.tuning.task import Task


def product_task(columns: int, device: str) -> Task:
    """A product of one row, for a device of this name."""
    x = numbers((1, 24))
    weight = np.ones((24, columns), "float32")
    func = legalized_func(lambda x: relax.op.matmul(x, constant(weight)), x)
    return Task(func, (1,), replace(HOST, name=device), 5e-5)


def write_records(folder: Path, products: Mapping[str, Sequence[int]]) -> Path:
    """A record and a race of a product with each of these numbers of columns, by device."""
    folder.mkdir()
    database = ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    tasks = [product_task(n, device) for device, columns in products.items() for n in columns]
    with TARGET, open(folder / RACES, "w") as races:
        for place, task in enumerate(tasks):
            workload = database.commit_workload(task.workload())
            trace = trace_of(task.workload(), len(task.choices), 0)
            database.commit_tuning_record(
                ms.database.TuningRecord(trace, workload, [1e-6], TARGET, [])
            )
            raced = RacedChoice(0, 1, "", (1.0, 1.0, 1.0))
            races.write(TaskRace(place, 1e-6, (raced,)).line())
    return folder
