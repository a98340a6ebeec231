"""Measured costs of synchronising vEUs, kept on disk between processes.

Building a model must not take seconds longer now and then, so only :func:`calibrated` measures.
Everything else takes what it left in the cache, or the defaults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar, get_args

from tvm_rammer.backend.cpu.host.processor import host_cpu
from tvm_rammer.machine.cache import CacheFile
from tvm_rammer.machine.topology import Distance, PairCosts, topology_of
from tvm_rammer.machine.vdevice import DEFAULT_MEMORY, MemoryCosts, VDevice
from tvm_rammer.typed_json import read_as

#: Raised when the measuring changes, so that older results are not used.
FORMAT_VERSION = 2

_MEASURE_SECONDS = 60.0

T = TypeVar("T")

# Between two sockets it is under a microsecond; more means that a worker lost its core meanwhile.
_PLAUSIBLE_POINT_TO_POINT = 5e-6


@dataclass(frozen=True)
class SyncCosts:
    """What synchronising a number of vEUs costs, in seconds, and what their memory does."""

    launch: float
    barrier: float
    point_to_point: float
    memory: MemoryCosts = DEFAULT_MEMORY

    def slowest_signal(self) -> float:
        """Seconds of a signal between two cores, or of a page of data."""
        memory = self.memory
        return max(self.point_to_point, memory.transfer + 4096 * memory.transfer_byte)

    def applied_to(self, vdevice: VDevice) -> VDevice:
        """``vdevice`` with these costs, marked as calibrated."""
        return replace(
            vdevice,
            launch_seconds=self.launch,
            barrier_seconds=self.barrier,
            point_to_point_seconds=self.point_to_point,
            memory=self.memory,
            calibrated=True,
        )


def calibrated(vdevice: VDevice, *, refresh: bool = False) -> VDevice:
    """The device with measured costs, from the cache or by measuring and keeping them (in seconds).

    A device of one core has nothing to measure, and one that is not this machine cannot be: both
    come back with the costs they have.

    Parameters
    ----------
    vdevice : VDevice
        The costs are those of ``vdevice.num_veus`` vEUs, or of the nearest number measured.
    refresh : bool
        Measure again even if the cache knows.
    """
    if not _measurable(vdevice):
        return vdevice
    known = {} if refresh else _load()
    if not known:
        known = _undisturbed(measure(host_cpu().cores))
        if known:
            plain = {str(count): asdict(costs) for count, costs in known.items()}
            _CALIBRATIONS.add({_key(): plain})
    pairs = {} if refresh or vdevice.topology is None else _PAIRS.load().get(_key(), {})
    if not pairs and vdevice.topology is not None:
        pairs = _plausible(measure_pairs(vdevice))
        if pairs:
            _PAIRS.add({_key(): {name: asdict(costs) for name, costs in pairs.items()}})
    return _with_pairs(pairs, _nearest(known, vdevice))


def with_known_costs(vdevice: VDevice) -> VDevice:
    """The device with the costs from the cache if it has any; never measures."""
    if not _measurable(vdevice):
        return vdevice
    pairs = {} if vdevice.topology is None else _PAIRS.load().get(_key(), {})
    return _with_pairs(pairs, _nearest(_load(), vdevice))


def measure(cores: int) -> dict[int, SyncCosts]:
    """Measure the costs for 2, 4, 8, ... and ``cores`` workers.

    This happens in a process of its own, as the pool of a thread cannot be enlarged and idle
    workers keep spinning for a while.

    Returns
    -------
    dict
        From the number of workers to their costs; empty, with a warning, if measuring failed.
    """
    return _measured("synchronisation costs", _parsed, "measure_machine", cores, str(cores))


def measure_pairs(vdevice: VDevice) -> dict[str, PairCosts]:
    """Measure what two CPUs cost each other, by their distance.

    Returns
    -------
    dict
        For each distance that the topology of this machine has; empty, with a warning, if measuring
        failed.
    """
    if vdevice.topology is None:
        return {}
    cpus = host_cpu().in_order
    pairs = [f"{d}={cpus[one]},{cpus[two]}" for d, (one, two) in vdevice.topology.pairs().items()]
    return _measured("costs of distances", _parsed_pairs, "measure_pairs", 2, *pairs)


def _measured(what: str, parse: Callable[[Any], T], module: str, cores: int, *given: str) -> T:
    """What a module of this folder measures; what is parsed from nothing if it fails."""
    try:
        return parse(json.loads(_run_measure(module, cores, *given).splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        cause = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        warnings.warn(f"{what} could not be measured, defaults are used: {cause}", stacklevel=4)
        return parse({})


def _run_measure(module: str, cores: int, *given: str) -> str:
    package_root = str(Path(__file__).parents[2])
    search_path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    with _all_cpus():
        return subprocess.run(
            [sys.executable, "-m", f"tvm_rammer.backend.cpu.host.{module}", *given],
            env={**os.environ, "TVM_NUM_THREADS": str(cores), "PYTHONPATH": search_path},
            capture_output=True,
            text=True,
            timeout=_MEASURE_SECONDS,
            check=True,
        ).stdout


@contextmanager
def _all_cpus() -> Iterator[None]:
    """Let children use all CPUs of this process, even if TVM's pool has pinned the thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, host_cpu().cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _undisturbed(measured: dict[int, SyncCosts]) -> dict[int, SyncCosts]:
    """What was measured, or nothing if other processes took the cores away from the workers."""
    slowest = max((costs.slowest_signal() for costs in measured.values()), default=0.0)
    if slowest <= _PLAUSIBLE_POINT_TO_POINT:
        return measured
    warnings.warn(
        f"other programs keep the cores busy (a signal between two took {slowest * 1e6:.0f} us): "
        "default synchronisation costs are used, and nothing is kept",
        stacklevel=3,
    )
    return {}


def _plausible(pairs: dict[str, PairCosts]) -> dict[str, PairCosts]:
    """What was measured of pairs of CPUs, or nothing if other processes took them away."""
    as_costs = {
        count: SyncCosts(0.0, 0.0, pair.point_to_point, _memory_of(pair))
        for count, pair in enumerate(pairs.values())
    }
    return pairs if _undisturbed(as_costs) else {}


def _memory_of(pair: PairCosts) -> MemoryCosts:
    return MemoryCosts(pair.transfer, pair.transfer_byte)


def _with_pairs(pairs: Mapping[str, PairCosts], vdevice: VDevice) -> VDevice:
    """The device with the costs of pairs of its CPUs; what was not measured follows from others."""
    known = vdevice.topology
    if known is None:
        return vdevice
    memory = vdevice.memory
    near = pairs.get("complex") or PairCosts(
        vdevice.point_to_point_seconds, memory.transfer, memory.transfer_byte
    )
    derived = topology_of(known.cores, known.complexes, known.sockets, near) or known
    return replace(
        vdevice,
        point_to_point_seconds=near.point_to_point,
        memory=replace(memory, transfer=near.transfer, transfer_byte=near.transfer_byte),
        topology=replace(
            derived,
            core=pairs.get("core", derived.core),
            socket=pairs.get("socket", derived.socket),
            machine=pairs.get("machine", derived.machine),
        ),
    )


def _measurable(vdevice: VDevice) -> bool:
    return vdevice.host and host_cpu().cores > 1


def _nearest(known: dict[int, SyncCosts], vdevice: VDevice) -> VDevice:
    """Apply the costs of the fewest workers that are enough, or of the most there are."""
    if not known:
        return vdevice
    enough = [count for count in known if count >= vdevice.num_veus]
    return known[min(enough, default=max(known))].applied_to(vdevice)


def _load() -> dict[int, SyncCosts]:
    stored: dict[str, SyncCosts] = _CALIBRATIONS.load().get(_key(), {})
    return {int(count): costs for count, costs in stored.items()}


def _parsed(costs: Any) -> dict[int, SyncCosts]:
    parsed: dict[str, SyncCosts] = read_as(_KIND, costs)
    _check(parsed)
    return {int(count): each for count, each in parsed.items()}


def _check(costs: Mapping[str, SyncCosts]) -> None:
    for count, each in costs.items():
        if not count.isdecimal():
            raise ValueError(f"are costs of {count!r} workers")
        if not all(0 < cost < 1 for cost in (each.launch, each.barrier, each.point_to_point)):
            raise ValueError(f"are no costs of synchronising: {each}")
        memory = each.memory
        numbers = (memory.transfer, memory.transfer_byte, memory.core_bandwidth, memory.bandwidth)
        if not all(0 <= number < 1e15 for number in numbers) or min(numbers[2:]) < 1e6:
            raise ValueError(f"are no costs of memory: {memory}")


def _parsed_pairs(costs: Any) -> dict[str, PairCosts]:
    parsed: dict[str, PairCosts] = read_as(_PAIR_KIND, costs)
    _check_pairs(parsed)
    return parsed


def _check_pairs(pairs: Mapping[str, PairCosts]) -> None:
    for name, pair in pairs.items():
        if name not in get_args(Distance):
            raise ValueError(f"are costs of the distance {name!r}")
        if not all(0 <= cost < 1 for cost in vars(pair).values()):
            raise ValueError(f"are no costs of two vEUs: {pair}")


_KIND = dict[str, SyncCosts]
_CALIBRATIONS = CacheFile("calibrations.json", _KIND, _check)
_PAIR_KIND = dict[str, PairCosts]
_PAIRS = CacheFile("calibration_pairs.json", _PAIR_KIND, _check_pairs)


def _key() -> str:
    """All that a measurement depends on."""
    host = host_cpu()
    return json.dumps(
        {
            "cpu": host.model,
            "cores": host.cores,
            "threads": host.threads,
            "tvm": metadata.version("apache-tvm"),
            "format": FORMAT_VERSION,
        }
    )
