"""A compiler pass that brings a model into the form that is planned: call_tirs of fused
PrimFuncs."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst, PrimType

from tvm_rammer.backend.registry import backend_for
from tvm_rammer.relax_util import OPAQUE, calls_any, calls_of, operator_name
from tvm_rammer.transform.channels_last import ChannelsLast
from tvm_rammer.transform.compute_again import ComputeAgain
from tvm_rammer.transform.fold_affine import FoldAffine
from tvm_rammer.transform.fold_constants import FoldConstants
from tvm_rammer.transform.fold_transposes import FoldTransposes
from tvm_rammer.transform.fuse_attentions import FuseAttentions
from tvm_rammer.transform.fuse_channel_windows import FuseChannelWindows
from tvm_rammer.transform.fuse_normalizations import FuseNormalizations
from tvm_rammer.transform.fuse_operators import FuseOperators
from tvm_rammer.transform.integer_products import IntegerProducts
from tvm_rammer.transform.keep_indices_inside import KeepIndicesInside
from tvm_rammer.transform.legalize_operators import LegalizeOperators
from tvm_rammer.transform.merge_equal_operators import MergeEqualOperators
from tvm_rammer.transform.multiply_chosen import MultiplyChosen
from tvm_rammer.transform.multiply_integers import MultiplyIntegers
from tvm_rammer.transform.multiply_repeated import MultiplyRepeated
from tvm_rammer.transform.name_sizes import NameSizes
from tvm_rammer.transform.narrow_weights import NarrowWeights
from tvm_rammer.transform.plan_nonzero import PlanNonzero
from tvm_rammer.transform.plan_sorting import PlanSorting
from tvm_rammer.transform.plan_unique import PlanUnique
from tvm_rammer.transform.reduce_nothing import ReduceNothing
from tvm_rammer.transform.remove_dead_code import RemoveDeadCode
from tvm_rammer.transform.restore_operators import RestoreOperators
from tvm_rammer.transform.round_parts import RoundParts
from tvm_rammer.transform.separate_pools import SeparatePools
from tvm_rammer.transform.simplify_operators import SimplifyOperators
from tvm_rammer.transform.skip_empty_parts import SkipEmptyParts
from tvm_rammer.transform.slice_known_places import SliceKnownPlaces
from tvm_rammer.transform.split_transposed_convolutions import SplitTransposedConvolutions
from tvm_rammer.transform.sum_integers_in_floats import SumIntegersInFloats
from tvm_rammer.transform.taps_first import TapsFirst
from tvm_rammer.transform.widen_convolutions import WidenConvolutions

#: The operators that DecomposeOpsForInference takes apart.
_COMPOSED = frozenset({"relax.nn.batch_norm"})


@tvm.transform.module_pass(opt_level=0, name="Prepare")
class Prepare:
    """Simplify, fold, convert layouts, legalize and fuse.

    Parameters
    ----------
    few_rows : int, optional
        A product with so many rows or fewer takes as long as reading its weights; on this machine's
        processors if not given.
    neighbours : int
        How many products of integers are added at once, as in :class:`.IntegerProducts`.
    apart : int
        Elements of a result up to which products stay apart that meet in it.
    short_floats : tuple of str
        As in :class:`.NarrowWeights`.
    round_data : bool
        As in :class:`.MultiplyIntegers`.
    taps_first : bool
        Whether there is :class:`.TapsFirst`.
    """

    def __init__(
        self,
        few_rows: int | None = None,
        neighbours: int = 1,
        apart: int = 0,
        short_floats: tuple[str, ...] = (),
        round_data: bool = False,
        taps_first: bool = False,
    ) -> None:
        self.apart, self.short_floats, self.round_data = apart, short_floats, round_data
        self.taps_first = taps_first
        self.few_rows = backend_for().few_rows if few_rows is None else few_rows
        self.products = IntegerProducts(self.few_rows, neighbours)

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Prepare a module; one that is prepared already stays as it is."""
        phases = [
            # 1. Plain operators on constants that are known.
            RestoreOperators(),
            SkipEmptyParts(),
            PlanNonzero(),
            PlanUnique(),
            SimplifyOperators(),
            KeepIndicesInside(),
            FoldConstants(),
            SliceKnownPlaces(),
            MergeEqualOperators(),
            RoundParts(),
            MultiplyChosen(),
            MultiplyRepeated(),
            _Decompose(),
            FoldAffine(),
            # 2. Layouts.
            ChannelsLast(),
            FoldConstants(),
            _MergeLayouts(),
            FuseChannelWindows(),
            SeparatePools(),
            SplitTransposedConvolutions(),
            WidenConvolutions(),
            *([TapsFirst()] if self.taps_first else []),
            MultiplyIntegers(self.products, self.round_data),
            NarrowWeights(self.few_rows, self.short_floats),
            SumIntegersInFloats(self.products),
            # 3. PrimFuncs, as few as fusion allows.
            FuseAttentions(),
            FuseNormalizations(),
            FoldTransposes(self.few_rows),
            PlanSorting(),
            NameSizes(),
            LegalizeOperators(),
            ReduceNothing(),
            relax.transform.AnnotateTIROpPattern(),
            _NumbersApart(),
            _FoldCalls(),
            ComputeAgain(self.apart),
            FuseOperators(self.apart),
            relax.transform.FuseTIR(),
            RemoveDeadCode(),
            _KeepFused(),
        ]
        return tvm.transform.Sequential(phases)(mod)


@tvm.transform.module_pass(opt_level=0, name="Decompose")
class _Decompose:
    """Take composed operators apart, and make their parts plain; most models have none left."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not calls_any(mod, _COMPOSED):
            return mod
        parts = [relax.transform.DecomposeOpsForInference(), SimplifyOperators(), FoldConstants()]
        return tvm.transform.Sequential(parts)(mod)


@tvm.transform.module_pass(opt_level=0, name="MergeLayouts")
class _MergeLayouts:
    """Merge equal operators where layouts have changed: each reader got a copy of its own."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not calls_any(mod, {"relax.permute_dims"}):
            return mod
        return tvm.transform.Sequential([MergeEqualOperators()])(mod)


@tvm.transform.module_pass(opt_level=0, name="FoldCalls")
class _FoldCalls:
    """Evaluate what FoldConstants left over; most models have nothing, and it takes seconds."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if any(map(_may_be_constant, calls_of(mod))):
            return relax.transform.FoldConstant()(mod)
        return mod


def _may_be_constant(call: Any) -> bool:
    """Whether a call is no ``call_tir`` of something that is known at run time only."""
    if operator_name(call) != "relax.call_tir":
        return True
    return all(isinstance(operand, GenericConst) for operand in call.args[1].fields[:])


@tvm.transform.module_pass(opt_level=0, name="NumbersApart")
class _NumbersApart:
    """Make PrimFuncs opaque that take sizes as numbers: FuseTIR takes them for those of shapes."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        opaque = {
            symbol: func.with_attr("op_pattern", OPAQUE)
            for symbol, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc)
            and any(isinstance(param.ty, PrimType) for param in func.params)
        }
        if not opaque:
            return mod
        return tvm.IRModule(dict(mod.functions_items()) | opaque, attrs=mod.attrs)


@tvm.transform.module_pass(opt_level=0, name="KeepFused")
class _KeepFused:
    """Make PrimFuncs opaque to fusion, so that a second run does not fuse what the first made."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for symbol, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                public = func.attrs and "global_symbol" in func.attrs
                pattern = func.without_attr("op_pattern")
                result[symbol] = pattern if public else pattern.with_attr("op_pattern", OPAQUE)
        return result
