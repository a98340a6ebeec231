"""The back end for processors: what the protocol asks, by way of the folders beside this file.

They are imported when they are asked for: ``tvm-rammer doctor`` looks at machines on which TVM does
not work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm_rammer.backend.protocol import (
    GUARD,
    WAIT_LIMIT,
    Backend,
    EncodedPlan,
    Examined,
    Finding,
    Stamps,
    Stopwatch,
    Tuner,
)
from tvm_rammer.errors import DeviceError

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

    from tvm_rammer.backend.cpu.binding import PoolBinding
    from tvm_rammer.backend.cpu.codegen.region_modules import RegionModules
    from tvm_rammer.backend.signature import RegionSignature
    from tvm_rammer.kernel.operands import KernelUse
    from tvm_rammer.kernel.scheduled import Scheduled
    from tvm_rammer.kernel.split import SplitKernel
    from tvm_rammer.machine import VDevice
    from tvm_rammer.machine.ceilings import Ceilings
    from tvm_rammer.rprogram import RProgram


class CpuBackend(Backend):
    """x86-64 and AArch64 processors; see :class:`~tvm_rammer.backend.protocol.Backend`."""

    name = "cpu"
    kinds = ("llvm",)
    forms = ("program", "wavefront", "per-op")
    exports = True

    @property
    def stopwatch(self) -> Stopwatch:
        from tvm_rammer.backend.cpu import stopwatch

        return stopwatch

    @property
    def stamps(self) -> Stamps:
        from tvm_rammer.backend.cpu.timing import stamps

        return stamps

    @property
    def tuner(self) -> Tuner:
        from tvm_rammer.backend.cpu import tuner

        return tuner

    @property
    def few_rows(self) -> int:
        from tvm_rammer.backend.cpu.templates.reduction_rule import FEW_ROWS

        return FEW_ROWS

    def most_neighbours(self, vdevice: VDevice) -> int:
        from tvm_rammer.backend.cpu.templates.neighbours import most_neighbours

        return most_neighbours(vdevice)

    def short_floats(self, vdevice: VDevice) -> tuple[str, ...]:
        """Those of bfloat16 take a shift more than those that there is an instruction for."""
        has_instruction = {"f16c", "neon"} & set(vdevice.features)
        return ("float16", "bfloat16") if has_instruction else ("bfloat16",)

    @property
    def rules(self) -> tuple[str, ...]:
        from tvm_rammer.backend.cpu.templates.select import rule_names

        return rule_names()

    def resolve(self, target: tvm.target.Target | None) -> tvm.target.Target:
        from tvm_rammer.backend.cpu.host.cpu_target import resolve_target

        return resolve_target(target)

    def vdevice(
        self, target: tvm.target.Target, num_veus: int | None = None, oversubscribe: bool = False
    ) -> VDevice:
        from tvm_rammer.backend.cpu.host.cpu_target import vdevice_of

        return vdevice_of(target, num_veus, oversubscribe)

    def schedule(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> Scheduled:
        from tvm_rammer.backend.cpu.templates.select import schedule

        return schedule(func, constants, vdevice, winograd_tolerance)

    def open_kernel(self, func: tirx.PrimFunc, vdevice: VDevice) -> tirx.PrimFunc | None:
        from tvm_rammer.backend.cpu.templates.open_attention import open_attention

        return open_attention(func, vdevice)

    def open_loops(self, func: tirx.PrimFunc, vdevice: VDevice) -> tirx.PrimFunc | None:
        from tvm_rammer.kernel.open_loops import open_loops
        from tvm_rammer.rprogram import dtype_bytes

        return open_loops(func, vdevice.vector_bytes // dtype_bytes("float32"))

    def split(self, func: tirx.PrimFunc, vdevice: VDevice) -> SplitKernel:
        from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
        from tvm_rammer.kernel.split import split_into_stages

        return split_into_stages(func, partial(tile_seconds, vdevice.speeds))

    def compiler(self, target: tvm.target.Target) -> RegionModules:
        from tvm_rammer.backend.cpu.codegen.region_modules import RegionModules

        return RegionModules(target)

    def encode(
        self,
        program: RProgram,
        signature: RegionSignature,
        ids: Mapping[str, int],
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
    ) -> EncodedPlan:
        from tvm_rammer.backend.cpu.codegen.instruction_table import (
            arena_tensor_bytes,
            instruction_table,
        )
        from tvm_rammer.backend.plan_rows import BaseLayout

        layout = BaseLayout.of(signature)
        table = instruction_table(program, layout, ids, by_wave, wait_limit)
        return EncodedPlan(table, arena_tensor_bytes(program, layout))

    def build_operators(
        self, functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
    ) -> list[tvm.runtime.Module]:
        from tvm_rammer.backend.cpu.codegen.lowering import build_operators

        return build_operators(functions, target)

    def passes_for_vm(self) -> list[tvm.transform.Pass]:
        from tvm_rammer.kernel.lowering.compare_booleans import CompareBooleans

        # Of what has no fixed shapes, and so is left to TVM's own lowering.
        return [CompareBooleans()]

    def guard(self, target: tvm.target.Target, vdevice: VDevice) -> tvm.runtime.Module:
        from tvm_rammer.backend.cpu.codegen.guard import build_guard

        return build_guard(GUARD, target, vdevice.num_veus)

    def device(self, given: Any) -> Any:
        import tvm

        device = given or tvm.cpu()
        if not isinstance(device, tvm.runtime.Device):
            raise DeviceError(f"{device!r} is no device; give create() tvm.cpu(), or nothing")
        if device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
            raise DeviceError(f"a library for CPUs does not run on {device}; give it tvm.cpu()")
        return device

    def adopt(self, module: tvm.runtime.Module) -> None:
        from tvm_rammer.backend.cpu.binding import check_cpu, share_threads

        check_cpu(module)
        share_threads(module)

    def bind(self, module: tvm.runtime.Module, num_veus: int) -> PoolBinding:
        from tvm_rammer.backend.cpu.binding import PoolBinding, check_cpu

        check_cpu(module)
        return PoolBinding(module, num_veus)

    def ceilings(self, target: tvm.target.Target, vdevice: VDevice) -> Ceilings | None:
        from tvm_rammer.backend.cpu.host.measure_ceilings import ceilings

        return ceilings(target, vdevice)

    def examine(
        self,
        uses: Sequence[KernelUse],
        bodies: Mapping[str, tirx.PrimFunc],
        target: tvm.target.Target,
        vdevice: VDevice,
    ) -> list[Examined]:
        from tvm_rammer.backend.cpu.timing.examine import examine

        return examine(uses, bodies, target, vdevice)

    def diagnose(self, calibrate: bool = False) -> list[Finding]:
        from tvm_rammer.backend.cpu import host

        if calibrate:
            host.calibrated(host.vdevice_of(), refresh=True)
        return host.diagnose()
