"""What the rest of the package asks of a back end, and the records that pass between them.

A back end is all that knows a kind of device: how an operator is computed there, what its code is
called with, how a plan is encoded, and what a thread needs before it may run one. Everything else
speaks to this protocol alone. What a device cannot do is ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm import tirx

    from tvm_rammer.backend.signature import RegionSignature
    from tvm_rammer.kernel.constraints import Vectors
    from tvm_rammer.kernel.operands import KernelUse, Timing
    from tvm_rammer.kernel.scheduled import Choice, Scheduled
    from tvm_rammer.kernel.split import SplitKernel
    from tvm_rammer.machine import VDevice
    from tvm_rammer.machine.ceilings import Ceilings
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.schedule.costs import CostModel
    from tvm_rammer.schedule.timeline import Timeline

#: Errors up to this that Winograd's algorithm brings are taken, unless the user says otherwise: far
#: below what float16 would cost.
DEFAULT_TOLERANCE = 5e-5
#: Seconds after which a wait gives the run up, unless the user says otherwise.
WAIT_LIMIT = 60.0
#: The longest limit, in whole seconds: back ends may count milliseconds in 31 bits.
MAX_WAIT_LIMIT = 2_000_000
#: Symbol of the guard in every library that has one.
GUARD = "tvm_rammer_guard"

Level = Literal["ok", "warn", "bad"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at on a machine.

    Attributes
    ----------
    topic : str
        What was looked at.
    value : str
        What was found.
    level : {"ok", "warn", "bad"}
        Fine; works, but something is lost; does not work.
    advice : str
        What to do about it; empty if there is nothing to do.
    """

    topic: str
    value: str
    level: Level = "ok"
    advice: str = ""


@dataclass(frozen=True)
class EncodedPlan:
    """A plan as a region's kernel takes it.

    Attributes
    ----------
    table : ndarray
        Of int32; its shape, too, is the back end's own: a host cannot read what is on its device.
    arena_bytes : int
        Of the tensor that the kernel takes as its arena.
    """

    table: np.ndarray
    arena_bytes: int


@dataclass(frozen=True)
class Examined:
    """A kernel by itself: the vectors in its code, and its time, or None on another machine."""

    vectors: Vectors
    timing: Timing | None


class KernelCompiler(Protocol):
    """Compiles rTask bodies, each once, while others are still being scheduled.

    The mapping of bodies that it is given only grows.
    """

    def start(self, bodies: Mapping[str, tirx.PrimFunc], complete: bool = False) -> None:
        """Start to compile what no further body will change; ``complete``: there will be none."""
        return

    def module(
        self, bodies: Mapping[str, tirx.PrimFunc], regions: Sequence[RegionSignature]
    ) -> tvm.runtime.Module:
        """What exports a packed function for each region (and, by wave, for each wavefront)."""
        ...

    def seconds(self, bodies: Mapping[str, tirx.PrimFunc]) -> dict[str, float]:
        """What each body that is compiled took of a core; nothing of those that nobody timed."""
        return {}


class Stopwatch(Protocol):
    """Times kernels and plans on the device itself."""

    def obstacle(self, vdevice: VDevice) -> str:
        """Why plans for a device cannot be timed in this process; empty if they can."""
        ...

    def kernels(
        self,
        module: tvm.runtime.Module,
        signature: RegionSignature,
        ids: Mapping[str, int],
        kernels: Iterable[KernelUse],
        constants: np.ndarray,
        cache_bytes: int,
    ) -> dict[str, float]:
        """Seconds that a tile of each kernel takes one vEU, by the kernel's name.

        Parameters
        ----------
        module : tvm.runtime.Module
            In program form, of a :class:`KernelCompiler`; it may have other regions too.
        signature : RegionSignature
            The region.
        ids : mapping of str to int
            The dispatcher's number of every body.
        kernels : iterable of KernelUse
            Of the region.
        constants : ndarray
            The region's pool of constants.
        cache_bytes : int
            Size of the second-level cache.
        """
        ...

    def plans(
        self,
        module: tvm.runtime.Module,
        signature: RegionSignature,
        ids: Mapping[str, int],
        plans: Sequence[tuple[RProgram, bool]],
        constants: np.ndarray,
        race: bool = False,
    ) -> list[list[float]]:
        """Seconds of a run of each plan, in every round that it took part in, from the first on.

        Parameters
        ----------
        module, signature, ids, constants
            As in :meth:`kernels`.
        plans : sequence of (RProgram, bool)
            Verified, for the same number of vEUs; and whether every wave is a launch of its own.
        race : bool
            Where runs take so long that there are only the fewest rounds, a plan that was slower
            than the first one in any of them is given up: no confidence interval would be below it
            any more.
        """
        ...


class Stamps(Protocol):
    """Lets a kernel write down when each rTask starts and stops."""

    def table(self, table: np.ndarray, arena_bytes: int) -> np.ndarray:
        """The same plan, written down as it runs."""
        ...

    def arena_bytes(self, program: RProgram, arena_bytes: int) -> int:
        """Bytes of the arena tensor with stamps."""
        ...

    def timeline(
        self, program: RProgram, table: np.ndarray, arena: np.ndarray, arena_bytes: int
    ) -> Timeline:
        """What the last run wrote."""
        ...


class Trial(Protocol):
    """Compiled choices of one operator on a device, with operands for each."""

    def outputs(self, number: int) -> list[np.ndarray]:
        """What a choice computes, by its number here."""
        ...

    def seconds(self, number: int, runs: int) -> list[float]:
        """What all tiles of a choice take one vEU, in so many runs one after the other."""
        ...


class Tuner(Protocol):
    """Lists the ways to compute an operator, and runs them by themselves.

    Compiling and running happen in processes of their own, which may die of it.
    """

    def choices(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> list[Choice]:
        """All ways to schedule a PrimFunc, the one of :meth:`Backend.schedule` first.

        Empty where there is no choice.
        """
        ...

    def likely(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> list[str]:
        """Texts of those :meth:`choices` that are worth trying first, the likeliest first."""
        ...

    def together(self, choices: Sequence[Choice]) -> Scheduled | None:
        """The first choice, with those that can stand in for it as finer ones.

        ``None`` if it cannot be made.
        """
        ...

    def alike(self, choice: Choice) -> str:
        """Choices of an operator for which this is the same can stand in for each other."""
        ...

    def compile(self, choices: Sequence[Choice], target: tvm.target.Target) -> tvm.runtime.Module:
        """What :meth:`trial` runs; TuningError if a choice cannot be made."""
        ...

    def trial(
        self,
        module: tvm.runtime.Module,
        choices: Sequence[Choice],
        inputs: Sequence[np.ndarray],
        cache_bytes: int,
        device: Any = None,
    ) -> Trial:
        """The choices that were compiled, on a device, or on this machine's.

        The inputs are those of the operator before it is scheduled, in order; ``cache_bytes`` is
        what operands must not be found in.
        """
        ...


class Binding:
    """A loaded library in this process; this one needs nothing of the threads that run it."""

    def __init__(self, module: tvm.runtime.Module) -> None:
        self._module = module

    def prepare(self) -> int:
        """Give the calling thread its workers; 0 if it cannot run, and another thread must."""
        return 1

    def elsewhere(self, work: Callable[[], T]) -> T:
        """Call a function in a thread that can run."""
        return work()

    def kernel(self, symbol: str) -> Callable[..., Any]:
        """The kernel of a region."""
        return self._module.get_function(symbol, query_imports=True)


class Backend(Protocol):
    """All that knows a kind of device; who inherits it says only what the device can do.

    Attributes
    ----------
    name : str
        What users and :attr:`~tvm_rammer.machine.VDevice.kind` call it.
    kinds : tuple of str
        The kinds of targets that it serves unasked; one that has none must be asked for by name.
    forms : tuple of str
        Those of :data:`tvm_rammer.options.FORMS` that it can make kernels in.
    few_rows : int
        A product with so many rows or fewer takes as long as reading its weights.
    apart : int
        Elements of a result up to which products stay apart that meet in it: to wait for each other
        takes longer than an operator more.
    taps_first : bool
        Whether weights of convolutions by channel have their channels last.
    vector_bytes : int
        What kernels load and store at once: every buffer begins at a multiple of it.
    rules : tuple of str
        Names of its own rules; those from outside compete with them, where there are any.
    exports : bool
        Whether its libraries can be written to files.
    stopwatch : Stopwatch or None
        Times kernels and plans.
    stamps : Stamps or None
        Profiles runs.
    tuner : Tuner or None
        Offers choices to the tuner.
    takes_schedules : bool
        Schedules of TVM's own tuner can be run beside others.
    """

    @property
    def name(self) -> str: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...
    @property
    def forms(self) -> tuple[str, ...]: ...
    @property
    def few_rows(self) -> int:
        return 0

    @property
    def apart(self) -> int:
        return 0

    @property
    def taps_first(self) -> bool:
        return False

    def most_neighbours(self, vdevice: VDevice) -> int:
        """How many neighbouring products of integers, 4 of bytes or 2 of 16 bits, are added at
        once, faster than of float32; 1 if none.
        """
        return 1

    def short_floats(self, vdevice: VDevice) -> tuple[str, ...]:
        """The floats of 16 bits, the best first, that are widened as fast as they are read."""
        return ()

    @property
    def vector_bytes(self) -> int:
        return 1

    @property
    def rules(self) -> tuple[str, ...]:
        return ()

    @property
    def exports(self) -> bool:
        return False

    @property
    def stopwatch(self) -> Stopwatch | None:
        return None

    @property
    def stamps(self) -> Stamps | None:
        return None

    @property
    def tuner(self) -> Tuner | None:
        return None

    @property
    def takes_schedules(self) -> bool:
        return False

    def resolve(self, target: tvm.target.Target | None) -> tvm.target.Target:
        """The target to compile for, checked; this machine's if none is given."""
        ...

    def vdevice(
        self, target: tvm.target.Target, num_veus: int | None = None, oversubscribe: bool = False
    ) -> VDevice:
        """The device behind a target that was resolved; takes milliseconds."""
        ...

    def costs(self, vdevice: VDevice) -> CostModel:
        """What a plan costs on a device besides its tiles."""
        from tvm_rammer.schedule.costs import CostModel

        return CostModel.of(vdevice)

    def schedule(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> Scheduled:
        """Schedule a legalized, fused PrimFunc; ``constants`` are parameters that may be packed."""
        ...

    def alone(self, scheduled: Scheduled) -> Scheduled:
        """Of a schedule and its finer ones that which ends first with the device for itself."""
        return scheduled

    def open_kernel(self, func: tirx.PrimFunc, vdevice: VDevice) -> tirx.PrimFunc | None:
        """A scheduled function in place of one whose sizes each run decides, where there is one.

        It takes the same tensors, and no sizes beside them.
        """
        return None

    def open_loops(self, func: tirx.PrimFunc, vdevice: VDevice) -> tirx.PrimFunc | None:
        """The same for one that cannot be cut into blocks of a known size."""
        return None

    def schedule_beside(
        self, func: tirx.PrimFunc, given: Sequence[Choice], vdevice: VDevice
    ) -> Scheduled:
        """Schedule a PrimFunc, with the first of the given schedules that can be run among others.

        Asked only where :attr:`takes_schedules`.
        """
        raise NotImplementedError

    def refusal(self, func: tirx.PrimFunc, vdevice: VDevice) -> str | None:
        """Why a PrimFunc cannot be an operator of a plan, in a few words; None if it can."""
        return None

    def split(self, func: tirx.PrimFunc, vdevice: VDevice) -> SplitKernel:
        """The stages of a scheduled PrimFunc as rTask bodies, with what their tiles cost."""
        ...

    def compiler(self, target: tvm.target.Target) -> KernelCompiler:
        """What compiles the bodies of one model."""
        ...

    def encode(
        self,
        program: RProgram,
        signature: RegionSignature,
        ids: Mapping[str, int],
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
    ) -> EncodedPlan:
        """A verified program for a region's kernel; ``ids`` are the numbers of the bodies."""
        ...

    def build_operators(
        self, functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
    ) -> list[tvm.runtime.Module]:
        """Scheduled PrimFuncs as packed functions, for operators outside of regions."""
        ...

    def passes_for_vm(self) -> list[tvm.transform.Pass]:
        """What follows TVM's own lowering for the Relax VM."""
        return []

    def guard(self, target: tvm.target.Target, vdevice: VDevice) -> tvm.runtime.Module | None:
        """What exports :data:`GUARD`, which every entry calls first."""
        return None

    def complete(self, module: tvm.runtime.Module, target: tvm.target.Target) -> None:
        """Put into a module, before it is written to a file, what it needs where it is loaded."""

    def device(self, given: Any) -> Any:
        """The device to run on: ``given``, checked, or the one that libraries run on."""
        ...

    def check_device(self, device: Any, target: tvm.target.Target) -> None:
        """Raise a DeviceError if what is compiled for a target does not run on a device."""

    def adopt(self, module: tvm.runtime.Module) -> None:
        """Check that a library that was just loaded can run here, and tell it of this process."""
        ...

    def bind(self, module: tvm.runtime.Module, num_veus: int) -> Binding:
        """Prepare a library for an instance.

        Raises
        ------
        LibraryError
            When it cannot run here.
        """
        return Binding(module)

    def ceilings(self, target: tvm.target.Target, vdevice: VDevice) -> Ceilings | None:
        """What one vEU reaches at best; None where that is not known."""
        return None

    def examine(
        self,
        uses: Sequence[KernelUse],
        bodies: Mapping[str, tirx.PrimFunc],
        target: tvm.target.Target,
        vdevice: VDevice,
    ) -> list[Examined]:
        """Compile kernels by themselves, look at their code, and time them where possible."""
        from tvm_rammer.kernel.constraints import Vectors

        return [Examined(Vectors(), None) for _ in uses]

    def diagnose(self, calibrate: bool = False) -> list[Finding]:
        """What makes programs wrong or slow here; ``calibrate`` measures costs again before."""
        return []
