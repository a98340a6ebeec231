"""Branches of conditionals become functions, which are planned as any other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_rammer.options import Options
from tvm_rammer.region.marks import is_region
from tvm_rammer.transform.lift_branches import LiftBranches
from tvm_rammer.transform.pipeline import partition_module


@I.ir_module
class Nested:
    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), c: R.Tensor((), "bool")
    ):
        a = R.negative(x)
        if c:
            b = R.matmul(a, w)
            d = R.matmul(b, w)
            z = R.add(b, d)
        else:
            e = R.tanh(x)
            if c:
                f = R.exp(e)
                g = R.multiply(f, f)
            else:
                g = e
            z = R.add(g, g)
        y = R.matmul(z, w)
        r = R.nn.relu(y)
        return r


def test_branches_become_functions_of_what_they_read():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                b = R.add(a, x)
                y = R.add(b, b)
            else:
                y = a
            z = R.negative(y)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            cls = Expected
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            if c:
                with R.dataflow():
                    result: R.Tensor((4,), "float32") = cls.then(a, x)
                    R.output(result)
                y = result
            else:
                y = a
            with R.dataflow():
                z = R.negative(y)
                R.output(z)
            return z

        @R.function(private=True)
        def then(a: R.Tensor((4,), "float32"), x: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            with R.dataflow():
                b = R.add(a, x)
                y = R.add(b, b)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(LiftBranches()(Before), Expected, map_free_vars=True)


def test_a_module_without_conditionals_stays():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            return y

    assert LiftBranches()(Before).same_as(Before)


def test_a_branch_that_reads_a_size_of_no_tensor_stays():
    """A function takes tensors; the size is in none of them."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool"), s: R.Shape(["n"])):
            n = T.int64()
            if c:
                a = R.full(R.shape([n]), R.const(1.0), "float32")
                y = R.sum(a)
            else:
                b = R.exp(x)
                y = R.sum(b)
            return y

    lifted = LiftBranches()(Before)
    assert sorted(str(symbol.name_hint) for symbol in lifted.functions) == ["else", "main"]


@pytest.mark.parametrize("condition", [True, False])
def test_regions_lie_in_branches(condition):
    values = [np.linspace(-1, 1, 32, dtype="float32").reshape(4, 8), np.eye(8, dtype="float32") * 2]
    x, w = values
    a, e = -x, np.tanh(x)
    z = a @ w + a @ w @ w if condition else 2 * e
    executable = relax.build(Nested, "llvm", relax_pipeline="rammer")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, [*values, np.array(condition)]))
    np.testing.assert_allclose(got.numpy(), np.maximum(z @ w, 0), atol=1e-5)


def test_both_branches_are_partitioned():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), c: R.Tensor((), "bool")):
            if c:
                a = R.matmul(x, x)
                y = R.matmul(a, x)
            else:
                b = R.nn.softmax(x)
                y = R.matmul(b, b)
            return y

    options = Options("sequential", 2)
    goal = options.resolve("llvm")
    partitioned = partition_module(Before, goal).merged_for(goal.vdevice)
    assert len([func for func in partitioned.functions.values() if is_region(func)]) == 2
