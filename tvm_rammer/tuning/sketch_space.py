"""The sketch space of an operator: MetaSchedule's own rules, as they make rTasks.

Loops are tiled over several levels, small blocks are inlined or computed where they are used, and
what is innermost is vectorised, as for any CPU. What differs is the outermost loop: every nest gets
one parallel loop over axes of its results, whose iterations are the rTasks. Of how many there may
be is a knob, as is how far loops are unrolled. Nothing is reduced across rTasks. Weights that
are constants are laid out as the loops read them.
"""

from __future__ import annotations

import random
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.kernel.blocks import distinct, is_reduction, is_scheduled, loads, variables
from tvm_rammer.kernel.inlined_size import kept_results
from tvm_rammer.kernel.nodes import buffer_bytes, collect
from tvm_rammer.machine import VDevice
from tvm_rammer.rprogram import dtype_bytes

#: Annotations of the root block: the most rTasks of a nest, and steps that are unrolled together.
TILES, _STEPS = "tvm_rammer.tiles", "tvm_rammer.steps"
#: What may be unrolled together.
_UNROLLED = (1, 16, 64)
#: Most rTasks of a nest for each vEU, and how many times as many each knob's value is.
_MOST_TILES, _FINER = 128, 4
#: Levels of tiles: two around a piece of a sum, one around its steps, one within.
_LEVELS = "SSRSRS"
#: The longest innermost loop, in vectors.
_INNERMOST = 4
#: MetaSchedule's own: how often a step of the search changes tile sizes, places, or a knob.
_MUTATIONS = (0.8, 0.1, 0.1)
#: What MetaSchedule calls parameters whose layout it may choose.
_FREE = "layout_free_buffers"


def is_sketchable(func: tirx.PrimFunc) -> bool:
    """Whether an operator has a sketch space.

    It has if it is not scheduled yet, of static shapes, and small once all in it is inlined.
    """
    if is_scheduled(func):
        return False
    sizes = [size for param in func.params for size in getattr(param, "shape", [None])]
    static = all(isinstance(size, tirx.IntImm | int) for size in sizes)
    blocks = collect(func.body, s_tir.SBlock)
    return static and len(blocks) > 1 and not kept_results(func)


def sketched_module(func: tirx.PrimFunc, constants: tuple[int, ...]) -> tvm.IRModule:
    """An operator as the search sees it: matrices that are constants have any layout."""
    read = [load.source for load in loads(func.body)]
    free = [
        k
        for k in constants
        if sum(int(size) > 1 for size in func.params[k].shape) > 1
        and sum(map(func.params[k].same_as, read)) == 1
    ]
    return tvm.IRModule({"main": func.with_attrs({"global_symbol": "main", _FREE: free})})


def sketch_space(vdevice: VDevice, seed: int) -> ms.SpaceGenerator:
    """The space of operators for a device."""
    rules, lanes = ms.schedule_rule, vdevice.vector_bytes // dtype_bytes("float32")
    widest = _INNERMOST * lanes
    tiles, places, knobs = _MUTATIONS
    return ms.space_generator.PostOrderApply(
        sch_rules=[
            rules.InlineConstantScalars(),
            rules.AutoInline(False, True, True, True, True, True, ["tirx.exp"]),
            rules.MultiLevelTiling(
                _LEVELS,
                max_innermost_factor=widest,
                reuse_write=rules.ReuseType("may", [1, 2], "global"),
                filter_fn=_is_tiled,
            ),
            # Parallel loops and unrolled ones are ours.
            rules.ParallelizeVectorizeUnroll(-1, widest, [], True),
            Knobs(most_tiles(vdevice), vdevice.num_veus),
            rules.RandomComputeLocation(),
        ],
        postprocs=[
            ms.postproc.DisallowDynamicLoop(),
            ms.postproc.RewriteParallelVectorizeUnroll(),
            # Blocks whose beginning is apart cannot be made parallel any more.
            TileLoops(most_tiles(vdevice), vdevice.l2_bytes),
            ms.postproc.RewriteReductionBlock(),
            ms.postproc.RewriteLayout(),
        ],
        mutator_probs={
            ms.mutator.MutateTileSize(): tiles,
            ms.mutator.MutateComputeLocation(): places,
            OtherKnob(seed): knobs,
        },
    )


def most_tiles(vdevice: VDevice) -> int:
    """The cap on the rTasks of a nest."""
    return _MOST_TILES * vdevice.num_veus


def _is_tiled(schedule: s_tir.Schedule, block: Any) -> bool:
    """Whether a block reduces something, for blocks that can be computed together with it."""
    if not is_reduction(schedule, block):
        return False
    # Questions to the schedule itself would become part of it.
    result = schedule.get(block).writes[0].source
    blocks = [each for each in collect(schedule.mod["main"].body, s_tir.SBlock) if each.iter_vars]
    made = distinct(region.source for each in blocks for region in each.writes) - {result}
    read = [distinct(region.source for region in each.reads) for each in blocks]
    return not any(result in sources and made & sources for sources in read)


@derived_object
class Knobs(ms.schedule_rule.PyScheduleRule):
    """Samples how many rTasks there may be, and how many steps are unrolled together.

    Parameters
    ----------
    most, least : int
        rTasks of a nest.
    """

    def __init__(self, most: int, least: int) -> None:
        super().__init__()
        self.most, self.least = most, least

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, schedule: s_tir.Schedule, block: Any) -> list[s_tir.Schedule]:
        """The same, with a sample of each if the block is the root."""
        if schedule.get(block).name_hint == "root":
            limits = [self.most]
            while limits[-1] >= _FINER * self.least:
                limits.append(limits[-1] // _FINER)
            for name, values in ((TILES, limits), (_STEPS, list(_UNROLLED))):
                found = schedule.sample_categorical(values, [1.0 / len(values)] * len(values))
                schedule.annotate(block, name, found)
        return [schedule]

    def clone(self) -> Any:
        """Another one."""
        return Knobs(self.most, self.least)


@derived_object
class OtherKnob(ms.mutator.PyMutator):
    """Gives one knob another value."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, trace: Any, _: Any) -> Any:
        """Another trace of the space; ``None`` where there is none."""
        samples = [
            step
            for step in trace.insts
            if step.kind.name == "SampleCategorical" and len(step.attrs[0]) > 1
        ]
        if not samples:
            return None
        sample = self.random.choice(samples)
        now = int(trace.get_decision(sample))
        others = [k for k in range(len(sample.attrs[0])) if k != now]
        return trace.with_decision(sample, self.random.choice(others), True)

    def clone(self) -> Any:
        """The same with other random numbers."""
        return OtherKnob(self.random.randrange(1 << 30))


@derived_object
class TileLoops(ms.postproc.PyPostproc):
    """Makes the loop over the rTasks of each nest, and unrolls loops.

    What has more rTasks than the cap, or needs more memory of its own for one than the device has
    near a core, is refused.

    Parameters
    ----------
    most : int
        rTasks of a nest.
    workspace : int
        Bytes of buffers within an rTask.
    """

    def __init__(self, most: int, workspace: int) -> None:
        super().__init__()
        self.most, self.workspace = most, workspace

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, schedule: s_tir.Schedule) -> bool:
        """Whether the schedule is one of rTasks now."""
        # An exception here would end all tuning.
        try:
            root = schedule.get_sblock("root")
            notes = schedule.get(root).annotations
            limit, steps = (int(notes[name]) for name in (TILES, _STEPS))
            for name in (TILES, _STEPS):
                schedule.unannotate(root, name)
            for nest in _nests(schedule, root):
                _make_tile_loop(schedule, nest, min(limit, self.most))
            for block in schedule.get_child_blocks(root):
                _unroll(schedule, block, steps)
            return workspace_bytes(schedule.mod) <= self.workspace
        except (s_tir.ScheduleError, RuntimeError, ValueError, KeyError):
            return False

    def clone(self) -> Any:
        """Another one."""
        return TileLoops(self.most, self.workspace)


def _nests(schedule: s_tir.Schedule, root: Any) -> list[list[Any]]:
    """The loops of the first block of each statement of the body."""
    found: list[list[Any]] = []
    outermost: list[Any] = []
    for block in schedule.get_child_blocks(root):
        loops = list(schedule.get_loops(block))
        if loops and not any(schedule.get(loops[0]).same_as(each) for each in outermost):
            outermost.append(schedule.get(loops[0]))
            found.append(loops)
    return found


def _make_tile_loop(schedule: s_tir.Schedule, loops: list[Any], limit: int) -> None:
    """Fuse the outermost loops over axes of results, as far as there may be rTasks."""
    reduced = _reduced_over(schedule.get(loops[0]))
    taken: list[Any] = []
    left = limit
    for loop in loops:
        node = schedule.get(loop)
        if node.loop_var in reduced or node.kind != tirx.ForKind.SERIAL:
            break
        extent = int(node.extent)
        if extent > left:
            factor = max(k for k in range(1, left + 1) if extent % k == 0)
            if factor > 1:
                taken.append(schedule.split(loop, [factor, None])[0])
            break
        taken.append(loop)
        left //= extent
        if not isinstance(node.body, tirx.For):
            break
    # Without any there is one rTask.
    tiles = schedule.fuse(*taken) if taken else schedule.add_unit_loop(loops[0])
    schedule.parallel(tiles)


def _reduced_over(nest: Any) -> set[Any]:
    """The loops of a nest along which something is summed up."""
    return {
        variable
        for realize in collect(nest, s_tir.SBlockRealize)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if int(axis.iter_type) != tirx.IterVar.DataPar
        for variable in variables(value)
    }


def _unroll(schedule: s_tir.Schedule, block: Any, steps: int) -> None:
    """Unroll the innermost loops of a block that has them for itself, so many steps together."""
    for loop in reversed(schedule.get_loops(block)):
        node = schedule.get(loop)
        if node.kind == tirx.ForKind.VECTORIZED:
            continue
        steps //= int(node.extent)
        if steps == 0 or node.kind != tirx.ForKind.SERIAL or isinstance(node.body, tirx.SeqStmt):
            break
        if int(node.extent) > 1:
            schedule.unroll(loop)


def workspace_bytes(mod: tvm.IRModule) -> int:
    """Bytes of all buffers that belong to one rTask."""
    lowered = tvm.transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
        ]
    )(mod)
    root = lowered["main"].body.block
    return sum(
        buffer_bytes(buffer)
        for block in collect(root, s_tir.SBlock)
        if not block.same_as(root)
        for buffer in block.alloc_buffers
    )
