"""On devices of very many vEUs small products that meet stay apart; states are computed again."""

from __future__ import annotations

from collections import Counter

import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.frontend import load_model
from tvm_rammer.testing.models.recurrent import lstm
from tvm_rammer.transform.compute_again import ComputeAgain
from tvm_rammer.transform.fuse_operators import FuseOperators
from tvm_rammer.transform.legalize_operators import LegalizeOperators
from tvm_rammer.transform.prepare import Prepare

APART = 64


def legalized(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [LegalizeOperators(), relax.transform.AnnotateTIROpPattern()]
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(passes)(mod)


def fused(mod: tvm.IRModule, apart: int) -> Counter[str]:
    """How often each operator is called after fusion."""
    passes = [ComputeAgain(apart), FuseOperators(apart)]
    found = tvm.transform.Sequential(passes)(legalized(mod))
    bindings = [binding for block in found["main"].body.blocks for binding in block.bindings]
    calls = [b.value for b in bindings]
    return Counter((c.args[0] if c.op.same_as(CALL_TIR) else c.op).name_hint for c in calls)


CALL_TIR = tvm.ir.Op.get("relax.call_tir")


@I.ir_module
class TwoProducts:
    """Of the same level, with a sum of both."""

    @R.function
    def main(
        x: R.Tensor((1, 8), "float32"),
        v: R.Tensor((8, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
    ) -> R.Tensor((1, 8), "float32"):
        with R.dataflow():
            one = R.matmul(x, v)
            other = R.nn.relu(R.matmul(x, w))
            result = R.tanh(R.add(one, other))
            R.output(result)
        return result


@I.ir_module
class OneAfterTheOther:
    """The sum waits for the first product anyway: the second one reads it."""

    @R.function
    def main(
        x: R.Tensor((1, 8), "float32"),
        v: R.Tensor((8, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
    ) -> R.Tensor((1, 8), "float32"):
        with R.dataflow():
            one = R.matmul(x, v)
            other = R.matmul(one, w)
            result = R.tanh(R.add(one, other))
            R.output(result)
        return result


@I.ir_module
class OneOnItsOwn:
    """One product waits for another one, and a third one for nobody."""

    @R.function
    def main(
        x: R.Tensor((1, 8), "float32"),
        y: R.Tensor((1, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
    ) -> R.Tensor((1, 8), "float32"):
        with R.dataflow():
            before = R.matmul(x, w)
            early = R.matmul(y, w)
            late = R.matmul(before, w)
            result = R.add(early, late)
            R.output(result)
        return result


@I.ir_module
class State:
    """A sum that an output reads alone, and a product beside something else."""

    @R.function
    def main(
        x: R.Tensor((1, 8), "float32"),
        y: R.Tensor((1, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
    ) -> R.Tuple(R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")):
        with R.dataflow():
            half = R.multiply(x, R.const(0.5, "float32"))
            state = R.add(half, y)
            shown = R.tanh(state)
            after = R.matmul(state, w)
            R.output(shown, after)
        return shown, after


@pytest.mark.parametrize("apart", [0, 7])
def test_products_are_fused_with_what_they_meet_in(apart):
    assert fused(TwoProducts, apart) == {"fused_matmul_relu": 1, "fused_matmul_add_tir_tanh": 1}


def test_small_products_of_one_level_stay_apart():
    assert fused(TwoProducts, APART) == {
        "matmul": 1,
        "fused_matmul_relu": 1,
        "fused_add_tir_tanh": 1,
    }


def test_what_waits_anyway_is_fused():
    assert fused(OneAfterTheOther, APART) == {"matmul": 1, "fused_matmul_add_tir_tanh": 1}


def test_what_they_meet_in_is_fused_with_the_later_one():
    mod = legalized(OneOnItsOwn)
    found = FuseOperators(APART)(mod)
    (block,) = found["main"].body.blocks
    by_name = {b.value.op.name_hint: b for b in block.bindings if not b.value.op.same_as(CALL_TIR)}
    assert block.bindings[1].var in by_name["fused_matmul_add"].value.args[:]


def test_a_state_is_computed_again_by_who_reads_nothing_else():
    assert fused(State, 0) == {"fused_multiply_add": 1, "tir_tanh": 1, "matmul": 1}
    assert fused(State, APART) == {
        "fused_multiply_add_tir_tanh": 1,
        "fused_multiply_add": 1,
        "matmul": 1,
    }


def test_what_is_computed_again_is_the_same():
    mod = legalized(State)
    copied = ComputeAgain(APART)(mod)
    relax.analysis.well_formed(copied)
    assert not tvm_ffi.structural_equal(copied, mod)
    tvm.ir.assert_structural_equal(ComputeAgain(0)(mod), mod)
    tvm.ir.assert_structural_equal(ComputeAgain(7)(mod), mod)


def levels(mod: tvm.IRModule) -> int:
    """Operators one after the other."""
    depth: dict[object, int] = {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            read = binding.value.args[1].fields if hasattr(binding.value, "args") else ()
            depth[binding.var] = 1 + max((depth.get(x, 0) for x in read), default=0)
    return max(depth.values())


def test_a_step_of_an_lstm_takes_two_operators_instead_of_five():
    steps = {
        apart: [
            levels(Prepare(apart=apart)(load_model(lstm(1, count, 8)).module)) for count in (2, 6)
        ]
        for apart in (0, APART)
    }
    grows = {apart: (more - few) / 4 for apart, (few, more) in steps.items()}
    assert grows[APART] == 2
    assert grows[0] == 5
