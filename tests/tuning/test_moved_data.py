"""What a choice costs by data that move between vEUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_runs import HOST, constant, legalized_func, numbers
from tvm import relax

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.vdevice import MemoryCosts
from tvm_rammer.tuning.fronts import RacedChoice, chosen_front
from tvm_rammer.tuning.moved_data import moved_seconds
from tvm_rammer.tuning.task import Task

ROWS, K, COLUMNS = 192, 64, 96


def device(num_veus: int) -> VDevice:
    """A byte that another vEU has takes a nanosecond."""
    return replace(HOST, num_veus=num_veus, memory=MemoryCosts(transfer_byte=1e-9))


def task_for(num_veus: int) -> Task:
    x, w = numbers((ROWS, K)), numbers((K, COLUMNS), seed=1)
    func = legalized_func(lambda x: relax.op.matmul(x, constant(w)), x)
    return Task(func, (1,), device(num_veus), 5e-5)


@pytest.fixture(scope="module")
def task() -> Task:
    return task_for(2)


def number_of(task: Task, words: str) -> int:
    """The first choice, but the untuned one, with some words; of two columns of tiles or more."""
    return next(
        number
        for number, choice in enumerate(task.choices)
        if number and words in choice.text and "x 1 vectors" in choice.text
    )


def test_rows_stay_where_they_are(task):
    assert "rows first" in task.choices[number_of(task, "rows first")].text
    # Ranges of tiles end between cells: less than a tenth of the data.
    most = 0.1 * 4 * ROWS * (K + COLUMNS) * 1e-9
    assert moved_seconds(task, number_of(task, "rows first")) <= most


def test_columns_read_the_rows_of_others_and_write_between_theirs(task):
    """Each of two vEUs reads the other half of x, and writes half of its columns elsewhere."""
    number = number_of(task, "columns first")
    read, written = 4 * ROWS * K, 4 * ROWS * COLUMNS / 2
    expected = (read + 2 * written) * 1e-9
    assert moved_seconds(task, number) == pytest.approx(expected, rel=0.15)


def test_one_veu_has_all_data():
    alone = task_for(1)
    assert moved_seconds(alone, number_of(alone, "columns first")) == 0.0


def test_untuned_choices_move_nothing(task):
    assert moved_seconds(task, 0) == moved_seconds(task, -1) == 0.0


def test_a_build_takes_what_is_slower_by_itself_and_moves_less():
    untuned = RacedChoice(0, 8, "", (1.0, 1.0, 1.0))
    fast = RacedChoice(1, 8, "a", (0.7, 0.7, 0.7), moved=0.5)
    near = RacedChoice(2, 8, "b", (0.8, 0.8, 0.8))
    assert chosen_front([untuned, fast, near], 2) == [near]
    assert chosen_front([untuned, fast], 2) == []
