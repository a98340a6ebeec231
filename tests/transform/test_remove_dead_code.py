"""What nothing reads is removed, as TVM's DeadCodeElimination removes it."""

from __future__ import annotations

import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tvm_rammer.transform.remove_dead_code import RemoveDeadCode

OP = relax.op


@st.composite
def modules(draw):
    """A function of several blocks in which much is never read, and one that nobody calls."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        results = [x]

        def emit(count):
            inside = list(results)
            for _ in range(count):
                reads = [draw(st.sampled_from(inside)) for _ in range(2)]
                if draw(st.booleans()):
                    pieces = builder.emit(OP.split(reads[0], 2))
                    inside.append(builder.emit(OP.concat([pieces[1], pieces[1]])))
                else:
                    inside.append(builder.emit(OP.add(*reads)))
            return inside

        for _ in range(draw(st.integers(1, 3))):
            with builder.dataflow():
                inside = emit(draw(st.integers(1, 8)))
                last = builder.emit_output(OP.abs(draw(st.sampled_from(inside))))
            results.append(last)
            results.append(builder.emit(OP.negative(draw(st.sampled_from(results)))))
        builder.emit_func_output(draw(st.sampled_from(results)))
    y = relax.Var("y", x.ty)
    with builder.function("unused", [y], private=True):
        builder.emit_func_output(builder.emit(OP.abs(y)))
    return builder.get()


@settings(max_examples=100)
@given(modules())
def test_any_module(mod):
    want = relax.transform.DeadCodeElimination()(mod)
    tvm.ir.assert_structural_equal(RemoveDeadCode()(mod), want)
    assert [symbol.name_hint for symbol in want.get_global_vars()] == ["main"]
