"""Whatever the model, the pipeline gives TVM's own results under stock ``relax.build``."""

from __future__ import annotations

import numpy as np
import tvm
from close import assert_close
from small_graphs import TARGET, compiled, run
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.region.marks import read_left_out

FORMS = ("program", "wavefront", "per-op")

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")


def assert_agrees(
    mod: tvm.IRModule, *inputs: np.ndarray, forms: tuple[str, ...] = ("program",)
) -> None:
    """The results are those of TVM's own pipeline, in shape and dtype too."""
    want = run(relax.build(mod, "llvm"), inputs)
    for form in forms:
        built = relax.build(mod, TARGET, relax_pipeline=tvm_rammer.pipeline(form=form))
        got = run(built, inputs)
        assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want]
        for left, right in zip(got, want, strict=True):
            assert_close(left, right)


def test_nested_tuples_inputs_as_outputs_and_unused_inputs():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float32"),
            y: R.Tensor((4, 8), "float32"),
            unused: R.Tensor((3,), "float32"),
        ):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.exp(y)
                c = R.matmul(a, R.permute_dims(b))
                d = R.nn.relu(c)
                result = (a, (d, x), b)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8), floats(4, 8), floats(3), forms=FORMS)


def test_an_input_that_is_returned_at_once():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                result = (x, x)
                R.output(result)
            return result

    assert_agrees(Module, floats(4))


def test_outputs_that_are_constants():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.nn.softmax(R.multiply(x, x))
                result = (R.const([1.0, 2.0], "float32"), a, b)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8))


def test_duplicate_operators_and_outputs():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.nn.softmax(x)
                c = R.nn.softmax(a)
                result = (a, b, a, c)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8))


def test_an_operator_on_one_tensor_twice_beside_one_on_two():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.subtract(x, x)
                b = R.subtract(y, x)
                c = R.nn.softmax(b)
                result = (a, b, c)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8), floats(4, 8))


def test_scalar_inputs_and_results():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), scale: R.Tensor((), "float32")):
            with R.dataflow():
                a = R.multiply(x, scale)
                b = R.sum(a)
                c = R.nn.softmax(a)
                d = R.add(b, scale)
                result = (b, c, d)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8), floats())


def test_integers_and_booleans():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((4, 8), "int32"),
            y: R.Tensor((4, 8), "int64"),
            z: R.Tensor((4, 8), "bool"),
            u: R.Tensor((4, 8), "uint8"),
        ):
            with R.dataflow():
                a = R.add(x, x)
                b = R.astype(y, "int32")
                c = R.floor_divide(a, R.const(3, "int32"))
                d = R.greater(b, c)
                e = R.logical_and(d, z)
                f = R.where(e, a, b)
                g = R.sum(f, axis=1)
                h = R.argmax(x, axis=1)
                i = R.add(u, u)
                result = (c, d, e, f, g, h, i)
                R.output(result)
            return result

    numbers = np.arange(32).reshape(4, 8)
    assert_agrees(
        Module,
        (numbers - 16).astype("int32"),
        numbers * 2 - 10,
        numbers % 3 == 0,
        numbers.astype("uint8"),
        forms=("program", "per-op"),
    )


def test_half_and_double_precision():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float64"), y: R.Tensor((4, 8), "float16")):
            with R.dataflow():
                a = R.matmul(x, R.permute_dims(x))
                b = R.nn.relu(R.add(y, y))
                c = R.add(R.astype(b, "float64"), x)
                result = (a, b, c)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8).astype("float64"), floats(4, 8).astype("float16"))


def test_views_of_inputs_results_and_each_other():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                r = R.reshape(x, (8, 4))
                a = R.nn.softmax(x)
                b = R.reshape(a, (32,))
                c = R.reshape(b, (2, 16))
                d = R.nn.softmax(c)
                e = R.nn.softmax(r)
                result = (r, b, c, d, e)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8))


def test_a_split_whose_parts_and_whole_are_used():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                halves = R.split(x, 2, axis=1)
                left = halves[0]
                right = halves[1]
                a = R.nn.softmax(left)
                b = R.concat((a, right), axis=1)
                result = (halves, b, left)
                R.output(result)
            return result

    assert_agrees(Module, floats(4, 8), forms=FORMS)


def test_empty_tensors():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((0, 8), "float32"), y: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.softmax(y)
                c = R.concat((a, b), axis=0)
                d = R.nn.softmax(c)
                R.output(a, d)
            return (a, d)

    assert_agrees(Module, floats(0, 8), floats(4, 8))


def test_a_single_operator():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    assert_agrees(Module, floats(4, 8))


def test_no_operator_and_no_input():
    @I.ir_module
    class Module:
        @R.function
        def main():
            return R.const([1.0, 2.0], "float32")

    assert_agrees(Module)


def test_operators_outside_of_dataflow_blocks():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            a = R.nn.softmax(x)
            b = R.matmul(a, R.permute_dims(x))
            with R.dataflow():
                c = R.nn.softmax(b)
                d = R.matmul(c, b)
                R.output(c, d)
            return (a, d)

    assert_agrees(Module, floats(4, 8))


def test_control_flow():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), p: R.Tensor((), "bool")) -> R.Tensor(
            (4, 8), "float32"
        ):
            if p:
                e = R.exp(x)
                y = R.multiply(e, e)
            else:
                y = R.tanh(x)
            return y

    assert_agrees(Module, floats(4, 8), np.array(True))
    assert_agrees(Module, floats(4, 8), np.array(False))


def test_sorting_of_long_rows_between_regions():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 600), "float32")):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.sort(a, axis=1)
                c = R.topk(x, 40, axis=1)
                d = R.exp(x)
                e = R.nn.softmax(R.add(b, d))
                f = R.nn.softmax(c[0])
                g = R.matmul(f, R.permute_dims(f))
                R.output(e, c, g)
            return (e, c, g)

    assert_agrees(Module, floats(4, 600), forms=FORMS)
    reasons = {item.reason for item in read_left_out(compiled(Module))}
    assert reasons == {
        "operator without a PrimFunc (relax.sort)",
        "operator without a PrimFunc (relax.topk)",
    }


def test_dynamic_shapes_beside_static_ones():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.nn.softmax(y)
                c = R.matmul(y, R.permute_dims(b))
                d = R.matmul(a, R.permute_dims(y))
                R.output(a, b, c, d)
            return (a, b, c, d)

    for rows in (1, 5):
        assert_agrees(Module, floats(rows, 8), floats(4, 8), forms=("program", "per-op"))
    reasons = {item.reason for item in read_left_out(compiled(Module))}
    assert reasons == {"dynamic shape"}


def test_match_cast():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            n = T.int64()
            with R.dataflow():
                y = R.match_cast(x, R.Tensor((4, 8), "float32"))
                a = R.nn.softmax(y)
                b = R.matmul(a, R.permute_dims(y))
                c = R.reshape(x, (n * 8,))
                R.output(a, b, c)
            return (a, b, c)

    assert_agrees(Module, floats(4, 8))


def test_subroutines():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            cls = Module
            with R.dataflow():
                a: R.Tensor((4, 8), "float32") = cls.block(x)
                b: R.Tensor((4, 8), "float32") = cls.block(a)
                R.output(b)
            return b

        @R.function(private=True)
        def block(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            with R.dataflow():
                a = R.nn.softmax(x)
                b = R.exp(x)
                c = R.multiply(a, b)
                d = R.nn.softmax(c)
                R.output(d)
            return d

    assert_agrees(Module, floats(4, 8))


def test_a_prim_func_of_the_user_that_is_scheduled_already():
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True, private=True)
        def twice(x: T.Buffer((T.int64(32),), "float32"), y: T.Buffer((T.int64(32),), "float32")):
            T.func_attr({"tirx.is_scheduled": True})
            for i in T.parallel(T.int64(4)):
                for j in T.vectorized(T.int64(8)):
                    with T.sblock("twice"):
                        v = T.axis.spatial(T.int64(32), i * T.int64(8) + j)
                        y[v] = x[v] * T.float32(2)

        @R.function
        def main(x: R.Tensor((32,), "float32")):
            cls = Module
            with R.dataflow():
                a = R.call_tir(cls.twice, (x,), out_ty=R.Tensor((32,), "float32"))
                b = R.nn.softmax(a)
                c = R.call_tir(cls.twice, (b,), out_ty=R.Tensor((32,), "float32"))
                R.output(a, c)
            return (a, c)

    assert_agrees(Module, floats(32), forms=FORMS)


def test_parameters_bound_as_constants_stay_constants():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                c = R.matmul(b, w)
                R.output(c)
            return c

    bound = relax.transform.BindParams("main", {"w": floats(8, 8)})(Module)
    assert len(compiled(bound)["main"].params) == 1
    assert_agrees(bound, floats(4, 8))
