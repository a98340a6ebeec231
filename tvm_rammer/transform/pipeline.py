"""The whole order of passes, from a model to what the Relax VM runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as stock

from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE, WAIT_LIMIT
from tvm_rammer.errors import RammerError
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Form, Goal, Options
from tvm_rammer.progress import tell
from tvm_rammer.region.compiler import RegionCompiler
from tvm_rammer.region.kernel_library import KernelLibrary, Tuned, untuned
from tvm_rammer.transform.add_guard import AddGuard
from tvm_rammer.transform.attach_description import ModelNames, attach_description, describe
from tvm_rammer.transform.co_schedule import co_schedule
from tvm_rammer.transform.lift_branches import LiftBranches
from tvm_rammer.transform.merge_equal_operators import MergeEqualOperators
from tvm_rammer.transform.merge_products import Mergeable, MergeProducts
from tvm_rammer.transform.partition_regions import PartitionRegions
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.schedule_operators import ScheduleOperators

# Errors of passes cross TVM's C++, from where those that it does not know return as RuntimeErrors.
_ERRORS: list[type] = [KeyboardInterrupt, *RammerError.__subclasses__()]
for _error in _ERRORS:
    tvm_ffi.register_error(_error)

#: Attribute of a module that has been through :func:`pipeline`.
LOWERED = "tvm_rammer.lowered"


class Records(Protocol):
    """What the tuner found, as :class:`tvm_rammer.tuning.Database` has it."""

    def tuned(self, vdevice: VDevice, winograd_tolerance: float) -> Tuned:
        """The choices for a device, by PrimFunc and constants."""
        ...


@dataclass(frozen=True)
class PartitionedModule:
    """A module whose regions are functions, and what compiles them: the same for every policy.

    Once it is planned, only the compiler has the constants of the regions.

    Attributes
    ----------
    module : IRModule
    compiler : RegionCompiler
    form : Form
        Per operator there are no regions.
    rows : int
        Of merged products at most.
    unmerged : Mergeable, optional
        What was partitioned, if it has products that may be merged otherwise.
    """

    module: tvm.IRModule
    compiler: RegionCompiler
    form: Form = "program"
    rows: int = 1
    unmerged: Mergeable | None = None
    _known: dict[int, tvm.IRModule] = field(default_factory=dict, repr=False)

    def merged_for(self, vdevice: VDevice) -> PartitionedModule:
        """The same module with as many products merged as is best for a number of vEUs.

        Each number of rows is partitioned once.
        """
        if self.unmerged is None:
            return self
        rows = self.unmerged.best_rows(vdevice)
        if rows == self.rows:
            return self
        known = self._known
        if rows not in known:
            known[rows] = _partitioned(self.unmerged.module, self.compiler, self.form, rows)
        return replace(self, module=known[rows], rows=rows)


@dataclass(frozen=True)
class PlannedModule:
    """A module whose regions are kernels, before it is lowered for the VM, and its description.

    ``source`` is what was planned.
    """

    module: tvm.IRModule
    content: Mapping[str, Any]
    source: PartitionedModule


def partition_module(
    mod: tvm.IRModule, goal: Goal, records: Records | None = None
) -> PartitionedModule:
    """The passes before the plan: of what the user chose only the form matters to them.

    Products are merged as is best for the number of vEUs, and anew by :func:`plan_module` if it is
    another one.
    """
    tell("preparing the operators")
    vdevice, tolerance = goal.vdevice, goal.options.winograd_tolerance
    tuned = records.tuned(vdevice, tolerance) if records else untuned
    compiler = RegionCompiler(goal.target, KernelLibrary(vdevice, tolerance, tuned))
    # What an importer repeats for every step is one before its weights are copied.
    with goal.target:
        mod = tvm.transform.Sequential([LiftBranches(), MergeEqualOperators()])(mod)
    unmerged = Mergeable.of(mod)
    rows = unmerged.best_rows(vdevice) if unmerged else 1
    form = goal.options.form
    module = _partitioned(mod, compiler, form, rows)
    return PartitionedModule(module, compiler, form, rows, unmerged, {rows: module})


def _partitioned(
    mod: tvm.IRModule, compiler: RegionCompiler, form: Form, rows: int
) -> tvm.IRModule:
    """Call_tirs of fused PrimFuncs; what can be planned together becomes a function."""
    prepare = [MergeProducts(rows), Prepare(compiler.backend.few_rows)]
    refusal = partial(compiler.backend.refusal, vdevice=compiler.kernels.vdevice)
    partition = [PartitionRegions(refusal=refusal)] if form != "per-op" else []
    with compiler.target:
        return tvm.transform.Sequential([*prepare, *partition])(mod)


def plan_module(
    partitioned: PartitionedModule, goal: Goal, names: ModelNames | None = None
) -> PlannedModule:
    """The passes that make the plan and put it into the module.

    They begin with how many products are merged: that depends on the number of vEUs.

    Parameters
    ----------
    partitioned : PartitionedModule
    goal : Goal
    names : ModelNames, optional
        What the model itself calls its inputs and outputs.
    """
    partitioned, target = partitioned.merged_for(goal.vdevice), goal.target
    compiler = partitioned.compiler
    with target:
        compiler.take(partitioned.module)
        # 3. Every region becomes a kernel.
        planned = co_schedule(partitioned.module, compiler, goal)
        rest = [
            # 4. Everything else runs the same rKernels, one call each.
            ScheduleOperators(compiler.kernels, target),
            # 5. What a deployed library needs besides: a guard, and a description of itself.
            AddGuard(target, goal.vdevice),
        ]
        mod = tvm.transform.Sequential(rest)(planned.module)
    content = describe(mod, planned.regions, goal, partitioned.rows, names)
    return PlannedModule(attach_description(mod, content), content, partitioned)


def lower_for_vm(compiler: RegionCompiler) -> tvm.transform.Pass:
    """TVM's own lowering of a planned module for the Relax VM."""
    target = compiler.target
    return tvm.transform.Sequential(
        [
            *stock.library_dispatch_passes(target),
            relax.transform.LegalizeOps(),
            *stock.dataflow_lower_passes(target),
            *stock.finalize_passes(target),
            *compiler.backend.passes_for_vm(),
        ],
        name="LowerForVM",
    )


def pipeline(
    policy: str = "auto",
    num_veus: int | None = None,
    form: Form = "program",
    oversubscribe: bool = False,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
    wait_limit: float = WAIT_LIMIT,
    max_arena_bytes: int | None = None,
    backend: str | None = None,
) -> tvm.transform.Pass:
    """The pipeline for ``relax.build(mod, target, relax_pipeline=tvm_rammer.pipeline(...))``.

    The pipeline's name ``"rammer"`` stands for this function with its defaults. The target is that
    of the build; without one, this machine's is used, with a warning that says so.

    Parameters
    ----------
    policy, num_veus, form, oversubscribe, winograd_tolerance, wait_limit, max_arena_bytes, backend
        See :class:`Options`.

    Returns
    -------
    tvm.transform.Pass

    Raises
    ------
    InputError
        For an unknown policy or form, or a number that is out of range.
    """
    options = Options(
        policy,
        num_veus,
        form,
        oversubscribe,
        winograd_tolerance,
        wait_limit,
        max_arena_bytes,
        backend,
    )

    @tvm.transform.module_pass(opt_level=0, name="rammer")
    def rammer(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        if mod.attrs and LOWERED in mod.attrs:
            return mod
        given = tvm.target.Target.current()
        goal = options.resolve(given)
        if given is None:
            said = f"no target given: compiling for this machine, {goal.target}"
            warnings.warn(said, stacklevel=2)
        with goal.target:
            partitioned = partition_module(mod, goal)
            planned = plan_module(partitioned, goal).module
            return lower_for_vm(partitioned.compiler)(planned).with_attr(LOWERED, True)

    return rammer
