"""Register tiles prefetch the lines that they write and add to at their end."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import tvm_ffi
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import TARGET, VDEVICES, constant, legalized_func, numbers, run_relax
from tvm import relax, sym, tirx
from tvm.ir import Call

from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.kernel.nodes import statements, substitute

OP = relax.op
#: A tile of this one has all seven rows.
WIDE = VDEVICES[0]


def fetched(func, vdevice=WIDE):
    """Which parameters a tile prefetches, and whether for a store, statement by statement."""
    with TARGET:
        made = schedule(func, frozenset(), vdevice, 0.0).func
    calls = []
    tvm_ffi.structural_walk(made.body, (Call, calls.append))
    prefetched = [call for call in calls if call.op.name == "tirx.prefetch"]
    params = {param: number for number, param in enumerate(made.params)}
    return [(params[call.args[0].args[0].source], int(call.args[1])) for call in prefetched]


def prefetched_rows(statement, loops=()):
    """In which column of the image every prefetch is, turn by turn of the loops around it."""
    if isinstance(statement, tirx.SeqStmt):
        return [found for inner in statement.seq for found in prefetched_rows(inner, loops)]
    if isinstance(statement, tirx.IfThenElse):
        return prefetched_rows(statement.then_case, loops)
    if isinstance(statement, tirx.For):
        return prefetched_rows(statement.body, (*loops, statement))
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    if call is None or call.op.name != "tirx.prefetch":
        return []
    column = call.args[0].args[0].indices[2]
    turns = product(*(range(int(loop.extent)) for loop in loops))
    analyzer = sym.Analyzer()

    def value(turn):
        pairs = zip(loops, turn, strict=True)
        numbers = {loop.loop_var: tirx.const(number, "int64") for loop, number in pairs}
        return int(analyzer.simplify(substitute(column, numbers)))

    return [[value(turn) for turn in turns]]


def convolution(kernel, channels, layout="NHWC", columns=16):
    x = numbers((1, 7, 7, channels) if layout == "NHWC" else (1, channels, 7, 7))
    weight = constant(numbers((columns, kernel, kernel, channels)))
    bias = constant(numbers((columns,) if layout == "NHWC" else (columns, 1, 1), seed=1))
    more = numbers((1, 7, 7, columns) if layout == "NHWC" else (1, columns, 7, 7), seed=2)

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
    assert found.count((result, 1)) == found.count((*read, 0)) == 1


@pytest.mark.parametrize(("kernel", "channels"), [(1, 24), (1, 64), (1, 127), (1, 1100)])
def test_rows_one_after_another(kernel, channels):
    """All rows of a tile, few of others, the last one with time left to arrive."""
    with TARGET:
        made = schedule(convolution(kernel, channels), frozenset(), WIDE, 0.0).func
    tasks = statements(made.body)[-1]
    task = substitute(tasks.body, {tasks.loop_var: tirx.const(0, "int64")})
    found = prefetched_rows(task)
    assert found
    for columns in found:
        assert set(range(7)) <= set(columns) <= set(range(8))
        assert columns.index(6) < 0.8 * len(columns)


def test_tiles_of_few_steps_prefetch_nothing():
    assert fetched(convolution(1, 23)) == []


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
    func = convolution(1, 64, columns=32)
    data = [k for k, param in enumerate(func.params) if int(param.shape[-1]) == 64]
    reads = {number for number, store in fetched(func, replace(WIDE, l2_bytes=l2_bytes))}
    image = next(k for k in data if int(func.params[k].shape[1]) == 7)
    assert (image in reads) == (l2_bytes < 1 << 20)


def test_steps_of_few_sums_have_no_time_to_prefetch_rows():
    """With 16 registers of 8 elements a step has 12 sums at most."""
    func, device = convolution(1, 64, columns=32), VDEVICES[1]
    assert device.vector_registers == 16
    near, far = (replace(device, l2_bytes=l2_bytes) for l2_bytes in (1 << 30, 1 << 12))
    assert fetched(func, far) == fetched(func, near)


@settings(max_examples=8)
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 17)),
    channels=st.sampled_from([64, 65, 320]),
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
