"""What a rule returns: a scheduled PrimFunc whose outer parallel loops are the rTask tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
from tvm import te, tirx

from tvm_rammer.machine import VDevice
from tvm_rammer.tensors import empty


class Packing(ABC):
    """How a constant parameter is laid out anew at compile time; frozen and hashable."""

    @abstractmethod
    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that the kernel declares, for an array of the given shape."""

    @abstractmethod
    def fill(self, packed: np.ndarray, array: np.ndarray) -> None:
        """Write the packed array; ``packed`` is compact and row-major."""

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The packed array."""
        packed = empty(self.shape(array.shape), array.dtype)
        self.fill(packed, array)
        return packed


class TensorPacking(Packing):
    """A packing that can also be computed by an operator of a model."""

    @abstractmethod
    def tensor(self, weight: te.Tensor) -> te.Tensor:
        """The packed array as TVM computes it."""


@dataclass(frozen=True)
class Scheduled:
    """A PrimFunc whose root loops of kind *parallel* are tile loops.

    Attributes
    ----------
    func : tirx.PrimFunc
        The scheduled function; parameters in ``packings`` have their packed shape.
    origin : str
        Name of the rule.
    tiling : str
        The tile in words.
    packings : tuple of (int, Packing)
        Constant parameters that must be packed before they are passed.
    finer : Scheduled, optional
        The same in more and smaller tiles, which take longer together: for devices that this tiling
        leaves idle. It has the same parameters and packings, the same stages and the same buffers
        between them.
    note : str, optional
        What a user should know besides: which record of a tuner is not used, and why.
    in_place : tuple of (int, int), optional
        A parameter, and the result that may lie in its memory: it is read by element as it is
        written.
    """

    func: tirx.PrimFunc
    origin: str
    tiling: str
    packings: tuple[tuple[int, Packing], ...] = ()
    finer: Scheduled | None = None
    note: str | None = None
    in_place: tuple[int, int] | None = None

    @classmethod
    def of_variants(
        cls,
        variants: Sequence[tuple[tirx.PrimFunc, str]],
        origin: str,
        packings: tuple[tuple[int, Packing], ...],
    ) -> Scheduled:
        """Scheduled functions and their tiles in words, each finer than the one before."""
        made: Scheduled | None = None
        for func, tiling in reversed(variants):
            made = cls(func, origin, tiling, packings, made)
        assert made is not None
        return made

    def variants(self) -> Iterator[Scheduled]:
        """This one and all finer ones."""
        yield self
        if self.finer is not None:
            yield from self.finer.variants()


#: What the choice is called that is made without records of the tuner.
UNTUNED = "untuned"


@dataclass(frozen=True)
class Choice:
    """One of the ways to schedule a PrimFunc.

    Attributes
    ----------
    text : str
        The rule and its configuration: what records of the tuner name it by.
    emit : callable
        Makes it.
    rounding : tuple
        Choices for which this is the same give the same bits.
    """

    text: str
    emit: Callable[[], Scheduled]
    rounding: tuple[str | int, ...] = ()


class Rule(Protocol):
    """A rule schedules the PrimFuncs that are its own and answers ``None`` to all others."""

    @property
    def name(self) -> str: ...

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        """Schedule ``func``.

        Parameters
        ----------
        func : tirx.PrimFunc
            A legalized, fused, unscheduled function.
        constants : frozenset of int
            Positions of the parameters that are constants wherever the function is called; only
            they may be packed.
        vdevice : VDevice
            Vector width and registers are taken from here.
        """
        ...


D = TypeVar("D")
C = TypeVar("C")


class Template(ABC, Generic[D, C]):
    """A rule that describes an operator, lists its configurations and emits any of them.

    Descriptions ``D`` and configurations ``C`` are the template's own, best frozen dataclasses.
    """

    name: str

    def apply(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Scheduled | None:
        """The usual configurations together; parameters as for :meth:`Rule.apply`."""
        found = self.match(func, constants, vdevice)
        together: Scheduled | None = None
        if found is not None:
            for configuration in reversed(self.usual(found)):
                together = replace(self.emit(found, configuration), finer=together)
        return together

    @abstractmethod
    def match(self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice) -> D | None:
        """What is its own, described; ``None`` for all others. Parameters as for ``Rule.apply``."""

    @abstractmethod
    def space(self, found: D) -> Sequence[C]:
        """All configurations; the most efficient one first, unless :meth:`usual` names it."""

    @abstractmethod
    def emit(self, found: D, configuration: C) -> Scheduled:
        """The operator in a configuration."""

    def usual(self, found: D) -> Sequence[C]:
        """The configurations that a build takes without records of the tuner.

        The most efficient one, then finer ones that can stand in for it; none if the operator had
        better be left to other rules.
        """
        return self.space(found)[:1]

    def text(self, configuration: C) -> str:
        """What records of the tuner know a configuration by."""
        return str(configuration)

    def rounding(self, configuration: C) -> tuple[str | int, ...]:
        """Configurations for which this is the same give the same bits."""
        return (self.text(configuration),)

    def choice(self, found: D, configuration: C) -> Choice:
        """A configuration as one of the ways to schedule what was found."""
        make = partial(self.emit, found, configuration)
        rounding = (self.name, *self.rounding(configuration))
        return Choice(f"{self.name}: {self.text(configuration)}", make, rounding)

    def choices(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> Iterator[Choice]:
        """All configurations, nothing for what is not its own; parameters as for ``match``."""
        found = self.match(func, constants, vdevice)
        if found is not None:
            yield from (self.choice(found, configuration) for configuration in self.space(found))
