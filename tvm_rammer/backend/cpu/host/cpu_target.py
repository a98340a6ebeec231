"""From a target for processors to a vDevice: what LLVM and this machine say about it."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from tvm_rammer.backend.cpu.host.calibrate import with_known_costs
from tvm_rammer.backend.cpu.host.processor import host_cpu
from tvm_rammer.errors import DeviceError
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS, Speeds
from tvm_rammer.machine.target import architecture, triple_of
from tvm_rammer.machine.topology import PairCosts
from tvm_rammer.machine.vdevice import VDevice

SUPPORTED_ARCHITECTURES = ("x86_64", "aarch64")
#: A plan is a list for each vEU: more than any machine has would only take long.
MOST_VEUS = 1 << 14

#: (feature, bytes of a vector register, vector registers); the first that a target has counts.
VECTOR_UNITS = (("avx512f", 64, 32), ("avx", 32, 16), ("sse2", 16, 16), ("neon", 16, 32))

#: Processors that multiply two vectors of 64 bytes in a cycle, as many as of narrower ones: Zen 5's
#: servers and desktops (AMD, Software Optimization Guide for the Zen 5 Microarchitecture, 2024,
#: section 2.11) and Intel's servers (Intel 64 and IA-32 Architectures Optimization Reference
#: Manual, sections 2.2 to 2.6; a few of the smallest Xeons have one unit).
FULL_WIDTH = (
    *("znver5", "skylake-avx512", "cascadelake", "cooperlake", "icelake-server"),
    *("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"),
)

#: The features that a :class:`VDevice` lists, in LLVM's names.
FEATURES = (
    *("sse2", "sse4.2", "avx", "avx2", "fma", "f16c", "avxvnni"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "amx-tile"),
    *("neon", "fullfp16", "dotprod", "i8mm", "bf16", "sve", "sve2"),
)

# What LLVM would generate code for; a virtual machine may hide it although its CPU model has it.
_HIDEABLE = (
    *("sse", "avx", "amx", "fma", "f16c", "bmi", "lzcnt", "popcnt", "movbe", "gfni", "xop", "tbm"),
    "sve",
)


@lru_cache(maxsize=1)
def host_target() -> Any:
    """The ``tvm.target.Target`` of this machine: its CPU, its features, the cores we may use."""
    from tvm.target import Target, codegen

    described: dict[str, Any] = {
        "kind": "llvm",
        "mtriple": codegen.llvm_get_system_triple(),
        "mcpu": codegen.llvm_get_system_cpu(),
        "num-cores": host_cpu().cores,
    }
    if hidden := _hidden_features(Target(described)):
        described["mattr"] = [f"-{feature}" for feature in hidden]
    return Target(described)


def resolve_target(target: Any = None) -> Any:
    """A target whose architecture and CPU this package generates code for; None is this machine.

    Parameters
    ----------
    target : tvm.target.Target, optional
        Of kind ``llvm``.
    """
    if target is None:
        return host_target()
    _check(target)
    return target


def target_features(target: Any) -> tuple[str, ...]:
    """Those of :data:`FEATURES` that code for a ``tvm.target.Target`` may use."""
    # target_has_features, as llvm_get_vector_width says 512 bits for every x86.
    from tvm.target import codegen

    return tuple(feature for feature in FEATURES if codegen.target_has_features(feature, target))


def vdevice_of(
    target: Any = None, num_veus: int | None = None, oversubscribe: bool = False
) -> VDevice:
    """The processor behind a target; takes milliseconds, as nothing is measured.

    The costs of synchronising are those that ``calibrated`` left in the cache if the target is this
    machine, else the defaults.

    Parameters
    ----------
    target : tvm.target.Target, optional
        This machine's if not given.
    num_veus : int, optional
        vEUs of the plan; the cores of the device if not given.
    oversubscribe : bool
        Allow more vEUs than the device has hardware threads (see :meth:`VDevice.with_veus`).
    """
    vdevice = _describe(resolve_target(target))
    if num_veus is not None:
        vdevice = vdevice.with_veus(num_veus, oversubscribe=oversubscribe)
    if vdevice.num_veus > MOST_VEUS:
        raise DeviceError(
            f"{vdevice.num_veus:,} vEUs are more than a plan may have: give the target num-cores "
            f"of at most {MOST_VEUS:,}, or a smaller num_veus"
        )
    return with_known_costs(vdevice)


def _describe(target: Any) -> VDevice:
    mcpu = str(target.attrs.get("mcpu", "generic"))
    features = target_features(target)
    width, registers = next(
        (sizes for feature, *sizes in VECTOR_UNITS if feature in features), (16, 16)
    )
    host = host_cpu()
    cores = int(target.attrs.get("num-cores", host.cores))
    foreign = VDevice(
        name=f"{mcpu} CPU",
        num_veus=cores,
        cores=cores,
        threads=cores,
        vector_bytes=width,
        vector_registers=registers,
        features=features,
        speeds=_speeds(mcpu),
    )
    if cores > host.threads or not _runs_here(target):
        return foreign
    near = PairCosts(
        foreign.point_to_point_seconds, foreign.memory.transfer, foreign.memory.transfer_byte
    )
    return replace(
        foreign,
        name=f"{host.model} ({mcpu})",
        topology=host.topology(near),
        threads=host.threads,
        l1_bytes=host.l1_bytes or foreign.l1_bytes,
        l2_bytes=host.l2_bytes or foreign.l2_bytes,
        l3_bytes=host.l3_bytes or foreign.l3_bytes,
        host=True,
        speeds=_speeds(str(host_target().attrs["mcpu"])),
    )


def _speeds(mcpu: str) -> Speeds:
    """The usual ones; where vectors of all widths take as long, narrow ones gain nothing."""
    if mcpu not in FULL_WIDTH:
        return DEFAULT_SPEEDS
    wide = DEFAULT_SPEEDS.cycles.wide_operation
    cycles = replace(
        DEFAULT_SPEEDS.cycles, narrow_operation=wide, narrow_product=wide, narrow_tap=wide
    )
    return replace(DEFAULT_SPEEDS, cycles=cycles)


def _runs_here(target: Any) -> bool:
    """Whether ``target`` stands for this machine: by name, or as a level that it reaches."""
    host = host_target()
    mcpu = str(target.attrs.get("mcpu", "generic"))
    return (
        architecture(target) == architecture(host)
        and (mcpu in ("generic", host.attrs["mcpu"]) or mcpu.startswith("x86-64"))
        and set(target_features(target)) <= set(target_features(host))
        and not _hidden_features(target)
    )


def _check(target: Any) -> None:
    from tvm.target import Target, codegen

    if (cores := int(target.attrs.get("num-cores", 1))) < 1:
        raise DeviceError(f"num-cores of the target is {cores}: it must be at least 1")
    processor = architecture(target)
    if processor not in SUPPORTED_ARCHITECTURES:
        # LLVM would be asked next, and crashes over an architecture that it does not know.
        raise DeviceError(
            f"architecture {processor!r} of target triple {triple_of(target)!r} is not supported: "
            f"use {' or '.join(SUPPORTED_ARCHITECTURES)}"
        )
    mcpu = target.attrs.get("mcpu")
    if mcpu is None or mcpu == "generic" or codegen.llvm_is_valid_cpu(mcpu, triple_of(target)):
        if processor == "x86_64" and not codegen.target_has_features("64bit", target):
            # LLVM ends the process over it.
            raise DeviceError(
                f"the CPU {mcpu!r} has no 64-bit mode: choose one that has, such as 'x86-64'"
            )
        return
    general = {"kind": "llvm", "mtriple": triple_of(target)}
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(Target(general))]
    similar = ", ".join(map(repr, get_close_matches(mcpu, known)))
    near = f" (near: {similar})" if similar else ""
    raise DeviceError(
        f"LLVM knows no {processor} CPU {mcpu!r}{near}: choose one of {', '.join(known)}"
    )


def _hidden_features(target: Any) -> list[str]:
    """Features that the CPU's name implies and this machine lacks."""
    from tvm import get_global_func

    present = get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    implied = get_global_func("target.llvm_get_cpu_features")(target)
    return sorted(
        str(feature)
        for feature in implied
        if feature.startswith(_HIDEABLE) and feature in present and not present[feature]
    )
