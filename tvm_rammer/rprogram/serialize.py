"""Write an rProgram as JSON and read it back, refusing what is not one or is not safe.

What tasks wait for is written once for all tasks that wait for the same, as there are many where
many vEUs wait for many.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram.program import Buffer, RKernel, ROperator, RProgram, RTask, Wait
from tvm_rammer.rprogram.verify import verify
from tvm_rammer.typed_json import FieldError, parse_json, read_as

#: Grows whenever the data types of a plan change.
FORMAT_VERSION = 6


@dataclass(frozen=True)
class _Task:
    """An rTask whose ``waits`` are the number of a list of them."""

    operator: int
    start: int
    stop: int
    waits: int
    wave: int


@dataclass(frozen=True)
class _Stored:
    """An rProgram as it is written; ``waits`` are lists of (vEU, count)."""

    name: str
    policy: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[RKernel, ...]
    operators: tuple[ROperator, ...]
    veus: tuple[tuple[_Task, ...], ...]
    waits: tuple[tuple[tuple[int, int], ...], ...]
    arena_bytes: int
    constant_bytes: int
    launches: tuple[str, ...]

    @classmethod
    def of(cls, program: RProgram) -> _Stored:
        numbers: dict[tuple[tuple[int, int], ...], int] = {}
        #: By identity: many tasks share what they wait for.
        known: dict[int, int] = {}

        def stored(task: RTask) -> _Task:
            if id(task.waits) not in known:
                pairs = tuple([(wait.veu, wait.count) for wait in task.waits])
                known[id(task.waits)] = numbers.setdefault(pairs, len(numbers))
            return _Task(task.operator, task.start, task.stop, known[id(task.waits)], task.wave)

        veus = tuple([tuple(map(stored, tasks)) for tasks in program.veus])
        entries = {field.name: getattr(program, field.name) for field in fields(RProgram)}
        return cls(**{**entries, "veus": veus, "waits": tuple(numbers)})

    def program(self) -> RProgram:
        """What was written."""
        waits = [tuple([Wait(*pair) for pair in pairs]) for pairs in self.waits]
        veus = []
        for veu, tasks in enumerate(self.veus):
            for position, task in enumerate(tasks):
                if not 0 <= task.waits < len(waits):
                    raise PlanError(
                        f"veus[{veu}][{position}].waits is {task.waits}, but there are "
                        f"{len(waits)} lists of waits; correct the number"
                    )
            veus.append(
                tuple([RTask(t.operator, t.start, t.stop, waits[t.waits], t.wave) for t in tasks])
            )
        entries = {field.name: getattr(self, field.name) for field in fields(RProgram)}
        return RProgram(**{**entries, "veus": tuple(veus)})


def as_data(program: RProgram) -> dict[str, Any]:
    """A program as what JSON has: dictionaries, lists, texts and numbers."""
    return {"format_version": FORMAT_VERSION, **_plain(_Stored.of(program))}


def to_json(program: RProgram) -> str:
    """A program as JSON that a person can read and edit, with one entry a line.

    Raises
    ------
    PlanError
        If a number is not finite: JSON cannot say it.
    """
    try:
        lines = [f"{json.dumps(k)}: {_layout(value, k)}" for k, value in as_data(program).items()]
    except ValueError:
        raise PlanError(
            f"rProgram {program.name!r} has a number that is not finite; correct its kernels"
        ) from None
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> RProgram:
    """The program that :func:`to_json` wrote, verified, since the text may have been edited.

    Raises
    ------
    PlanError
        If the text is not a plan of this format version, naming the field, or the plan is not safe.
    """
    try:
        data = parse_json(text)
    except ValueError as error:
        raise PlanError(f"the plan is not JSON: {error}; write it with to_json") from None
    if not isinstance(data, dict):
        raise PlanError("the plan is not a JSON object; write it with to_json")
    version = data.pop("format_version", None)
    if type(version) is not int or version != FORMAT_VERSION:
        raise PlanError(
            f"the plan has format_version {version!r}, this is {FORMAT_VERSION}; make the plan anew"
        )
    try:
        stored: _Stored = read_as(_Stored, data)
    except FieldError as error:
        raise PlanError(error.within("the plan")) from None
    program = stored.program()
    verify(program)
    return program


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists."""
    if is_dataclass(value):
        entries = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, RKernel):
            entries["footprints"] = [[f"{m:x}" for m in masks] for masks in value.footprints]
        return entries
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _layout(value: Any, key: str) -> str:
    """A list has a line for each entry; the lists of the vEUs are nested."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, allow_nan=False)
    nested = key == "veus"
    inner = [_layout(item, "") if nested else json.dumps(item, allow_nan=False) for item in value]
    return "[\n" + ",\n".join(inner) + "\n]"
