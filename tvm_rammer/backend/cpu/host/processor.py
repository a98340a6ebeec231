"""Finds out which part of this machine's CPU the process may use, and what its caches are."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path

from tvm_rammer._environment import CPUS_AT_IMPORT
from tvm_rammer.machine.topology import PairCosts, Topology, topology_of


@dataclass(frozen=True)
class HostCPU:
    """The CPU of this machine, as far as this process may use it.

    Attributes
    ----------
    model : str
        The name that the CPU gives itself.
    cpus : tuple of int
        Logical CPUs in the affinity mask.
    siblings : tuple of tuple of int
        The same CPUs grouped by physical core (more than one per group with SMT).
    complexes, sockets : tuple of tuple of int
        The same CPUs grouped by the last-level cache that they share, and by socket; one group
        where the system does not tell.
    quota : float or None
        CPU seconds per second that the control group grants; None without a limit.
    l1_bytes, l2_bytes, l3_bytes : int or None
        Data caches of one core and the shared one; None where the system does not tell.
    """

    model: str
    cpus: tuple[int, ...]
    siblings: tuple[tuple[int, ...], ...]
    complexes: tuple[tuple[int, ...], ...] = ()
    sockets: tuple[tuple[int, ...], ...] = ()
    quota: float | None = None
    l1_bytes: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None

    @property
    def cores(self) -> int:
        """Physical cores that can be kept busy: of the mask, and within the quota."""
        return self._within_quota(len(self.siblings))

    @property
    def threads(self) -> int:
        """Hardware threads that can be kept busy."""
        return self._within_quota(len(self.cpus))

    @cached_property
    def in_order(self) -> tuple[int, ...]:
        """The CPUs as vEUs take them: one of each core, complex by complex, then the next of each.

        Sockets one after the other.
        """
        turn = {cpu: turn for group in self.siblings for turn, cpu in enumerate(group)}
        return tuple(sorted(self.cpus, key=lambda cpu: (turn[cpu], self._places[cpu], cpu)))

    def topology(self, near: PairCosts) -> Topology | None:
        """Where the CPUs lie, in order, with costs that follow from those within a complex."""
        places = [self._places[cpu] for cpu in self.in_order]
        # Whatever the system says, a part of two wholes is two parts.
        sockets, complexes, cores = (
            _numbered([place[:depth] for place in places]) for depth in (1, 2, 3)
        )
        return topology_of(cores, complexes, sockets, near)

    @cached_property
    def _places(self) -> dict[int, tuple[int, ...]]:
        """The numbers of the socket, the complex and the core of each CPU."""
        levels = [
            {cpu: number for number, group in enumerate(groups) for cpu in group}
            for groups in (self.sockets, self.complexes, self.siblings)
        ]
        return {cpu: tuple(level.get(cpu, 0) for level in levels) for cpu in self.cpus}

    def _within_quota(self, count: int) -> int:
        # A fraction of a core is no core: a vEU that is throttled makes all others wait.
        return count if self.quota is None else max(1, min(count, int(self.quota)))


@lru_cache(maxsize=1)
def host_cpu() -> HostCPU:
    """The CPU of this machine; looked up once per process."""
    return detect_cpu()


def detect_cpu(root: str | Path = "/", cpus: Iterable[int] | None = None) -> HostCPU:
    """Look the CPU up under ``/proc`` and ``/sys``; what is missing there gets a plain guess.

    Parameters
    ----------
    root : path
        Where the file system starts.
    cpus : iterable of int, optional
        Logical CPUs to use; those that this process was allowed at import if not given.
    """
    top = Path(root)
    allowed = CPUS_AT_IMPORT if cpus is None else tuple(sorted(cpus))
    devices = top / "sys/devices/system/cpu"
    caches = _cache_sizes(devices / f"cpu{allowed[0]}" / "cache")
    siblings = _sibling_groups(devices, allowed)
    return HostCPU(
        model=_model_name(top / "proc/cpuinfo"),
        cpus=allowed,
        siblings=siblings,
        complexes=_groups(allowed, siblings, partial(_last_cache, devices)),
        sockets=_groups(allowed, siblings, partial(_socket, devices)),
        quota=cgroup_quota(top),
        l1_bytes=caches.get(1),
        l2_bytes=caches.get(2),
        l3_bytes=caches.get(3),
    )


def cgroup_quota(root: Path) -> float | None:
    """The tightest CPU quota, in cores, of this process's control groups (version 1 or 2)."""
    quotas = [quota for group in _cgroup_folders(root) if (quota := _group_quota(group))]
    return min(quotas, default=None)


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """The folders of our control groups and of all groups above them.

    In a container the path in ``/proc/self/cgroup`` may be the host's and missing here; the walk up
    to the mount point then still finds the limit of the container itself.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in (mounts / controllers, mounts / "cpu") if controllers else (mounts,):
            group = mount / path.lstrip("/")
            yield group
            yield from (parent for parent in group.parents if parent.is_relative_to(mount))


def _group_quota(group: Path) -> float | None:
    quota, period = [*_read(group / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota = _read(group / "cpu.cfs_quota_us").strip()
        period = _read(group / "cpu.cfs_period_us").strip()
    # Without a limit it is "max" in version 2 and "-1" in version 1: neither is a number of digits.
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _sibling_groups(devices: Path, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    groups: dict[tuple[int, ...], None] = {}
    for cpu in cpus:
        siblings = _cpu_list(_read(devices / f"cpu{cpu}" / "topology/thread_siblings_list"))
        groups[tuple(sorted({cpu, *siblings} & set(cpus)))] = None
    return tuple(groups)


def _groups(
    cpus: tuple[int, ...], siblings: tuple[tuple[int, ...], ...], name: Callable[[int], str]
) -> tuple[tuple[int, ...], ...]:
    """CPUs of one name together; all of them where the names say nothing.

    Virtual machines often give every core a cache or a socket of its own.
    """
    groups: dict[str, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(name(cpu), []).append(cpu)
    if "" in groups or len(groups) == len(siblings):
        return (cpus,)
    return tuple(map(tuple, groups.values()))


def _last_cache(devices: Path, cpu: int) -> str:
    """The CPUs that share the last-level cache of one."""
    shared = {
        _read(entry / "level").strip(): _read(entry / "shared_cpu_list").strip()
        for entry in (devices / f"cpu{cpu}" / "cache").glob("index*")
    }
    return shared[max(shared)] if shared else ""


def _socket(devices: Path, cpu: int) -> str:
    return _read(devices / f"cpu{cpu}" / "topology/physical_package_id").strip()


def _numbered(names: list[tuple[int, ...]]) -> list[int]:
    """The same names as numbers from 0, as they come."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def _cpu_list(text: str) -> list[int]:
    """The numbers in a kernel list such as ``0-1,8``; none if it is not one."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Bytes of the data cache of each level."""
    sizes: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        level = _read(entry / "level").strip()
        size = _byte_size(_read(entry / "size").strip())
        if level.isdigit() and size and _read(entry / "type").strip() != "Instruction":
            sizes[int(level)] = size
    return sizes


def _byte_size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
    digits = text[:-1] if scale else text
    return int(digits) * (scale or 1) if digits.isdigit() else 0


def _model_name(cpuinfo: Path) -> str:
    fields: dict[str, str] = {}
    for line in _read(cpuinfo).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:
        return f"ARM implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return platform.machine() or "unknown CPU"


def _read(path: Path) -> str:
    """The text of a file; nothing if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
