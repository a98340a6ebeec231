"""A loop that binds names stays a loop where it calls what takes no vectors."""

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.lowering import lowering_pipeline
from tvm_rammer.backend.cpu.codegen.scalar_calls import KeepScalarCallsInLoops
from tvm_rammer.kernel.nodes import collect

NUMBERS = np.linspace(-0.4, 0.4, 16, dtype=np.float32)


@T.prim_func(s_tir=True)
def doubled_angle(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "run"})
    for lane in T.vectorized(16):
        value: T.let[T.float32] = x[lane] + x[lane]
        y[lane] = T.asin(value)


@T.prim_func(s_tir=True)
def doubled_root(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "run"})
    for lane in T.vectorized(16):
        value: T.let[T.float32] = x[lane] + x[lane]
        y[lane] = T.sqrt(T.fabs(value))


@pytest.mark.parametrize(
    ("func", "expected", "kind"),
    [
        (doubled_angle, np.arcsin(2 * NUMBERS), tirx.ForKind.SERIAL),
        (doubled_root, np.sqrt(np.abs(2 * NUMBERS)), tirx.ForKind.VECTORIZED),
    ],
    ids=["of libm", "of vectors"],
)
def test_a_loop_that_binds_names_stays_one_where_a_call_takes_no_vectors(func, expected, kind):
    mod = tvm.IRModule({"run": func})
    (loop,) = collect(KeepScalarCallsInLoops()(mod)["run"].body, tirx.For)
    assert loop.kind == kind
    built = tvm.tirx.build(mod, target=resolve_target(None), pipeline=lowering_pipeline())
    x, y = tvm.runtime.tensor(NUMBERS), tvm.runtime.empty((16,), "float32")
    built["run"](x, y)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
