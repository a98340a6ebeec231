"""A function that is one kernel's call is recognised, and nothing else is."""

import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_rammer.region.direct_call import DirectCall, direct_call

X = relax.TensorType((4,), "float32")
KERNELS = {"kernel"}
ARENA = relax.TensorType((64,), "uint8")


def function(build, params=2) -> relax.Function:
    """``main(x0, ...)`` returning what ``build(builder, params)`` makes."""
    variables = [relax.Var(f"x{k}", X) for k in range(params)]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(build(builder, variables), "result")
        builder.emit_func_output(result)
    return builder.get()["main"]


def kernel(builder, *inputs, outputs=2):
    """The tuple of a kernel's outputs and its arena, the way that CoSchedule makes it."""
    table = relax.const(1, "int32")
    arguments = relax.Tuple([*inputs, table, table])
    return builder.emit(relax.call_dps_packed("kernel", arguments, [X] * outputs + [ARENA]))


def test_a_kernel_that_takes_the_parameters_and_gives_the_results():
    def build(builder, params):
        results = kernel(builder, *params)
        return relax.Tuple([builder.emit(relax.TupleGetItem(results, k)) for k in (0, 1)])

    assert direct_call(function(build), KERNELS) == DirectCall("kernel", (0, 1), (0, 1))


def test_a_single_result():
    def build(builder, params):
        return relax.TupleGetItem(kernel(builder, *params, outputs=1), 0)

    assert direct_call(function(build), KERNELS) == DirectCall("kernel", (0, 1), (0,))


def test_parameters_and_results_may_be_permuted_repeated_and_unused():
    def build(builder, params):
        results = kernel(builder, params[2], params[0], params[2])
        order = [builder.emit(relax.TupleGetItem(results, k)) for k in (1, 0, 1)]
        return relax.Tuple(order)

    assert direct_call(function(build, 4), KERNELS) == DirectCall("kernel", (2, 0, 2), (1, 0, 1))


def test_copies_are_looked_through():
    def build(builder, params):
        results = builder.emit(kernel(builder, *params, outputs=1))
        return builder.emit(builder.emit(relax.TupleGetItem(results, 0)))

    assert direct_call(function(build), KERNELS) == DirectCall("kernel", (0, 1), (0,))


def returns_a_parameter(builder, params):
    results = kernel(builder, *params)
    return relax.Tuple([builder.emit(relax.TupleGetItem(results, 0)), params[0]])


def returns_a_constant(builder, params):
    results = kernel(builder, *params)
    return relax.Tuple([builder.emit(relax.TupleGetItem(results, 0)), relax.const([1.0])])


def returns_the_tuple(builder, params):
    return kernel(builder, *params)


def returns_a_nested_tuple(builder, params):
    item = builder.emit(relax.TupleGetItem(kernel(builder, *params), 0))
    return relax.Tuple([item, relax.Tuple([item])])


def takes_a_constant(builder, params):
    constant = relax.const([1.0, 2.0, 3.0, 4.0], "float32")
    return relax.TupleGetItem(kernel(builder, params[0], constant, outputs=1), 0)


def calls_two_kernels(builder, params):
    first = builder.emit(relax.TupleGetItem(kernel(builder, *params, outputs=1), 0))
    return relax.TupleGetItem(kernel(builder, first, params[1], outputs=1), 0)


def computes_more(builder, params):
    more = builder.emit(relax.op.tanh(params[0]))
    item = builder.emit(relax.TupleGetItem(kernel(builder, *params, outputs=1), 0))
    return relax.Tuple([item, more])


def calls_none(builder, params):
    return params[0]


@pytest.mark.parametrize(
    "build",
    [
        returns_a_parameter,
        returns_a_constant,
        returns_the_tuple,
        returns_a_nested_tuple,
        takes_a_constant,
        calls_two_kernels,
        computes_more,
        calls_none,
    ],
)
def test_everything_else_needs_the_vm(build):
    assert direct_call(function(build), KERNELS) is None


def test_another_packed_function_is_no_kernel():
    def build(builder, params):
        return relax.TupleGetItem(kernel(builder, *params, outputs=1), 0)

    assert direct_call(function(build), {"another"}) is None


def test_the_guard_is_no_obstacle():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            R.call_packed("tvm_rammer_guard", ty_args=R.Tuple)
            with R.dataflow():
                both = R.call_dps_packed(
                    "kernel",
                    (x, R.const(1), R.const(1)),
                    out_ty=[R.Tensor((4,), "float32"), R.Tensor((64,), "uint8")],
                )
                y = both[0]
                R.output(y)
            return y

    assert direct_call(Module["main"], KERNELS) == DirectCall("kernel", (0,), (0,))


def test_what_computes_besides_the_kernel_is_not_forgotten():
    """An effect that no result shows, such as a print, must not be lost."""

    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            R.print(format="hello")
            with R.dataflow():
                both = R.call_dps_packed(
                    "kernel",
                    (x, R.const(1), R.const(1)),
                    out_ty=[R.Tensor((4,), "float32"), R.Tensor((64,), "uint8")],
                )
                y = both[0]
                R.output(y)
            return y

    assert direct_call(Module["main"], KERNELS) is None
