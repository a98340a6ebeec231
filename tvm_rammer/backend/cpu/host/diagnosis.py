"""Looks at everything on this machine that makes co-scheduled programs wrong or slow."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from tvm_rammer._environment import import_problem, tvm_ffi_problem
from tvm_rammer.backend.cpu.host.calibrate import calibrated
from tvm_rammer.backend.cpu.host.cpu_target import host_target, vdevice_of
from tvm_rammer.backend.cpu.host.pool import default_pool_size, requested_workers
from tvm_rammer.backend.cpu.host.processor import host_cpu
from tvm_rammer.backend.protocol import Finding
from tvm_rammer.machine.cache import cache_directory
from tvm_rammer.machine.target import target_text
from tvm_rammer.units import counted, duration, size


def diagnose() -> list[Finding]:
    """Check Python, TVM, the CPU and what may be used of it, costs, compiler and cache.

    Takes some seconds the first time, as it measures the synchronisation costs. Never raises: a
    check that fails is a finding.
    """
    return [finding for topic, check in _CHECKS for finding in _findings(topic, check)]


def _findings(topic: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:
        if import_problem(error) is not None:
            return []  # the finding about TVM says it
        lines = str(error).strip().splitlines()
        cause = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        return [Finding(topic, cause, "bad", "put right what the message says")]


def _python() -> Iterator[Finding]:
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    advice = "" if supported else "use Python 3.10 to 3.13"
    yield Finding("Python", platform.python_version(), "ok" if supported else "warn", advice)


def _tvm() -> Iterator[Finding]:
    version = _installed("apache-tvm")
    if version is None:
        yield Finding("TVM", "not installed", "bad", 'pip install "apache-tvm==0.27.*"')
    elif version.split(".")[:2] != ["0", "27"]:
        yield Finding("TVM", version, "bad", 'pip install "apache-tvm==0.27.*"')
    else:
        try:
            import tvm  # noqa: F401
        except Exception as error:
            problem = import_problem(error)
            yield Finding("TVM", version, "bad", problem or f"{type(error).__name__}: {error}")
        else:
            yield Finding("TVM", version)


def _tvm_ffi() -> Iterator[Finding]:
    version = _installed("apache-tvm-ffi") or "not installed"
    problem = tvm_ffi_problem()
    yield Finding("tvm-ffi", version, "bad" if problem else "ok", problem or "")


def _cores() -> Iterator[Finding]:
    host = host_cpu()
    yield Finding("CPU", host.model)
    smt = f", {len(host.cpus)} hardware threads" if len(host.cpus) > len(host.siblings) else ""
    yield Finding(
        "cores",
        f"{host.cores} usable{smt}",
        "ok" if host.cores > 1 else "warn",
        "" if host.cores > 1 else "one core runs one operator at a time: nothing to co-schedule",
    )


def _affinity() -> Iterator[Finding]:
    host = host_cpu()
    there = os.cpu_count() or len(host.cpus)
    limited = len(host.cpus) < there
    yield Finding(
        "affinity",
        f"{len(host.cpus)} of {there} CPUs",
        "warn" if limited else "ok",
        "started with fewer CPUs (taskset, cpuset or a parent's pin): start it with more"
        if limited
        else "",
    )


def _quota() -> Iterator[Finding]:
    host = host_cpu()
    if host.quota is None:
        yield Finding("CPU quota", "none")
        return
    limits = host.quota < len(host.siblings)
    advice = "the control group allows fewer cores than there are: raise its CPU limit"
    yield Finding(
        "CPU quota",
        f"{host.quota:g} cores",
        "warn" if limits else "ok",
        advice if limits else "",
    )


def _thread_pool() -> Iterator[Finding]:
    host, wish, default = host_cpu(), requested_workers(), default_pool_size()
    if wish is not None:
        limited = wish < host.cores
        advice = f"unset TVM_NUM_THREADS to use all {host.cores} cores" if limited else ""
        value = f"{counted(wish, 'worker')} (TVM_NUM_THREADS)"
        yield Finding("thread pool", value, "warn" if limited else "ok", advice)
        return
    short = default < host.cores
    advice = (
        f"TVM's default is half of the hardware threads, or OMP_NUM_THREADS: GraphModule makes it "
        f"{host.cores}, other programs need TVM_NUM_THREADS={host.cores}"
    )
    yield Finding(
        "thread pool",
        f"{counted(default, 'worker')} by default for {counted(host.cores, 'core')}",
        "warn" if short else "ok",
        advice if short else "",
    )


def _caches() -> Iterator[Finding]:
    host, vdevice = host_cpu(), vdevice_of()
    sizes = (vdevice.l1_bytes, vdevice.l2_bytes, vdevice.l3_bytes)
    value = ", ".join(f"L{level} {size(nbytes)}" for level, nbytes in enumerate(sizes, 1))
    if host.l1_bytes and host.l2_bytes:
        yield Finding("caches", value)
    else:
        yield Finding("caches", f"{value} (guessed)", "warn", "the system tells no sizes in /sys")


def _vectors() -> Iterator[Finding]:
    vdevice = vdevice_of()
    width = f"{vdevice.vector_bytes} bytes x {vdevice.vector_registers} registers"
    yield Finding("target", target_text(host_target()))
    yield Finding("vectors", f"{width}; {', '.join(vdevice.features)}")


def _costs() -> Iterator[Finding]:
    vdevice = calibrated(vdevice_of())
    microseconds = (
        f"launch {duration(vdevice.launch_seconds)}, barrier {duration(vdevice.barrier_seconds)}, "
        f"point-to-point {duration(vdevice.point_to_point_seconds)}"
    )
    if vdevice.calibrated or vdevice.cores == 1:
        yield Finding("synchronisation", microseconds)
    else:
        advice = "plans use the defaults: run doctor again when the machine is idle"
        yield Finding("synchronisation", f"{microseconds} (not measured)", "warn", advice)


def _distances() -> Iterator[Finding]:
    vdevice = calibrated(vdevice_of())
    if vdevice.topology is None:
        return
    signals = {"complex": vdevice.point_to_point_seconds} | {
        distance: costs.point_to_point for distance, costs in vdevice.topology.far().items()
    }
    names = {"core": "in a core", "complex": "in a cache", "socket": "in a socket"}
    places = (
        f"{counted(vdevice.topology.count_sockets(vdevice.threads), 'socket')}, last-level caches: "
        f"{vdevice.topology.count_complexes(vdevice.threads)}"
    )
    told = [
        f"{names.get(distance, 'between sockets')} {duration(signals[distance])}"
        for distance in sorted(signals, key=lambda distance: signals[distance])
    ]
    yield Finding("topology", f"{places}; a signal {', '.join(told)}")


def _compiler() -> Iterator[Finding]:
    from tvm.support import cc

    compiler = cc.get_cc()
    if compiler:
        yield Finding("C++ compiler", compiler)
    else:
        advice = "building and running here works; export_library needs one: install g++"
        yield Finding("C++ compiler", "none", "warn", advice)


def _cache_folder() -> Iterator[Finding]:
    folder = cache_directory()
    if _writable(folder):
        yield Finding("cache", str(folder))
    else:
        advice = "measurements are repeated in every process: set TVM_RAMMER_CACHE_DIR"
        yield Finding("cache", f"{folder} (cannot be written)", "warn", advice)


def _writable(folder: Path) -> bool:
    """Whether files can be put into ``folder``, which need not exist yet."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


_CHECKS: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("Python", _python),
    ("TVM", _tvm),
    ("tvm-ffi", _tvm_ffi),
    ("cores", _cores),
    ("affinity", _affinity),
    ("CPU quota", _quota),
    ("thread pool", _thread_pool),
    ("caches", _caches),
    ("vectors", _vectors),
    ("synchronisation", _costs),
    ("topology", _distances),
    ("C++ compiler", _compiler),
    ("cache", _cache_folder),
)
