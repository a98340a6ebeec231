"""A builder whose choices of odd numbers compute something else, for worker processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.tuning.space import choice_numbers
from tvm_rammer.tuning.task import Task
from tvm_rammer.tuning.worker import named_choices


def build_wrong_choices(scratch: Path, mod: Any, target: Any, _: Any) -> Any:
    task, numbers = Task.of(mod), choice_numbers(mod)
    found = zip(numbers, named_choices(scratch, task, numbers), strict=True)
    # Numbers below 0 are finer choices of what is made without tuning.
    made = [doubled(choice) if number > 0 and number % 2 else choice for number, choice in found]
    return task.tuner.compile(made, target)


def doubled(choice: Choice) -> Choice:
    def emit() -> Scheduled:
        scheduled = choice.emit()
        params = scheduled.func.params

        def double(store: Any) -> Any:
            if not any(store.buffer.same_as(param) for param in params):
                return store
            return tirx.BufferStore(store.buffer, store.value + store.value, store.indices)

        body = tvm_ffi.structural_map(scheduled.func.body, (tirx.BufferStore, double))
        return replace(scheduled, func=scheduled.func.with_body(body))

    return replace(choice, emit=emit)
