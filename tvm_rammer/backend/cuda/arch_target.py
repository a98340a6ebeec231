"""From a target for CUDA to a vDevice: one vEU for every block that stays resident."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tvm_rammer.backend.cuda.devices import (
    ARCHITECTURES,
    WARP_THREADS,
    architecture_of,
    usual_gpu,
)
from tvm_rammer.backend.cuda.made_stages import Limits
from tvm_rammer.backend.cuda.occupancy import resident_blocks
from tvm_rammer.backend.cuda.sm_time import gpu_costs
from tvm_rammer.errors import DeviceError
from tvm_rammer.machine.vdevice import MemoryCosts, VDevice
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.units import listed

#: What a resident block has, and how many an SM runs beside each other.
LIMITS = Limits(threads=256, shared_bytes=40 << 10, blocks_per_sm=2)
#: What TVM takes where a target names no architecture, and there is no GPU.
_TVMS_OWN = "sm_50"
_EXAMPLE = '{"kind": "cuda", "arch": "sm_90"}'
#: What schedules go by.
_ATTRIBUTES = {
    "max_num_threads": LIMITS.threads,
    "max_threads_per_block": LIMITS.threads,
    "max_shared_memory_per_block": LIMITS.shared_bytes,
    "thread_warp_size": WARP_THREADS,
}


def resolve_target(target: Any) -> Any:
    """A target that this package generates code for, with the limits of resident blocks.

    Raises
    ------
    DeviceError
        When it names no architecture, or one that is not known.
    """
    import tvm

    if target is None:
        raise DeviceError(f"which GPU to compile for is not said: give a target such as {_EXAMPLE}")
    arch = str(target.attrs.get("arch", _TVMS_OWN))
    if arch == _TVMS_OWN:
        raise DeviceError(
            "the target names no architecture of a GPU, or sm_50, which is too old: give one such "
            f"as {_EXAMPLE}; known are {listed(ARCHITECTURES)}"
        )
    usual_gpu(arch)
    described = {**dict(target.export()), **_ATTRIBUTES}
    host = described.pop("host", None) or "llvm"
    return tvm.target.Target(described).with_host(tvm.target.Target(host))


@cache
def target_of(arch: str) -> Any:
    """The target of an architecture, for code of the device."""
    import tvm

    return tvm.target.Target({"kind": "cuda", "arch": arch, **_ATTRIBUTES})


def vdevice_of(target: Any, num_veus: int | None = None) -> VDevice:
    """The GPU behind a target that was resolved.

    Parameters
    ----------
    target : Target
    num_veus : int, optional
        vEUs of the plan; as many blocks as stay resident if not given.
    """
    arch = str(target.attrs["arch"])
    gpu, found = usual_gpu(arch), architecture_of(arch)
    costs = costs_of(arch)
    blocks = _resident_blocks(arch)
    veus = gpu.sms * blocks
    device = VDevice(
        name=f"{gpu.name} ({arch})",
        num_veus=veus,
        kind="cuda",
        cores=gpu.sms,
        threads=veus,
        l1_bytes=found.shared_bytes // blocks,
        l2_bytes=found.shared_bytes // blocks,
        l3_bytes=gpu.l2_bytes,
        features=(arch,),
        launch_seconds=costs.launch,
        barrier_seconds=costs.barrier,
        point_to_point_seconds=costs.point_to_point,
        memory=MemoryCosts(0.0, 0.0, costs.core_memory_bandwidth, costs.memory_bandwidth),
    )
    return device if num_veus is None else device.with_veus(num_veus)


def costs_of(arch: str) -> CostModel:
    """What a plan costs besides its tiles, on the usual device of an architecture."""
    return gpu_costs(usual_gpu(arch), _resident_blocks(arch))


def check_gpu(device: Any, arch: str) -> None:
    """Refuse a GPU that does not run machine code for an architecture.

    Code runs on later devices of the same generation too, that for a variant such as ``sm_90a`` on
    none but its own.

    Raises
    ------
    DeviceError
    """
    if (version := device.compute_version) is None:
        return  # no GPU tells no version
    major, minor = map(int, str(version).split("."))
    number = int(re.sub(r"\D", "", arch))
    later = minor >= number % 10 if arch[-1].isdigit() else minor == number % 10
    if major != number // 10 or not later:
        raise DeviceError(
            f"the library was compiled for {arch}, and {device} is sm_{major}{minor}: build it "
            f'with {{"kind": "cuda", "arch": "sm_{major}{minor}"}}'
        )


def _resident_blocks(arch: str) -> int:
    """Blocks that an SM runs beside each other, with all the registers that they may have."""
    return resident_blocks(arch, LIMITS.threads, LIMITS.shared_bytes, LIMITS.blocks_per_sm)
