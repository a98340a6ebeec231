"""The rKernels of a model: every distinct PrimFunc is scheduled, split and costed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE, Backend
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.kernel.scheduled import Choice, Packing, Scheduled
from tvm_rammer.kernel.split import Scratch, Stage
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import RKernel

#: Its stub gives it the constructor of its fields; it takes the object.
_structure: Any = tvm_ffi.StructuralKey


@dataclass(frozen=True)
class StagedKernel:
    """A stage of a PrimFunc as rKernels; ``arguments`` as in :class:`~.split.Stage`.

    The first of the ``candidates`` is the most efficient one, each of the others has smaller tiles.
    """

    candidates: tuple[RKernel, ...]
    arguments: tuple[int, ...]

    @property
    def kernel(self) -> RKernel:
        """The most efficient rKernel."""
        return self.candidates[0]


@dataclass(frozen=True)
class OperatorKernel:
    """What one PrimFunc became.

    Attributes
    ----------
    stages : tuple of StagedKernel
        In order; each runs after the one before.
    scratch : tuple of Scratch
        Buffers between the stages.
    packings : tuple of (int, Packing)
        Constant parameters that must be packed.
    scheduled : Scheduled
        The scheduled PrimFunc, for use as an ordinary ``call_tir``.
    """

    stages: tuple[StagedKernel, ...]
    scratch: tuple[Scratch, ...]
    packings: tuple[tuple[int, Packing], ...]
    scheduled: Scheduled


Tuned = Callable[[tirx.PrimFunc, frozenset[int]], Sequence[Choice]]


def untuned(func: tirx.PrimFunc, constants: frozenset[int]) -> Sequence[Choice]:
    """No records."""
    return ()


@dataclass
class KernelLibrary:
    """Kernels by PrimFunc, and the bodies that code is generated from.

    Attributes
    ----------
    vdevice : VDevice
    winograd_tolerance : float
        See :class:`~tvm_rammer.options.Options`.
    tuned : callable
        The choices that records of the tuner name for a PrimFunc and its constants, if any do.
    bodies : dict of str to PrimFunc
        By name, in the order of their numbers.
    uses : Counter
        How often each PrimFunc, with its constants, was asked for.
    """

    vdevice: VDevice
    winograd_tolerance: float = DEFAULT_TOLERANCE
    tuned: Tuned = untuned
    bodies: dict[str, tirx.PrimFunc] = field(default_factory=dict)
    uses: Counter[tuple[tirx.PrimFunc, frozenset[int]]] = field(default_factory=Counter)
    _known: dict[Any, OperatorKernel] = field(default_factory=dict)
    _body_names: dict[Any, str] = field(default_factory=dict)

    @property
    def backend(self) -> Backend:
        """The back end that makes them."""
        return backend_named(self.vdevice.kind)

    @property
    def ids(self) -> dict[str, int]:
        """The number of each body, as kernels are compiled."""
        return {name: number for number, name in enumerate(self.bodies)}

    def get(self, func: tirx.PrimFunc, constants: frozenset[int]) -> OperatorKernel:
        """The kernel of a PrimFunc whose parameters ``constants`` are constants."""
        key = (func, constants)
        self.uses[key] += 1
        if key not in self._known:
            self._known[key] = self._make(func, constants)
        return self._known[key]

    def _make(self, func: tirx.PrimFunc, constants: frozenset[int]) -> OperatorKernel:
        backend = self.backend
        scheduled = self._schedule(func, constants)
        split_up = partial(backend.split, vdevice=self.vdevice)
        split = split_up(scheduled.func)
        found: list[dict[str, RKernel]] = [{} for _ in split.stages]
        for variant in scheduled.variants():
            stages = (split if variant is scheduled else split_up(variant.func)).stages
            for kernels, stage in zip(found, stages, strict=True):
                name = self._name(stage.body)
                # A stage that is cut alike in both is the same kernel.
                kernels.setdefault(name, _kernel(name, stage, variant, scheduled))
        staged = (
            StagedKernel(tuple(kernels.values()), stage.arguments)
            for kernels, stage in zip(found, split.stages, strict=True)
        )
        return OperatorKernel(tuple(staged), split.scratch, scheduled.packings, scheduled)

    def _schedule(self, func: tirx.PrimFunc, constants: frozenset[int]) -> Scheduled:
        """As records have it, else as the back end would."""
        backend, choices = self.backend, self.tuned(func, constants)
        if choices and backend.takes_schedules:
            return backend.schedule_beside(func, choices, self.vdevice)
        if choices and backend.tuner and (made := backend.tuner.together(choices)) is not None:
            return made
        return backend.schedule(func, constants, self.vdevice, self.winograd_tolerance)

    def _name(self, body: tirx.PrimFunc) -> str:
        """The symbol of a body; structurally equal bodies share one."""
        key = _structure(body)
        if key not in self._body_names:
            self._body_names[key] = f"rtask{len(self.bodies)}"
            self.bodies[self._body_names[key]] = body
        return self._body_names[key]


def _kernel(name: str, stage: Stage, variant: Scheduled, scheduled: Scheduled) -> RKernel:
    return RKernel(
        name,
        stage.num_tiles,
        stage.modes,
        stage.tile_seconds,
        variant.origin,
        variant.tiling,
        stage.footprints,
        scheduled.note,
        _pointers(variant, stage),
    )


def _pointers(scheduled: Scheduled, stage: Stage) -> tuple[int, int] | None:
    """The pointers of a stage that may be the same memory."""
    if scheduled.in_place is None or not {*scheduled.in_place} <= {*stage.arguments}:
        return None
    source, result = map(stage.arguments.index, scheduled.in_place)
    return source, result
