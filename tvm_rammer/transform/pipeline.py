"""The whole order of passes, from a model to what the Relax VM runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.backend.cpu_generic import pipeline as stock

from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE, WAIT_LIMIT
from tvm_rammer.errors import RammerError
from tvm_rammer.machine import VDevice
from tvm_rammer.no_collection import no_collection
from tvm_rammer.options import Form, Goal, Options
from tvm_rammer.progress import tell
from tvm_rammer.region.compiler import RegionCompiler
from tvm_rammer.region.kernel_library import KernelLibrary, Tuned, untuned
from tvm_rammer.region.marks import is_region
from tvm_rammer.relax_util import has_several_entries
from tvm_rammer.transform.add_guard import AddGuard
from tvm_rammer.transform.attach_description import ModelNames, attach_description, describe
from tvm_rammer.transform.co_schedule import co_schedule
from tvm_rammer.transform.lift_branches import LiftBranches
from tvm_rammer.transform.merge_equal_operators import MergeEqualOperators
from tvm_rammer.transform.merge_products import Mergeable, MergeProducts
from tvm_rammer.transform.partition_regions import PartitionRegions
from tvm_rammer.transform.prepare import Prepare
from tvm_rammer.transform.round_storages import RoundStorages
from tvm_rammer.transform.schedule_operators import ScheduleOperators
from tvm_rammer.transform.share_constants import ShareConstants
from tvm_rammer.transform.start_reductions import StartReductions

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


class Partitions:
    """Remembers the modules of a model whose regions are functions: every policy plans the same.

    Another number of vEUs may want products that share a weight merged otherwise. That is another
    module; each is made once.

    Parameters
    ----------
    mod : IRModule
        Whose products are not merged.
    compiler : RegionCompiler
        Of the regions of all modules.
    options : Options
        Per operator there are no regions; and whether data may be rounded.
    """

    def __init__(self, mod: tvm.IRModule, compiler: RegionCompiler, options: Options) -> None:
        self.compiler = compiler
        self._options = options
        self._unmerged = Mergeable.of(mod)
        # Without a choice nobody keeps the model as it was.
        self._modules = {} if self._unmerged else {1: self._partition(mod, 1)}

    def best_rows(self, vdevice: VDevice) -> int:
        """How many rows merged products have at most where it is best for a number of vEUs."""
        return self._unmerged.best_rows(vdevice) if self._unmerged else 1

    def merged_for(self, vdevice: VDevice) -> tvm.IRModule:
        """The module for a number of vEUs."""
        return self.with_rows(self.best_rows(vdevice))

    def with_rows(self, rows: int) -> tvm.IRModule:
        """The module whose merged products have so many rows at most."""
        if rows not in self._modules:
            assert self._unmerged is not None
            self._modules[rows] = self._partition(self._unmerged.module, rows)
        return self._modules[rows]

    def without_constants(self, rows: int) -> tvm.IRModule:
        """The same; from now on only the compiler has the constants of its regions, packed.

        New memory takes long, and what is packed makes room for what is not.
        """
        graphs = self.compiler.graphs(self.with_rows(rows), start=True)
        self._modules[rows] = forget_constants(self._modules[rows])
        for graph in graphs.values():
            graph.pool.array()
        return self._modules[rows]

    def _partition(self, mod: tvm.IRModule, rows: int) -> tvm.IRModule:
        """Call_tirs of fused PrimFuncs; what can be planned together becomes a function."""
        backend, vdevice = self.compiler.backend, self.compiler.kernels.vdevice
        neighbours = backend.most_neighbours(vdevice)
        # One by one every operator takes a launch, and nothing is gained by more of them.
        apart = backend.apart if self._options.form != "per-op" else 0
        short_floats = backend.short_floats(vdevice)
        prepare = [
            MergeProducts(rows),
            Prepare(
                backend.few_rows,
                neighbours,
                apart,
                short_floats,
                self._options.round_data,
                backend.taps_first,
            ),
        ]
        refusal = partial(backend.refusal, vdevice=vdevice)
        partition = [PartitionRegions(refusal=refusal)] if self._options.form != "per-op" else []
        # Each function's passes have made weights of their own.
        share = [ShareConstants()] if has_several_entries(mod) else []
        with self.compiler.target:
            return tvm.transform.Sequential([*prepare, *share, *partition])(mod)


def forget_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """The same module; constants of its regions have their types, but no elements."""

    def forget(constant: Any) -> Any:
        return GenericConst(tvm.runtime.empty((0,), str(constant.ty.dtype)), constant.ty)

    functions = {
        symbol: tvm_ffi.structural_map(func, (GenericConst, forget)) if is_region(func) else func
        for symbol, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


@dataclass(frozen=True)
class PlannedModule:
    """A module whose regions are kernels, before it is lowered for the VM, and its description."""

    module: tvm.IRModule
    content: Mapping[str, Any]


@no_collection()
def partition_module(mod: tvm.IRModule, goal: Goal, records: Records | None = None) -> Partitions:
    """The passes before the plan: of the options, those matter that make other operators."""
    tell("preparing the operators")
    vdevice, tolerance = goal.vdevice, goal.options.winograd_tolerance
    tuned = records.tuned(vdevice, tolerance) if records is not None else untuned
    compiler = RegionCompiler(goal.target, KernelLibrary(vdevice, tolerance, tuned))
    # What an importer repeats for every step is one before its weights are copied.
    with goal.target:
        mod = tvm.transform.Sequential([LiftBranches(), MergeEqualOperators()])(mod)
    return Partitions(mod, compiler, goal.options)


@no_collection()
def plan_module(
    partitions: Partitions, goal: Goal, names: Sequence[ModelNames] = ()
) -> PlannedModule:
    """The passes that make the plan and put it into the module.

    They begin with how many products are merged: that depends on the number of vEUs.

    Parameters
    ----------
    partitions : Partitions
    goal : Goal
    names : sequence of ModelNames
        What the model itself calls the inputs and outputs of its functions.
    """
    compiler, target, rows = partitions.compiler, goal.target, partitions.best_rows(goal.vdevice)
    add_guard = AddGuard(target, goal.vdevice)
    with target:
        # 3. Every region becomes a kernel.
        planned = co_schedule(partitions.without_constants(rows), compiler, goal)
        rest = [
            # 4. Everything else runs the same rKernels, one call each.
            ScheduleOperators(compiler.kernels, target),
            StartReductions(),
            # 5. What a deployed library needs besides: a guard, and a description of itself.
            add_guard,
        ]
        mod = tvm.transform.Sequential(rest)(planned.module)
    content = describe(mod, planned.regions, goal, rows, names)
    states = names[0].states if names else ()
    return PlannedModule(attach_description(mod, content, states), content)


def lower_for_vm(compiler: RegionCompiler) -> tvm.transform.Pass:
    """TVM's own lowering of a planned module for the Relax VM."""
    target = compiler.target
    finalize = stock.finalize_passes(target)
    allocated = [each.info.name for each in finalize].index("LowerAllocTensor") + 1
    return tvm.transform.Sequential(
        [
            *stock.library_dispatch_passes(target),
            # Reshapes that are left are of tensors that nobody else has; of open sizes they would
            # become copies.
            relax.transform.LegalizeOps(skip_ops=["relax.reshape"]),
            *stock.dataflow_lower_passes(target),
            *finalize[:allocated],
            RoundStorages(),
            *finalize[allocated:],
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
    round_data: bool = False,
) -> tvm.transform.Pass:
    """The pipeline for ``relax.build(mod, target, relax_pipeline=tvm_rammer.pipeline(...))``.

    The pipeline's name ``"rammer"`` stands for this function with its defaults. The target is that
    of the build; without one, this machine's is used, with a warning that says so.

    Parameters
    ----------
    policy, num_veus, form, oversubscribe, winograd_tolerance, wait_limit
        See :class:`Options`.
    max_arena_bytes, backend, round_data
        See :class:`Options`.

    Raises
    ------
    InputError
        For an unknown policy, form or back end, or a number that is out of range. When it runs, a
        DeviceError for a target that no back end serves, and a PlanError if no plan fits into
        ``max_arena_bytes``.
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
        round_data,
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
            partitions = partition_module(mod, goal)
            planned = plan_module(partitions, goal).module
            return lower_for_vm(partitions.compiler)(planned).with_attr(LOWERED, True)

    return rammer
