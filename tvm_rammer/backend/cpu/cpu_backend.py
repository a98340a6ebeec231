"""The back end for processors: what the protocol asks, by way of the folders beside this file.

They are imported when they are asked for: ``tvm-rammer doctor`` looks at machines on which TVM does
not work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tvm_rammer.backend.protocol import GUARD, WAIT_LIMIT, Backend, EncodedPlan, Examined, Finding
from tvm_rammer.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm import tirx

    from tvm_rammer.backend.cpu.binding import PoolBinding
    from tvm_rammer.backend.cpu.codegen.worker import RegionModules
    from tvm_rammer.backend.cpu.timing.time_choice import CompiledChoices
    from tvm_rammer.backend.signature import RegionSignature
    from tvm_rammer.kernel.operands import KernelUse
    from tvm_rammer.kernel.scheduled import Choice, Scheduled
    from tvm_rammer.kernel.split import SplitKernel
    from tvm_rammer.machine import VDevice
    from tvm_rammer.machine.ceilings import Ceilings
    from tvm_rammer.rprogram import RProgram
    from tvm_rammer.schedule.timeline import Timeline

T = TypeVar("T")


class CpuStopwatch:
    """Times kernels and plans with the very code that will run."""

    def obstacle(self, vdevice: VDevice) -> str:
        from tvm_rammer.backend.cpu.host.pool import requested_workers

        if not vdevice.host:
            return "the target is not this machine"
        workers = min(vdevice.threads, requested_workers() or vdevice.threads)
        if vdevice.num_veus > workers:
            return f"{vdevice.num_veus} vEUs are planned for, and this process has {workers}"
        return ""

    def kernels(
        self,
        module: tvm.runtime.Module,
        signature: RegionSignature,
        ids: Mapping[str, int],
        kernels: Iterable[KernelUse],
        constants: np.ndarray,
        cache_bytes: int,
    ) -> dict[str, float]:
        from tvm_rammer.backend.cpu.timing.measure_kernels import measure_kernels

        return measure_kernels(module, signature, ids, kernels, constants, cache_bytes)

    def plans(
        self,
        module: tvm.runtime.Module,
        signature: RegionSignature,
        ids: Mapping[str, int],
        plans: Sequence[tuple[RProgram, bool]],
        constants: np.ndarray,
        race: bool = False,
    ) -> list[list[float]]:
        from tvm_rammer.backend.cpu.timing.measure_plans import measure_plans

        return measure_plans(module, signature, ids, plans, constants, race)


class CpuStamps:
    """Readings of the CPU's own counter, which generated code leaves behind the arena."""

    def table(self, table: np.ndarray, arena_bytes: int) -> np.ndarray:
        from tvm_rammer.backend.cpu.timing.stamps import stamped_table

        return stamped_table(table, arena_bytes)

    def arena_bytes(self, program: RProgram, arena_bytes: int) -> int:
        from tvm_rammer.backend.cpu.timing.stamps import stamped_arena_bytes

        return stamped_arena_bytes(program, arena_bytes)

    def timeline(
        self, program: RProgram, table: np.ndarray, arena: np.ndarray, arena_bytes: int
    ) -> Timeline:
        from tvm_rammer.backend.cpu.codegen.table import Header
        from tvm_rammer.backend.cpu.timing.stamps import read_stamps

        by_wave = int(table[Header.NUM_SEGMENTS]) > 1
        return read_stamps(program, arena, arena_bytes, by_wave)


class CpuTuner:
    """The configurations of the templates, by themselves on one core."""

    def choices(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> list[Choice]:
        from tvm_rammer.backend.cpu.templates.select import choices

        return choices(func, constants, vdevice, winograd_tolerance)

    def likely(
        self,
        func: tirx.PrimFunc,
        constants: frozenset[int],
        vdevice: VDevice,
        winograd_tolerance: float,
    ) -> list[str]:
        from tvm_rammer.backend.cpu.templates.select import likely

        return likely(func, constants, vdevice, winograd_tolerance)

    def together(self, choices: Sequence[Choice]) -> Scheduled | None:
        from tvm_rammer.backend.cpu.templates.select import schedule_as

        return schedule_as(choices)

    def alike(self, choice: Choice) -> str:
        from tvm_rammer.backend.cpu.templates.select import alike

        return alike(choice)

    def compile(self, choices: Sequence[Choice], target: tvm.target.Target) -> tvm.runtime.Module:
        from tvm_rammer.backend.cpu.timing.time_choice import compile_choices

        return compile_choices(choices, target)

    def trial(
        self,
        module: tvm.runtime.Module,
        choices: Sequence[Choice],
        inputs: Sequence[np.ndarray],
        cache_bytes: int,
        device: Any = None,
    ) -> CompiledChoices:
        from tvm_rammer.backend.cpu.timing.time_choice import CompiledChoices

        return CompiledChoices(module, choices, inputs, cache_bytes, device)


class CpuBackend(Backend):
    """x86-64 and AArch64 processors; see :class:`~tvm_rammer.backend.protocol.Backend`."""

    name = "cpu"
    kinds = ("llvm",)
    forms = ("program", "wavefront", "per-op")
    exports = True
    stopwatch = CpuStopwatch()
    stamps = CpuStamps()
    tuner = CpuTuner()

    @property
    def few_rows(self) -> int:
        from tvm_rammer.backend.cpu.templates.reduction import FEW_ROWS

        return FEW_ROWS

    def most_neighbours(self, vdevice: VDevice) -> int:
        from tvm_rammer.backend.cpu.templates.neighbours import most_neighbours

        return most_neighbours(vdevice)

    @property
    def rules(self) -> tuple[str, ...]:
        from tvm_rammer.backend.cpu.templates.select import rule_names

        return rule_names()

    def resolve(self, target: tvm.target.Target | None) -> tvm.target.Target:
        from tvm_rammer.backend.cpu.host.target import resolve_target

        return resolve_target(target)

    def vdevice(
        self, target: tvm.target.Target, num_veus: int | None = None, oversubscribe: bool = False
    ) -> VDevice:
        from tvm_rammer.backend.cpu.host.target import vdevice_of

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

    def split(self, func: tirx.PrimFunc, vdevice: VDevice) -> SplitKernel:
        from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
        from tvm_rammer.kernel.split import split_into_stages

        return split_into_stages(func, partial(tile_seconds, vdevice.speeds))

    def compiler(self, target: tvm.target.Target) -> RegionModules:
        from tvm_rammer.backend.cpu.codegen.worker import RegionModules

        return RegionModules(target)

    def encode(
        self,
        program: RProgram,
        signature: RegionSignature,
        ids: Mapping[str, int],
        by_wave: bool = False,
        wait_limit: float = WAIT_LIMIT,
    ) -> EncodedPlan:
        from tvm_rammer.backend.cpu.codegen.table import arena_tensor_bytes, instruction_table
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
        from tvm_rammer.backend.cpu.host.ceilings import ceilings

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
