"""Storages whose sizes each run decides have as many bytes as a power of two."""

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_rammer.relax_util import calls_of, operator_name
from tvm_rammer.transform.round_storages import RoundStorages

ALLOC = "relax.memory.alloc_storage"


def module(size):
    """A function that makes a storage of some bytes for a tensor of n numbers."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], pure=False):
        shape = relax.ShapeExpr([size(n)])
        storage = builder.emit(relax.op.memory.alloc_storage(shape, 0, "global", "uint8"))
        made = relax.op.memory.alloc_tensor(storage, 0, relax.ShapeExpr([n]), "float32")
        builder.emit_func_output(builder.emit(made))
    return builder.get()


def sizes(mod):
    """The bytes of the storages, and the name that they are of."""
    found = [call.args[0].values[0] for call in calls_of(mod) if operator_name(call) == ALLOC]
    return found, mod["main"].params[0].ty.shape.values[0]


def test_open_sizes_become_powers_of_two():
    (bytes_,), n = sizes(RoundStorages()(module(lambda n: n * 12)))
    count = te.placeholder((n,), "int64", name="count")
    result = te.compute((1,), lambda i: bytes_, "bytes")
    function = tvm.compile(te.create_prim_func([count, result]), "llvm")
    for number in (1, 2, 5, 6, 341, 342, 10**6):
        found = tvm.runtime.tensor(np.zeros(1, np.int64))
        function(tvm.runtime.tensor(np.zeros(number, np.int64)), found)
        (rounded,) = found.numpy()
        assert rounded // 2 < number * 12 <= rounded and rounded & (rounded - 1) == 0


def test_known_sizes_stay():
    before = module(lambda n: 48)
    assert RoundStorages()(before).same_as(before)
