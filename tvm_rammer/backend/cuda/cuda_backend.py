"""The back end for GPUs of NVIDIA: what the protocol asks, by way of the modules beside this file.

They are imported when they are asked for: ``tvm-rammer doctor`` looks at machines on which TVM does
not work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_rammer.backend.protocol import (
    WAIT_LIMIT,
    Backend,
    EncodedPlan,
    KernelCompiler,
    Stamps,
)
from tvm_rammer.errors import DeviceError

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

    from tvm_rammer.backend.signature import RegionSignature
    from tvm_rammer.kernel.scheduled import Choice, Scheduled
    from tvm_rammer.kernel.split import SplitKernel
    from tvm_rammer.machine import VDevice
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.schedule.costs import CostModel


@dataclass(frozen=True)
class BlockCompiler(KernelCompiler):
    """Compiles the bodies of one model, all at once: nvcc takes them as one text."""

    target: tvm.target.Target

    def module(
        self, bodies: Mapping[str, tirx.PrimFunc], regions: Sequence[RegionSignature]
    ) -> tvm.runtime.Module:
        """What exports an entry for each region."""
        from tvm_rammer.backend.cuda.arch_target import LIMITS
        from tvm_rammer.backend.cuda.codegen.region_kernels import build_regions

        return build_regions(bodies, regions, self.target, LIMITS)


class CudaBackend(Backend):
    """GPUs of NVIDIA; see :class:`~tvm_rammer.backend.protocol.Backend`."""

    name = "cuda"
    kinds = ("cuda",)
    forms = ("program", "wavefront", "per-op")
    exports = True
    takes_schedules = True
    taps_first = True

    #: What a wave of small blocks has done by the time that another wave would begin.
    apart = 1 << 15

    @property
    def stamps(self) -> Stamps:
        from tvm_rammer.backend.cuda import block_stamps

        return block_stamps

    @property
    def vector_bytes(self) -> int:
        from tvm_rammer.backend.cuda.codegen.region_kernels import ALIGNMENT

        return ALIGNMENT

    def resolve(self, target: tvm.target.Target | None) -> tvm.target.Target:
        from tvm_rammer.backend.cuda.arch_target import resolve_target

        return resolve_target(target)

    def vdevice(
        self, target: tvm.target.Target, num_veus: int | None = None, oversubscribe: bool = False
    ) -> VDevice:
        from tvm_rammer.backend.cuda.arch_target import vdevice_of

        return vdevice_of(target, num_veus)

    def costs(self, vdevice: VDevice) -> CostModel:
        from tvm_rammer.backend.cuda.arch_target import costs_of

        return costs_of(vdevice.features[0])

    def schedule(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> Scheduled:
        from tvm_rammer.backend.cuda.arch_target import LIMITS
        from tvm_rammer.backend.cuda.schedules import schedule

        return schedule(func, vdevice, LIMITS)

    def alone(self, scheduled: Scheduled) -> Scheduled:
        return list(scheduled.variants())[-1]

    def schedule_beside(
        self, func: tirx.PrimFunc, given: Sequence[Choice], vdevice: VDevice
    ) -> Scheduled:
        from tvm_rammer.backend.cuda.arch_target import LIMITS
        from tvm_rammer.backend.cuda.schedules import schedule

        return schedule(func, vdevice, LIMITS, given)

    def refusal(self, func: tirx.PrimFunc, vdevice: VDevice) -> str | None:
        from tvm_rammer.backend.cuda.arch_target import LIMITS
        from tvm_rammer.backend.cuda.schedules import planning_problem

        return planning_problem(func, vdevice, LIMITS)

    def split(self, func: tirx.PrimFunc, vdevice: VDevice) -> SplitKernel:
        from tvm_rammer.backend.cuda.arch_target import LIMITS, target_of
        from tvm_rammer.backend.cuda.made_stages import made_stages

        return made_stages(func, target_of(vdevice.features[0]), LIMITS).split

    def compiler(self, target: tvm.target.Target) -> BlockCompiler:
        return BlockCompiler(target)

    def encode(
        self,
        program: RProgram,
        signature: RegionSignature,
        ids: Mapping[str, int],
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
    ) -> EncodedPlan:
        from tvm_rammer.backend.cuda.codegen.plan_table import arena_bytes, plan_table
        from tvm_rammer.backend.plan_rows import BaseLayout

        table = plan_table(program, BaseLayout.of(signature), ids, by_wave, wait_limit)
        return EncodedPlan(table, arena_bytes(program))

    def build_operators(
        self, functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
    ) -> list[tvm.runtime.Module]:
        from tvm_rammer.backend.cuda.codegen.host_and_device import build_operators

        return build_operators(functions, target)

    def passes_for_vm(self) -> list[tvm.transform.Pass]:
        from tvm_rammer.backend.cuda.launch_unplanned import LaunchUnplanned

        return [LaunchUnplanned()]

    def complete(self, module: tvm.runtime.Module, target: tvm.target.Target) -> None:
        from tvm_rammer.backend.cuda.codegen.machine_code import embed_machine_code

        embed_machine_code(module, str(target.attrs["arch"]))

    def device(self, given: Any) -> Any:
        import tvm

        device = given or tvm.cuda(0)
        if not isinstance(device, tvm.runtime.Device):
            raise DeviceError(f"{device!r} is no device; give create() tvm.cuda(0), or nothing")
        if device.dlpack_device_type() != tvm.cuda(0).dlpack_device_type():
            raise DeviceError(f"a library for CUDA does not run on {device}; give it tvm.cuda(0)")
        if not device.exist:
            raise DeviceError(
                f"there is no {device} here: CUDA's driver finds none, or is not installed"
            )
        return device

    def check_device(self, device: Any, target: tvm.target.Target) -> None:
        from tvm_rammer.backend.cuda.arch_target import check_gpu

        check_gpu(device, str(target.attrs["arch"]))

    def adopt(self, module: tvm.runtime.Module) -> None:
        """Nothing of this process matters to a GPU."""
