"""Equal constants of a module's functions are one tensor."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm_ffi import structural_walk

from tvm_rammer.transform.share_constants import ShareConstants


def module(*weights: np.ndarray) -> tvm.IRModule:
    """A function that multiplies by each of the weights."""
    builder = relax.BlockBuilder()
    for number, weight in enumerate(weights):
        x = relax.Var("x", relax.TensorType((2, weight.shape[0]), "float32"))
        with builder.function(f"f{number}", [x]):
            with builder.dataflow():
                product = builder.emit(relax.op.matmul(x, relax.const(weight)))
                small = builder.emit(relax.op.add(product, relax.const(weight[0])))
                out = builder.emit_output(small)
            builder.emit_func_output(out)
    return builder.get()


def constants(mod: tvm.IRModule) -> list[list[tvm.runtime.Tensor]]:
    """The tensors of each function."""
    found: list[list[tvm.runtime.Tensor]] = []
    for func in mod.functions.values():
        tensors: list[tvm.runtime.Tensor] = []
        structural_walk(func.body, (GenericConst, lambda c, to=tensors: to.append(c.value)))
        found.append(tensors)
    return found


def matrix(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((48, 48)).astype("float32")


def test_equal_matrices_are_one_and_others_stay():
    other = matrix(0)
    other[-1, -1] = np.nextafter(other[-1, -1], 0)
    before = module(matrix(0), matrix(0), other, matrix(0).view("int32").view("float32"))
    shared = ShareConstants()(before)
    (a, small_a), (b, small_b), (c, _), (d, _) = constants(shared)
    assert a.same_as(b) and a.same_as(d) and not a.same_as(c)
    # Small ones are not worth comparing.
    assert not small_a.same_as(small_b)
    tvm.ir.assert_structural_equal(shared, before)


def test_what_has_nothing_equal_stays_the_same_object():
    before = module(matrix(0), matrix(1))
    after = ShareConstants()(before)
    assert all(after[symbol].same_as(func) for symbol, func in before.functions.items())
