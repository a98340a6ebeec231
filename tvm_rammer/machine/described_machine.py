"""Machines that plans can be made for on any other: each is a small JSON file of sourced numbers.

Some real ones are in ``described/``. Kernels take what they take on this machine; how many cores
there are, which of them share what, and how far data travel is the described one's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

from tvm_rammer.errors import InputError
from tvm_rammer.machine.topology import DEFAULT_LATENCIES, Latencies, PairCosts, topology_of
from tvm_rammer.machine.vdevice import MemoryCosts, VDevice
from tvm_rammer.typed_json import FieldError, parse_json, read_as

_FOLDER = Path(__file__).parent / "described"

#: A plan is a list for each vEU: more than any machine has would only take long.
_MOST_THREADS = 1 << 14
#: What takes longer from core to core was meant in other units than seconds.
_LONGEST_LATENCY = 1e-4


@dataclass(frozen=True)
class SourcedCount:
    """A whole number, and where it is from."""

    value: int
    source: str


@dataclass(frozen=True)
class SourcedNumber:
    """A number, and where it is from."""

    value: float
    source: str


@dataclass(frozen=True)
class SourcedLatencies:
    """The fields of :class:`~.topology.Latencies`."""

    complex: SourcedNumber
    core: SourcedNumber | None = None
    socket: SourcedNumber | None = None
    machine: SourcedNumber | None = None


@dataclass(frozen=True)
class DescribedMachine:
    """A machine as its file describes it: a complex is the cores that share the last-level cache.

    Attributes
    ----------
    name : str
        For people.
    sockets, complexes_per_socket, cores_per_complex, threads_per_core : SourcedCount
    l1_bytes, l2_bytes, l3_bytes : SourcedCount
        Data caches of a core, and the last-level cache of a complex.
    l3_bandwidth : SourcedNumber
        Bytes per second that the cores of a complex together draw from its cache.
    core_memory_bandwidth, memory_bandwidth : SourcedNumber
        Bytes per second from memory, of one core alone and of a socket.
    latency : SourcedLatencies
        Seconds from core to core.
    """

    name: str
    sockets: SourcedCount
    complexes_per_socket: SourcedCount
    cores_per_complex: SourcedCount
    threads_per_core: SourcedCount
    l1_bytes: SourcedCount
    l2_bytes: SourcedCount
    l3_bytes: SourcedCount
    l3_bandwidth: SourcedNumber
    core_memory_bandwidth: SourcedNumber
    memory_bandwidth: SourcedNumber
    latency: SourcedLatencies

    @property
    def cores(self) -> int:
        """Cores of the whole machine."""
        return self.sockets.value * self.complexes_per_socket.value * self.cores_per_complex.value

    @property
    def threads(self) -> int:
        """Hardware threads of the whole machine."""
        return self.cores * self.threads_per_core.value

    def applied_to(self, vdevice: VDevice) -> VDevice:
        """The described machine with the cores of ``vdevice``, one vEU for each.

        What two cores of a complex cost each other follows from what those of ``vdevice`` do, which
        counts as a machine of :data:`~.topology.DEFAULT_LATENCIES`.
        """
        latencies = self._latencies()
        memory = vdevice.memory
        near = PairCosts(
            vdevice.point_to_point_seconds, memory.transfer, memory.transfer_byte
        ).after(DEFAULT_LATENCIES.complex, latencies.complex)
        # A thread of every core, complex by complex, then the next one of every core.
        cores = [*range(self.cores)] * self.threads_per_core.value
        complexes = [core // self.cores_per_complex.value for core in cores]
        sockets = [number // self.complexes_per_socket.value for number in complexes]
        return replace(
            vdevice,
            name=self.name,
            num_veus=self.cores,
            cores=self.cores,
            threads=self.threads,
            l1_bytes=self.l1_bytes.value,
            l2_bytes=self.l2_bytes.value,
            l3_bytes=self.l3_bytes.value,
            point_to_point_seconds=near.point_to_point,
            memory=MemoryCosts(
                near.transfer,
                near.transfer_byte,
                self.core_memory_bandwidth.value,
                self.memory_bandwidth.value,
            ),
            speeds=replace(vdevice.speeds, shared_bandwidth=self.l3_bandwidth.value),
            topology=topology_of(cores, complexes, sockets, near, latencies),
            calibrated=False,
            host=False,
        )

    def _latencies(self) -> Latencies:
        known = {f.name: getattr(self.latency, f.name) for f in fields(self.latency)}
        return Latencies(**{name: each.value for name, each in known.items() if each is not None})


def described_machines() -> dict[str, Path]:
    """The files of the machines that are described here, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.json"))}


def described_machine(name: str) -> DescribedMachine:
    """A machine that is described here, or in a file.

    Parameters
    ----------
    name : str
        One of :func:`described_machines`, or the path of a file.

    Raises
    ------
    InputError
        If there is none, or the file describes no machine.
    """
    known = described_machines()
    path = known.get(name, Path(name))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no machine {name!r} is described, and no file of that name can be read: give one of "
            f"{', '.join(known)}, or a file like theirs"
        ) from error
    return read_machine(text, name)


def read_machine(text: str, where: str) -> DescribedMachine:
    """The machine that a text in JSON describes.

    Parameters
    ----------
    text : str
    where : str
        What messages call it.

    Raises
    ------
    InputError
        If it is something else, lacks something, or contradicts itself.
    """
    try:
        machine: DescribedMachine = read_as(DescribedMachine, parse_json(text))
        _check_numbers(machine)
        _check_caches(machine)
        _check_latencies(machine)
    except FieldError as error:
        raise InputError(f"{where}: {error.within('the description')}") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return machine


def _check_numbers(machine: DescribedMachine) -> None:
    for name, sourced in [*vars(machine).items(), *_latencies_by_name(machine)]:
        if not isinstance(sourced, SourcedCount | SourcedNumber):
            continue
        if sourced.value <= 0:
            raise ValueError(f"{name} is {sourced.value}; it must be above 0")
        if not sourced.source.strip():
            raise ValueError(f"{name} has no source; say where the number is from")
    if machine.threads > _MOST_THREADS:
        raise ValueError(
            f"it has {machine.threads:,} hardware threads; describe at most {_MOST_THREADS:,}"
        )


def _check_caches(machine: DescribedMachine) -> None:
    _check_ascending(
        [(name, getattr(machine, name).value) for name in ("l1_bytes", "l2_bytes", "l3_bytes")],
        "a cache behind another is no smaller",
    )
    _check_ascending(
        [
            (name, getattr(machine, name).value)
            for name in ("core_memory_bandwidth", "memory_bandwidth")
        ],
        "a socket draws no less than one of its cores",
    )


def _check_latencies(machine: DescribedMachine) -> None:
    counts = {
        "core": ("threads_per_core", machine.threads_per_core),
        "socket": ("complexes_per_socket", machine.complexes_per_socket),
        "machine": ("sockets", machine.sockets),
    }
    for distance, (name, count) in counts.items():
        stated = getattr(machine.latency, distance) is not None
        if count.value > 1 and not stated:
            raise ValueError(f"{name} is {count.value}, but there is no latency.{distance}; add it")
        if count.value == 1 and stated:
            raise ValueError(
                f"{name} is 1, but there is a latency.{distance}; correct one of the two"
            )
    latencies = [(name, each.value) for name, each in _latencies_by_name(machine)]
    for name, seconds in latencies:
        if seconds > _LONGEST_LATENCY:
            raise ValueError(f"{name} is {seconds:g}; give it in seconds")
    _check_ascending(latencies, "what is farther takes no less")


def _latencies_by_name(machine: DescribedMachine) -> list[tuple[str, SourcedNumber]]:
    """What is stated, the nearest first."""
    stated = [
        (f"latency.{name}", getattr(machine.latency, name))
        for name in ("core", "complex", "socket", "machine")
    ]
    return [(name, sourced) for name, sourced in stated if sourced is not None]


def _check_ascending(values: list[tuple[str, float]], rule: str) -> None:
    for (name, value), (farther, other) in pairwise(values):
        if other < value:
            raise ValueError(f"{farther} {other:g} is less than {name} {value:g}; {rule}")
