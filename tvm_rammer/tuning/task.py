"""An operator to tune: a PrimFunc, what is known of it, and the ways to schedule it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import tirx

from tvm_rammer.backend.protocol import Backend, Tuner
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.scheduled import Choice
from tvm_rammer.machine import VDevice

#: Attribute of a workload's PrimFunc: what else the ways to schedule it depend on, as JSON.
_TASK = "tvm_rammer.task"
#: What of a vDevice decides how PrimFuncs are scheduled.
_OF_DEVICE = (
    "kind",
    "num_veus",
    "vector_bytes",
    "vector_registers",
    "l1_bytes",
    "l2_bytes",
    "l3_bytes",
)


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
    """

    func: tirx.PrimFunc
    constants: tuple[int, ...]
    vdevice: VDevice
    winograd_tolerance: float

    @cached_property
    def choices(self) -> Sequence[Choice]:
        """All ways to schedule it, the untuned one first; none if there is no choice."""
        constants = frozenset(self.constants)
        return self.tuner.choices(self.func, constants, self.vdevice, self.winograd_tolerance)

    @property
    def tuner(self) -> Tuner:
        """Of the device's back end."""
        return tuner_of(backend_named(self.vdevice.kind))

    def workload(self) -> tvm.IRModule:
        """The task as MetaSchedule keeps it: equal for equal tasks with equal choices.

        Records are numbers of choices: those of another list are another workload's.
        """
        texts = "\n".join(choice.text for choice in self.choices)
        known = {
            "constants": self.constants,
            "winograd_tolerance": self.winograd_tolerance,
            "vdevice": {name: getattr(self.vdevice, name) for name in _OF_DEVICE},
            "choices": hashlib.sha256(texts.encode()).hexdigest()[:16],
        }
        attributes = {"global_symbol": "main", _TASK: json.dumps(known, sort_keys=True)}
        return tvm.IRModule({"main": self.func.with_attrs(attributes)})

    @staticmethod
    def of(workload: tvm.IRModule) -> Task:
        """The task behind a workload, also behind one that a schedule has annotated."""
        func = workload["main"]
        known = json.loads(func.attrs[_TASK])
        vdevice = VDevice("tuned", **known["vdevice"])
        plain = _without_annotations(func).without_attr(_TASK).without_attr("global_symbol")
        return Task(plain, tuple(known["constants"]), vdevice, known["winograd_tolerance"])


def tuner_of(backend: Backend) -> Tuner:
    """The tuner of a back end, or a TuningError."""
    if backend.tuner is None:
        raise TuningError(f"the back end {backend.name!r} offers nothing to tune")
    return backend.tuner


def _without_annotations(func: tirx.PrimFunc) -> tirx.PrimFunc:
    realize = func.body
    if not len(realize.block.annotations):
        return func
    block = realize.block
    plain = type(block)(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        block.body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
    )
    return func.with_body(type(realize)(realize.iter_values, realize.predicate, plain))
