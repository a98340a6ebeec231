"""Where the vEUs of a machine lie: cores, the complexes that share a cache, sockets; and what it
costs to reach from one to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tvm_rammer.errors import InputError

#: How far two vEUs are from each other: hardware threads of one core, cores that share the
#: last-level cache (a core complex), complexes of one socket, sockets.
Distance = Literal["core", "complex", "socket", "machine"]


@dataclass(frozen=True)
class PairCosts:
    """What two vEUs cost each other, in seconds.

    Attributes
    ----------
    point_to_point : float
        From a release store on one to the acquire load on the other that sees it.
    transfer, transfer_byte : float
        Until the first bytes arrive that the other one has written, and how much longer each byte
        takes than one of the last-level cache.
    """

    point_to_point: float
    transfer: float
    transfer_byte: float

    def after(self, nearer: float, farther: float) -> PairCosts:
        """The costs where a line takes ``farther`` seconds from core to core, not ``nearer``.

        What begins takes as much longer. Bytes take so many times longer, as a core has no more
        lines under way at once (Little's law).
        """
        longer = farther - nearer
        return PairCosts(
            max(0.0, self.point_to_point + longer),
            max(0.0, self.transfer + longer),
            self.transfer_byte * farther / nearer,
        )


@dataclass(frozen=True)
class Latencies:
    """Seconds that a line of cache takes from one core to another, by how far they are.

    Half of the time of a ball that both play to each other. None where no two are so far.
    """

    complex: float
    core: float | None = None
    socket: float | None = None
    machine: float | None = None


#: Where nothing is known: those of two EPYC 7R13 (github.com/nviennot/core-to-core-latency).
DEFAULT_LATENCIES = Latencies(complex=23e-9, core=9.8e-9, socket=107e-9, machine=197e-9)


@dataclass(frozen=True)
class Topology:
    """Where each vEU lies, and what those cost each other that do not share a complex alone.

    vEU n runs on hardware thread n, or where there are fewer from the first one on again. The costs
    within a complex are those of the :class:`~.vdevice.VDevice`.

    Attributes
    ----------
    cores, complexes, sockets : tuple of int
        Of each hardware thread the core, the core complex and the socket, all numbered over the
        whole machine.
    core, socket, machine : PairCosts or None
        Between threads of one core, complexes of one socket, and sockets; None where no two are.

    Raises
    ------
    InputError
        If it contradicts itself.
    """

    cores: tuple[int, ...]
    complexes: tuple[int, ...]
    sockets: tuple[int, ...]
    core: PairCosts | None = None
    socket: PairCosts | None = None
    machine: PairCosts | None = None

    def __post_init__(self) -> None:
        counts = [len(each) for each in (self.cores, self.complexes, self.sockets)]
        if not counts[0] or len(set(counts)) > 1:
            raise InputError(
                "a topology has {} cores, {} complexes and {} sockets; give one of each for every "
                "hardware thread, and at least one thread".format(*counts)
            )
        _check_inside("core", self.cores, "complex", self.complexes)
        _check_inside("complex", self.complexes, "socket", self.sockets)
        for distance in self.pairs():
            if distance not in ("complex", *self.far()):
                raise InputError(f"a topology has no costs of the distance {distance!r}; give them")

    def distance(self, veu: int, other: int) -> Distance:
        """How far two vEUs are from each other."""
        one, two = veu % len(self.cores), other % len(self.cores)
        if self.sockets[one] != self.sockets[two]:
            return "machine"
        if self.complexes[one] != self.complexes[two]:
            return "socket"
        return "core" if self.cores[one] == self.cores[two] else "complex"

    def far(self) -> dict[Distance, PairCosts]:
        """The costs of every distance but a complex's."""
        named: list[tuple[Distance, PairCosts | None]] = [
            ("core", self.core),
            ("socket", self.socket),
            ("machine", self.machine),
        ]
        return {distance: costs for distance, costs in named if costs is not None}

    def pairs(self) -> dict[Distance, tuple[int, int]]:
        """The first two hardware threads of every distance that there is."""
        found: dict[Distance, tuple[int, int]] = {}
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for thread in range(len(self.cores)):
            groups["core", self.cores[thread]].append(thread)
            groups["complex", self.complexes[thread]].append(thread)
            groups["socket", self.sockets[thread]].append(thread)
            groups["machine", 0].append(thread)
        for first, *others in groups.values():
            for other in others:
                found.setdefault(self.distance(first, other), (first, other))
        return found

    def count_complexes(self, num_veus: int) -> int:
        """Complexes that so many vEUs lie in."""
        return len(set(self.complexes[:num_veus]))

    def count_sockets(self, num_veus: int) -> int:
        """Sockets that so many vEUs lie in."""
        return len(set(self.sockets[:num_veus]))

    def changed(self, change: Callable[[PairCosts], PairCosts]) -> Topology:
        """The same with other costs of every distance."""
        far = {distance: change(costs) for distance, costs in self.far().items()}
        return replace(
            self, core=far.get("core"), socket=far.get("socket"), machine=far.get("machine")
        )


def topology_of(
    cores: Sequence[int],
    complexes: Sequence[int],
    sockets: Sequence[int],
    near: PairCosts,
    latencies: Latencies = DEFAULT_LATENCIES,
) -> Topology | None:
    """The topology of some hardware threads, with costs after latencies from core to core.

    Threads of one core share all caches: they have nothing to transfer.

    Parameters
    ----------
    cores, complexes, sockets : sequence of int
        As of a :class:`Topology`.
    near : PairCosts
        What two cores of a complex cost each other.
    latencies : Latencies

    Returns
    -------
    Topology or None
        None if every thread has a core of its own and all share one complex: nothing is far.
    """
    if len(set(complexes)) == 1 and len(set(cores)) == len(cores):
        return None
    far = {
        name: near.after(latencies.complex, seconds)
        for name in ("core", "socket", "machine")
        if (seconds := getattr(latencies, name)) is not None
    }
    if "core" in far:
        far["core"] = replace(far["core"], transfer=0.0, transfer_byte=0.0)
    return Topology(tuple(cores), tuple(complexes), tuple(sockets), **far)


def _check_inside(part: str, parts: Sequence[int], whole: str, wholes: Sequence[int]) -> None:
    homes: dict[int, int] = {}
    for number, home in zip(parts, wholes, strict=True):
        if homes.setdefault(number, home) != home:
            raise InputError(
                f"{part} {number} lies in {whole} {homes[number]} and in {whole} {home}; "
                f"give every {part} one {whole}"
            )
