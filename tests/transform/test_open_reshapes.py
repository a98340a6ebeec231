"""Another shape of open sizes is no copy inside of a function, and none that leaves it."""

import numpy as np
import tvm
from tvm import relax, tirx

import tvm_rammer
from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.legalize_operators import LegalizeOperators

H, W = tirx.Var("h", "int64"), tirx.Var("w", "int64")
OP = relax.op


def module(ends_in_it: bool) -> tvm.IRModule:
    """Every other row and column as one axis, and its squares unless it ends there."""
    rows, columns = tirx.floordiv(H - 1, 2) + 1, tirx.floordiv(W - 1, 2) + 1
    x = relax.Var("x", relax.TensorType((1, H, W, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            pool = OP.nn.max_pool2d(x, (1, 1), (2, 2), layout="NHWC")
            flat = builder.emit(OP.reshape(builder.emit(pool), (rows * columns, 4)))
            y = builder.emit_output(flat if ends_in_it else OP.multiply(flat, flat))
        builder.emit_func_output(y)
    return builder.get()


def calls(mod):
    bindings = mod["main"].body.blocks[0].bindings
    return [operator_name(each.value) for each in bindings if operator_name(each.value)]


def test_inside_of_a_function_it_is_the_same_tensor():
    assert calls(LegalizeOperators()(module(False))) == [
        "relax.call_tir",
        "relax.reshape",
        "relax.call_tir",
    ]


def test_what_leaves_a_function_is_its_own():
    x = relax.Var("x", relax.TensorType((H, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(OP.reshape(x, (H * 2, 3)))
        builder.emit_func_output(y)
    machine = relax.VirtualMachine(tvm_rammer.build(builder.get()).executable, tvm.cpu())
    given = tvm.runtime.tensor(np.ones((4, 6), "float32"))
    found = machine["main"](given)
    given.copyfrom(np.zeros((4, 6), "float32"))
    np.testing.assert_array_equal(found.numpy(), np.ones((8, 3)))


def test_results():
    for ends_in_it in (False, True):
        mod = module(ends_in_it)
        machine = relax.VirtualMachine(tvm_rammer.build(mod).executable, tvm.cpu())
        for shape in ((1, 1, 1, 4), (1, 6, 9, 4), (1, 33, 20, 4)):
            data = np.random.default_rng(0).standard_normal(shape).astype("float32")
            flat = data[:, ::2, ::2].reshape(-1, 4)
            found = machine["main"](tvm.runtime.tensor(data)).numpy()
            np.testing.assert_allclose(found, flat if ends_in_it else flat * flat, rtol=1e-6)
