"""Register tiles prefetch the lines that they write and add to at their end."""

from __future__ import annotations

import tvm_ffi
from kernel_runs import HOST, TARGET, constant, legalized_func, numbers
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.kernel.select import schedule

OP = relax.op


def fetched(func):
    """Which parameters a tile prefetches, and whether for a store, statement by statement."""
    with TARGET:
        made = schedule(func, frozenset(), HOST, 0.0).func
    calls = []
    tvm_ffi.structural_walk(made.body, (Call, calls.append))
    prefetched = [call for call in calls if call.op.name == "tirx.prefetch"]
    params = {param: number for number, param in enumerate(made.params)}
    return [(params[call.args[0].args[0].source], int(call.args[1])) for call in prefetched]


def convolution(kernel, channels, layout="NHWC"):
    x = numbers((1, 7, 7, channels) if layout == "NHWC" else (1, channels, 7, 7))
    weight = constant(numbers((16, kernel, kernel, channels)))
    bias = constant(numbers((16,) if layout == "NHWC" else (16, 1, 1), seed=1))
    more = numbers((1, 7, 7, 16) if layout == "NHWC" else (1, 16, 7, 7), seed=2)

    def build(x, more):
        options = {"data_layout": layout, "kernel_layout": "OHWI", "padding": kernel // 2}
        return OP.add(OP.add(OP.nn.conv2d(x, weight, **options), bias), more)

    return legalized_func(build, x, more)


def test_the_result_and_what_is_added_to_it():
    """The bias, which is the same in every row, is in a cache anyway."""
    func = convolution(1, 64)
    found = fetched(func)
    result = len(func.params) - 1
    assert {number for number, store in found if store} == {result}
    read = {number for number, store in found if not store}
    assert [tuple(map(int, func.params[number].shape)) for number in read] == [(1, 7, 7, 16)]
    assert found.count((result, 1)) == found.count((*read, 0)) >= 7


def test_tiles_of_few_steps_prefetch_nothing():
    assert fetched(convolution(1, 63)) == []


def test_vectors_that_memory_does_not_hold_as_such_are_not_prefetched():
    """In NCHW every channel of a vector is in a line of its own."""
    assert fetched(convolution(3, 64, "NCHW")) == []


def test_a_matrix_by_a_vector_has_no_rows_to_prefetch():
    weight = constant(numbers((128, 64)))
    func = legalized_func(lambda x: OP.matmul(x, weight), numbers((1, 128)))
    assert isinstance(func, tirx.PrimFunc)
    assert fetched(func) == []
