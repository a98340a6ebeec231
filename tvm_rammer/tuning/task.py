"""An operator to tune: a PrimFunc, what is known of it, and the ways to schedule it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.protocol import Backend, Tuner
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.blocks import with_statements
from tvm_rammer.kernel.scheduled import UNTUNED, Choice, Scheduled
from tvm_rammer.kernel.split import num_tiles, root_nests
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS, Speeds
from tvm_rammer.tuning.sketch_choice import is_sketch, sketch_of
from tvm_rammer.tuning.sketch_space import is_sketchable
from tvm_rammer.typed_json import read_as

#: Attribute of a workload's PrimFunc: what else the ways to schedule it depend on, as JSON.
_TASK = "tvm_rammer.task"
#: Where choices come from: what templates list, and what MetaSchedule's own rules make.
SPACES = ("template", "sketch")
#: What users call all of them.
BOTH = "both"
#: What of a vDevice decides how PrimFuncs are scheduled.
_OF_DEVICE = (
    "name",
    "kind",
    "num_veus",
    "vector_bytes",
    "vector_registers",
    "l1_bytes",
    "l2_bytes",
    "l3_bytes",
)


@dataclass(frozen=True)
class TaskOrigin:
    """What a record was measured on, and by: it is of no use for anything else."""

    device: str
    version: str

    @property
    def source(self) -> str:
        """In words."""
        return f"{self.device} with TVM {self.version}"

    @staticmethod
    def of(vdevice: VDevice) -> TaskOrigin:
        """That of tasks for a device here."""
        return TaskOrigin(vdevice.name, tvm.__version__)

    @staticmethod
    def of_workload(workload: tvm.IRModule) -> TaskOrigin:
        """That of a task as MetaSchedule keeps it."""
        known = json.loads(workload["main"].attrs[_TASK])
        return TaskOrigin(known["vdevice"]["name"], known["tvm"])


#: By number and mode of a parameter, the cells that each vEU touches, as bit masks.
Cells = Mapping[tuple[int, str], Sequence[int]]


@dataclass
class KnownChoices:
    """Remembers what was found out about choices of a task, by their numbers.

    Attributes
    ----------
    traces : dict of int to str
        Of sketches; who proposes or reads some fills them in.
    sketches : dict of int to Choice
        What traces stand for.
    tiles : dict of int to int
        The most rTasks of a stage; who emits a choice for another reason fills it in.
    cells : dict of int to mapping
        What each vEU touches of what parameter in what mode; ``moved_data`` fills it in.
    """

    traces: dict[int, str] = field(default_factory=dict)
    sketches: dict[int, Choice] = field(default_factory=dict)
    tiles: dict[int, int] = field(default_factory=dict)
    cells: dict[int, Cells] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """An operator to tune.

    Attributes
    ----------
    func : PrimFunc
        Legalized and fused, not scheduled.
    constants : tuple of int
        Parameters that are constants wherever it is called, in order.
    vdevice : VDevice
    winograd_tolerance : float
        See :class:`~tvm_rammer.options.Options`.
    known : KnownChoices
        What is no part of the task, and spares finding it out twice.
    """

    func: tirx.PrimFunc
    constants: tuple[int, ...]
    vdevice: VDevice
    winograd_tolerance: float
    known: KnownChoices = field(default_factory=KnownChoices, compare=False, repr=False)

    @cached_property
    def choices(self) -> Sequence[Choice]:
        """All ways to schedule it that templates list, the untuned one first."""
        wanted = (self.func, frozenset(self.constants), self.vdevice, self.winograd_tolerance)
        untuned = partial(backend_named(self.vdevice.kind).schedule, *wanted)
        return self.tuner.choices(*wanted) or [Choice(UNTUNED, untuned)]

    @cached_property
    def likely(self) -> Sequence[int]:
        """Numbers of the choices that machines like this one would take, the likeliest first."""
        known = (self.func, frozenset(self.constants), self.vdevice, self.winograd_tolerance)
        numbers = {choice.text: number for number, choice in enumerate(self.choices)}
        return [numbers[text] for text in self.tuner.likely(*known) if text in numbers]

    @cached_property
    def finer(self) -> Sequence[Choice]:
        """What the untuned choice has for larger devices: the same in more tiles."""
        _, *variants = self.choices[0].emit().variants()
        return [
            Choice(f"{UNTUNED}, {each.tiling}", partial(replace, each, finer=None))
            for each in variants
        ]

    def has(self, space: str) -> bool:
        """Whether there is a choice in one of the :data:`SPACES`."""
        return len(self.choices) > 1 if space == "template" else is_sketchable(self.func)

    def choice(self, number: int) -> Choice:
        """A choice by its number; those below 0 are the finer variants of the untuned one."""
        if is_sketch(number):
            known = self.known
            if number not in known.sketches:
                known.sketches[number] = sketch_of(self.func, known.traces[number])
            return known.sketches[number]
        return self.choices[number] if number >= 0 else self.finer[-1 - number]

    @cached_property
    def inputs(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and type of each parameter that is not written."""
        written: list[Any] = []
        tvm_ffi.structural_walk(
            self.func.body, (tirx.BufferStore, lambda store: written.append(store.buffer))
        )
        return [
            (tuple(map(int, param.shape)), str(param.dtype))
            for param in self.func.params
            if not any(param.same_as(each) for each in written)
        ]

    @property
    def reference(self) -> Choice:
        """The operator as it was written: slow, and made by no template."""
        func = self.func.with_attr("global_symbol", "main")
        return Choice("reference", lambda: Scheduled(func, "reference", "as written"))

    def num_tiles(self, number: int) -> int:
        """The most rTasks that a stage of a choice has."""
        tiles = self.known.tiles
        if number not in tiles:
            tiles[number] = tile_count(self.choice(number).emit().func)
        return tiles[number]

    @property
    def tuner(self) -> Tuner:
        """Of the device's back end."""
        return tuner_of(backend_named(self.vdevice.kind))

    def workload(self) -> tvm.IRModule:
        """The task as MetaSchedule keeps it: equal for equal tasks with equal choices.

        Records are numbers of choices: those of another list are another workload's, and so are
        those of another TVM.
        """
        texts = "\n".join(choice.text for choice in self.choices)
        known = {
            "tvm": tvm.__version__,
            "constants": self.constants,
            "winograd_tolerance": self.winograd_tolerance,
            "vdevice": {name: getattr(self.vdevice, name) for name in _OF_DEVICE},
            "choices": hashlib.sha256(texts.encode()).hexdigest()[:16],
        }
        # Records of all machines have none yet.
        if self.vdevice.speeds != DEFAULT_SPEEDS:
            known["speeds"] = asdict(self.vdevice.speeds)
        attributes = {"global_symbol": "main", _TASK: json.dumps(known, sort_keys=True)}
        return tvm.IRModule({"main": self.func.with_attrs(attributes)})

    @staticmethod
    def of(workload: tvm.IRModule) -> Task:
        """The task behind a workload, also behind one that a schedule has annotated."""
        func = workload["main"]
        known = json.loads(func.attrs[_TASK])
        speeds = read_as(Speeds, known["speeds"]) if "speeds" in known else DEFAULT_SPEEDS
        vdevice = VDevice(**known["vdevice"], speeds=speeds)
        root = func.body.block
        plain = with_statements(func, root.body) if len(root.annotations) else func
        plain = plain.without_attr(_TASK).without_attr("global_symbol")
        return Task(plain, tuple(known["constants"]), vdevice, known["winograd_tolerance"])


def veus_of(workload: tvm.IRModule) -> int:
    """The vEUs of the device of a task as MetaSchedule keeps it."""
    return int(json.loads(workload["main"].attrs[_TASK])["vdevice"]["num_veus"])


def tile_count(func: tirx.PrimFunc) -> int:
    """The most tiles that a loop nest of a scheduled function has."""
    return max(map(num_tiles, root_nests(func.body)), default=1)


def tuner_of(backend: Backend) -> Tuner:
    """The tuner of a back end, or a TuningError."""
    if backend.tuner is None:
        raise TuningError(f"the back end {backend.name!r} offers nothing to tune")
    return backend.tuner
