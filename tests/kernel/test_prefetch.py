"""Register tiles prefetch the lines that they write and add to at their end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import (
    HOST,
    TARGET,
    VDEVICES,
    assert_close,
    constant,
    legalized_func,
    numbers,
    run_relax,
)
from tvm import relax, tirx
from tvm.ir import Call

from tvm_rammer.kernel.select import schedule

OP = relax.op


def fetched(func, vdevice=HOST):
    """Which parameters a tile prefetches, and whether for a store, statement by statement."""
    with TARGET:
        made = schedule(func, frozenset(), vdevice, 0.0).func
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


@pytest.mark.parametrize("l2_bytes", [1 << 12, 1 << 30])
def test_rows_of_data_that_no_near_cache_holds(l2_bytes):
    """The data of the next rows, while a tile of rows is summed up."""
    func = convolution(1, 256)
    data = [k for k, param in enumerate(func.params) if int(param.shape[-1]) == 256]
    reads = {number for number, store in fetched(func, replace(HOST, l2_bytes=l2_bytes))}
    image = next(k for k in data if int(func.params[k].shape[1]) == 7)
    assert (image in reads) == (l2_bytes < 1 << 20)


@settings(max_examples=8)
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 17)),
    channels=st.sampled_from([256, 257, 320]),
    columns=st.sampled_from([16, 24, 48]),
    vdevice=st.sampled_from(VDEVICES),
)
def test_products_whose_rows_are_prefetched(size, channels, columns, vdevice):
    """What lies beyond the last row is prefetched, and never read."""
    x, weight = numbers((1, *size, channels)), numbers((columns, 1, 1, channels), seed=1)

    def build(x):
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        return OP.nn.relu(OP.nn.conv2d(x, constant(weight), **layouts))

    (out,), origins = run_relax(build, x, vdevice=replace(vdevice, l2_bytes=1 << 10))
    want = x.astype(np.float64) @ weight[:, 0, 0].T
    assert_close(out, np.maximum(want, 0))
    assert origins == ["convolution"]
