"""Operators that are equal in all are evaluated once, and equal constants are kept once."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import relax as R
from tvm_ffi import structural_walk

from tvm_rammer.transform.merge_equal_operators import MergeEqualOperators


def products(*weights: relax.Expr) -> tvm.IRModule:
    """The sum of the products of an input and each of the weights."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 40), "float32"))
    with builder.function("main", [x], {"num_input": 1}):
        with builder.dataflow():
            total = builder.emit(relax.op.matmul(x, weights[0]))
            for weight in weights[1:]:
                total = builder.emit(relax.op.add(total, builder.emit(relax.op.matmul(x, weight))))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.finalize()


def number_of_products(mod: tvm.IRModule) -> int:
    return MergeEqualOperators()(mod).script().count("R.matmul")


def weight(columns: int, value: float = 1.0) -> relax.Expr:
    return relax.const(np.full((40, columns), value, "float32"))


def test_equal_operators_become_one():
    large = weight(40)
    mod = products(large, weight(40, 2.0), large)
    found = MergeEqualOperators()(mod)
    tvm.ir.assert_structural_equal(found, relax.transform.EliminateCommonSubexpr()(mod))
    assert found.script().count("R.matmul") == 2


def test_small_constants_are_equal_if_their_elements_are():
    assert number_of_products(products(weight(2), weight(2), weight(2, 2.0))) == 2


def test_large_constants_are_equal_if_their_bits_are():
    same = weight(40)
    assert number_of_products(products(same, relax.const(same.value))) == 1
    assert number_of_products(products(same, weight(40))) == 1
    assert number_of_products(products(weight(40, 0.0), weight(40, -0.0))) == 2
    assert number_of_products(products(weight(40, np.nan), weight(40, np.nan))) == 1


@pytest.mark.parametrize("place", [0, 777, 1599])
def test_large_constants_may_differ_in_one_element(place):
    other = np.ones((40, 40), "float32")
    other.flat[place] = 2
    assert number_of_products(products(weight(40), relax.const(other))) == 2


def test_equal_constants_are_one_tensor():
    found = MergeEqualOperators()(products(weight(40), weight(40), weight(40, 2.0)))
    tensors: list = []
    structural_walk(found["main"].body, (GenericConst, lambda each: tensors.append(each.value)))
    assert len({tensor.data_ptr() for tensor in tensors}) == 2


def test_parameters_and_attributes_stay():
    mod = products(weight(40))
    main = MergeEqualOperators()(mod)["main"]
    assert [param.name for param in main.params] == ["x"]
    assert main.attrs["num_input"] == 1
