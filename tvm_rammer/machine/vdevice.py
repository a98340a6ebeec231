"""What a device is to the scheduler: vEUs, caches, vectors, and the costs of synchronising."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from tvm_rammer.errors import DeviceError, InputError
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS, Speeds
from tvm_rammer.machine.topology import Topology

#: More vEUs than this many per hardware thread are refused even when oversubscription is asked for.
MAX_OVERSUBSCRIPTION = 4
#: Vector registers of the instruction sets that have most.
MOST_VECTOR_REGISTERS = 32

#: Costs in seconds where nothing was measured: those of two cores of an AMD Zen 4 server. A
#: fork-join costs 1.3 us while the workers still spin, and 6 to 17 us once they sleep.
DEFAULT_LAUNCH_SECONDS = 1.3e-6
DEFAULT_BARRIER_SECONDS = 0.3e-6
DEFAULT_POINT_TO_POINT_SECONDS = 0.07e-6


@dataclass(frozen=True)
class MemoryCosts:
    """What data costs that is not in the caches of the core that needs it.

    The defaults are those of two cores of an AMD Zen 4 server.

    Attributes
    ----------
    transfer : float
        Seconds until the first bytes arrive that another core of the complex has just written.
    transfer_byte : float
        Seconds that a byte takes longer that another core has just written, or that it holds and
        gives up to be written.
    core_bandwidth, bandwidth : float
        Bytes per second from memory: of one core alone, and of all of a socket together.
    missing : tuple of (int, float)
        Bytes that are read in turn, over and over, and the share of them that the last-level cache
        has lost when their turn comes again, by growing bytes. Nothing if it was not measured: then
        the cache keeps what fits.
    """

    transfer: float = 0.1e-6
    transfer_byte: float = 25e-12
    core_bandwidth: float = 30e9
    bandwidth: float = 30e9
    missing: tuple[tuple[int, float], ...] = ()


DEFAULT_MEMORY = MemoryCosts()


class OversubscriptionWarning(UserWarning):
    """A plan has more vEUs than the device has hardware threads: it is correct, but slow."""


@dataclass(frozen=True)
class VDevice:
    """A device as Rammer sees it: ``num_veus`` equal virtual execution units.

    Attributes
    ----------
    name : str
        For people, e.g. ``"AMD EPYC (znver4)"``.
    num_veus : int
        Virtual execution units that a plan for this device has.
    kind : str
        The name of the back end that serves it.
    cores : int
        Physical cores that a process may use: the default for ``num_veus``.
    threads : int
        Hardware threads that a process may use: the most vEUs that run at the same time.
    vector_bytes, vector_registers : int
        Width and number of the vector registers.
    l1_bytes, l2_bytes : int
        First-level data cache and second-level cache of one core.
    l3_bytes : int
        Last-level cache, which the cores of a complex share.
    features : tuple of str
        What generated code may use, in LLVM's names.
    launch_seconds : float
        From the caller to all vEUs and back (a fork-join), the workers not yet asleep.
    barrier_seconds : float
        One barrier of all vEUs inside a launch.
    point_to_point_seconds : float
        From a release store on one vEU to the acquire load on another of its complex that sees it.
    memory : MemoryCosts
        What data costs that is not in a core's own caches.
    speeds : Speeds
        How fast it computes, and what its caches give.
    topology : Topology or None
        Where vEUs lie, and what is farther than a complex; None where all are of one complex.
    calibrated : bool
        Whether the costs of synchronising and of memory were measured on this device, or are the
        defaults.
    host : bool
        Whether it is the machine that this process runs on.
    """

    name: str
    num_veus: int = 1
    kind: str = "cpu"
    cores: int = 1
    threads: int = 1
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    features: tuple[str, ...] = ()
    launch_seconds: float = DEFAULT_LAUNCH_SECONDS
    barrier_seconds: float = DEFAULT_BARRIER_SECONDS
    point_to_point_seconds: float = DEFAULT_POINT_TO_POINT_SECONDS
    memory: MemoryCosts = DEFAULT_MEMORY
    speeds: Speeds = DEFAULT_SPEEDS
    topology: Topology | None = None
    calibrated: bool = False
    host: bool = False

    def __post_init__(self) -> None:
        positive_count("num_veus", self.num_veus)

    def with_veus(self, num_veus: int, *, oversubscribe: bool = False) -> VDevice:
        """The same device with another number of vEUs.

        Parameters
        ----------
        num_veus : int
            At least 1, at most the device's hardware threads.
        oversubscribe : bool
            Allow up to :data:`MAX_OVERSUBSCRIPTION` vEUs per hardware thread, with an
            :class:`OversubscriptionWarning`. Such a plan computes the same results, but vEUs wait
            for others that do not run: it is for tests, and for looking at plans.

        Returns
        -------
        VDevice
            The costs stay those of the old number of vEUs.
        """
        wanted = positive_count("num_veus", num_veus)
        if wanted > self.threads:
            self._check_oversubscription(wanted, oversubscribe)
        return replace(self, num_veus=wanted)

    def _check_oversubscription(self, wanted: int, oversubscribe: bool) -> None:
        have = f"num_veus is {wanted}, but {self.name} has {_threads(self.threads)} to run them"
        limit = MAX_OVERSUBSCRIPTION * self.threads
        if not oversubscribe:
            raise DeviceError(
                f"{have}: ask for at most {self.threads}, or pass oversubscribe=True "
                f"for a correct but slow plan of up to {limit}"
            )
        if wanted > limit:
            raise DeviceError(f"{have}: ask for at most {limit}, even with oversubscribe=True")
        warnings.warn(
            f"{have}: the plan is correct, but slow", OversubscriptionWarning, stacklevel=3
        )


#: Descriptions hold integers of 64 bits.
_TOO_MANY = 1 << 63


def positive_count(name: str, value: Any) -> int:
    """``value`` as an int of at least 1, or an :class:`InputError` that calls it ``name``."""
    try:
        count = index(value)
    except TypeError:
        count = 0
    if count < 1 or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1")
    if count >= _TOO_MANY:
        raise InputError(f"{name} is {value!r}: it must be less than {_TOO_MANY:,}")
    return count


def _threads(count: int) -> str:
    return f"{count} hardware thread" + ("s" if count != 1 else "")
