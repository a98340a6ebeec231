"""Concatenations are rounded part by part, and what is rounded already not again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from small_graphs import calls, run
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.relax_util import operator_name
from tvm_rammer.transform.round_parts import RoundParts


def scale(value: float = 0.5) -> Any:
    return relax.const(np.array([value], "float32"))


POINT = relax.const(np.array([3], "uint8"))
HALF, THIRD = scale(), scale(0.3)


@I.ir_module
class Concatenated:
    """Two parts, of which one has the steps of the whole already."""

    @R.function
    def main(x: R.Tensor((2, 3), "uint8"), y: R.Tensor((2, 4), "uint8")):
        with R.dataflow():
            a = R.dequantize(x, HALF, POINT, axis=1)
            b = R.dequantize(y, THIRD, POINT, axis=1)
            c = R.concat((a, b), axis=1)
            d = R.quantize(c, HALF, POINT, out_dtype="uint8", axis=1)
            e = R.dequantize(d, HALF, POINT, axis=1)
            f = R.nn.relu(e)
            R.output(f)
        return f


def names(mod: tvm.IRModule) -> list[str]:
    return [operator_name(call).removeprefix("relax.") for call in calls(mod["main"])]


def test_parts_are_rounded_and_the_concatenation_comes_last():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "uint8"), y: R.Tensor((2, 4), "uint8")):
            with R.dataflow():
                b = R.dequantize(y, THIRD, POINT, axis=1)
                rounded = R.quantize(b, HALF, POINT, out_dtype="uint8", axis=1)
                a = R.dequantize(x, HALF, POINT, axis=1)
                again = R.dequantize(rounded, HALF, POINT, axis=1)
                e = R.concat((a, again), axis=1)
                f = R.nn.relu(e)
                R.output(f)
            return f

    after = RoundParts()(Concatenated)
    tvm.ir.assert_structural_equal(after, Expected)
    tvm.ir.assert_structural_equal(RoundParts()(after), after)


def test_the_result_is_the_same():
    data = [
        np.arange(6, dtype="uint8").reshape(2, 3) * 40,
        np.arange(8, dtype="uint8").reshape(2, 4),
    ]
    (wanted,), (got,) = (
        run(relax.build(mod, "llvm"), data) for mod in (Concatenated, RoundParts()(Concatenated))
    )
    np.testing.assert_array_equal(got, wanted)


def module(first: Any, second: Any, dtype: str = "uint8") -> tvm.IRModule:
    """Steps in one scale that become steps in another."""
    point = relax.const(np.array([3], dtype))
    x = relax.Var("x", relax.TensorType((1 << 8,), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            real = builder.emit(relax.op.dequantize(x, first, point, 0))
            steps = builder.emit_output(relax.op.quantize(real, second, point, 0, dtype))
        builder.emit_func_output(steps)
    return builder.get()


def test_only_what_changes_nothing_goes():
    assert names(RoundParts()(module(HALF, scale()))) == []
    unlike = module(HALF, THIRD)
    assert RoundParts()(unlike).same_as(unlike)
    for value in (1e-38, 6e33, np.nan):
        extreme = module(scale(value), scale(value))
        assert RoundParts()(extreme).same_as(extreme)
    vector = scale().value.numpy().repeat(256)
    several = module(relax.const(vector), relax.const(vector))
    assert RoundParts()(several).same_as(several)


@pytest.mark.parametrize("value", [1.3e-38, 0.0173, 1 / 3, 7.1, 5e33])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_steps_come_back_as_they_were(dtype, value):
    """What the pass believes, computed."""
    mod = module(scale(value), scale(value), dtype)
    limits = np.iinfo(dtype)
    data = np.linspace(limits.min, limits.max, 256).astype(dtype)
    (got,) = run(relax.build(mod, "llvm"), [data])
    np.testing.assert_array_equal(got, data)


def test_a_concatenation_that_others_read_stays():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                c = R.concat((x, x), axis=1)
                d = R.quantize(c, HALF, POINT, out_dtype="uint8", axis=1)
                e = R.nn.relu(c)
                R.output(d, e)
            return (d, e)

    assert RoundParts()(Module).same_as(Module)


def test_a_module_without_roundings_stays():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                c = R.concat((x, x), axis=1)
                R.output(c)
            return c

    assert RoundParts()(Module).same_as(Module)
