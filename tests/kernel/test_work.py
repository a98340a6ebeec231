"""Operations and bytes are those of the algorithm, however it is cut into tiles."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import TARGET, VDEVICES, constant, legalized_func, numbers
from tvm import relax, tirx

from tvm_rammer.kernel.iterations import Iterations
from tvm_rammer.kernel.roofline import roofline
from tvm_rammer.kernel.work import TRANSCENDENTAL_FLOPS, Work, work_of
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.region.kernel_library import KernelLibrary
from tvm_rammer.rprogram import dtype_bytes

OP = relax.op
sizes = st.integers(1, 40)


def work(build, *inputs, constants=(), vdevice=VDEVICES[0], tolerance=0.0):
    """The work of all stages of what a Relax expression becomes."""
    func = legalized_func(build, *inputs)
    library = KernelLibrary(vdevice, tolerance)
    with TARGET:
        kernel = library.get(func, frozenset(constants))
    buffers = [(list(map(int, p.shape)), str(p.dtype)) for p in func.params]
    buffers += [(list(item.shape), item.dtype) for item in kernel.scratch]
    total = Work(0, 0)
    for stage in kernel.stages:
        operands = [nbytes(*buffers[number]) for number in stage.arguments]
        body = library.bodies[stage.kernel.name]
        total += work_of(body, stage.kernel.num_tiles, operands)
    return total


def nbytes(shape, dtype):
    product = dtype_bytes(dtype)
    for size in shape:
        product *= size
    return product


@given(rows=sizes, columns=sizes, depth=sizes, vdevice=st.sampled_from(VDEVICES))
@settings(max_examples=12, deadline=None)
def test_a_product_has_two_operations_for_each_pair(rows, columns, depth, vdevice):
    """Also where the last tile is smaller; columns that fill no vector may be padded to one."""
    x, w = numbers((rows, depth)), numbers((depth, columns))
    found = work(lambda a: OP.matmul(a, constant(w)), x, constants=[1], vdevice=vdevice)
    product = 2 * rows * columns * depth
    assert product * (1 - 1e-6) <= found.flops <= 2 * rows * (columns + 15) * depth
    if columns % 16 == 0:
        assert found.flops == pytest.approx(product)
    assert found.nbytes >= 4 * (rows * depth + depth * columns + rows * columns)
    assert found.nbytes <= 4 * (rows * depth + depth * (columns + 15) + rows * (columns + 15))


def test_what_is_padded_counts_if_it_is_multiplied():
    """A kernel may skip the padding; what is inside of the image it cannot."""
    x, w = numbers((1, 13, 13, 16)), numbers((32, 3, 3, 16))

    def build(a):
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        return OP.nn.relu(OP.nn.conv2d(a, constant(w), padding=1, **layouts))

    found = work(build, x, constants=[1])
    outputs = 13 * 13 * 32
    inside = (3 * 13 - 2) ** 2  # taps of all outputs in the image, in both directions
    least = 2 * 32 * 16 * inside + outputs
    assert least * (1 - 1e-6) <= found.flops <= outputs * (2 * 9 * 16 + 1) * (1 + 1e-6)
    assert found.nbytes == x.nbytes + w.nbytes + 4 * outputs


def test_transcendental_functions_count_as_stated():
    x = numbers((8, 64))
    assert work(OP.tanh, x) == Work(x.size * TRANSCENDENTAL_FLOPS, 2 * x.nbytes)
    assert work(OP.sqrt, x) == Work(x.size, 2 * x.nbytes)
    assert work(OP.nn.relu, x) == Work(x.size, 2 * x.nbytes)


def test_of_a_table_only_the_rows_that_are_taken_count():
    table, rows = numbers((10_000, 32)), numbers((3,), "int64")
    found = work(lambda a, b: OP.take(a, b, axis=0), table, rows)
    assert found.flops == 0
    assert 2 * 3 * 32 * 4 <= found.nbytes <= 3 * 32 * (4 + 4 + 8)


def test_integers_are_no_floating_point_operations():
    x = numbers((8, 64), "int32")
    assert work(OP.nn.relu, x) == Work(0, 2 * x.nbytes)


@given(
    extents=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    limits=st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 12)), max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_conditions_count_as_often_as_they_hold(extents, limits):
    """Each limit bounds the sum of two loop variables, which may be the same."""
    variables = [tirx.Var(f"i{k}", "int32") for k in range(len(extents))]
    around = Iterations()
    for variable, extent in zip(variables, extents, strict=True):
        loop = tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, tirx.Evaluate(0))
        around = around.inside(loop)
    pairs = [(k % len(extents), (k + 1) % len(extents), most) for k, most in limits]
    for one, other, most in pairs:
        around = around.where(variables[one] + variables[other] < most)

    def counted(chosen):
        if len(chosen) < len(extents):
            return sum(counted([*chosen, value]) for value in range(extents[len(chosen)]))
        return all(chosen[one] + chosen[other] < most for one, other, most in pairs)

    assert around.times == pytest.approx(counted([]))


def test_loops_may_depend_on_loops_and_conditions_on_data():
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    data = tirx.decl_buffer((8,), "int32", name="data")
    nothing = tirx.Evaluate(0)
    outer = Iterations().inside(tirx.For(i, 0, 8, tirx.ForKind.SERIAL, nothing))
    triangle = outer.inside(tirx.For(j, 0, i + 1, tirx.ForKind.SERIAL, nothing))
    assert triangle.times == pytest.approx(8 * 9 / 2)
    assert outer.where(data[i] < 3).times == 8
    k = tirx.Var("k", "int32")
    assert outer.let(k, i * 2).where(tirx.likely(k < 6)).times == 3


def test_the_roofline_is_the_slower_of_computing_and_reading():
    core = Ceilings(flops=1e9, l1=8e9, l2=4e9, l3=2e9, dram=1e9)
    vdevice = VDevice("core", l2_bytes=1000, l3_bytes=2000)
    compute = roofline(Work(1000, 1000), 1000, core, vdevice)
    assert (compute.seconds, compute.limit) == (1e-6, "compute")
    far = roofline(Work(1000, 3000), 3000, core, vdevice)
    assert (far.seconds, far.limit) == (3e-6, "dram")
    assert roofline(Work(0, 1000), 1500, core, vdevice).seconds == pytest.approx(0.5e-6)


def test_vectors_count_with_all_their_lanes():
    """A body may hold vectors instead of vectorised loops."""
    pointer = tirx.Var("p0", tvm.ir.PointerType(tvm.ir.PrimType("float32")))
    start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
    view = tirx.decl_buffer((16,), "float32", name="view")
    ramp = tirx.Ramp(0, 1, 16)
    loaded = view.vload([ramp], "float32x16")
    store = tirx.BufferStore(view, loaded + loaded * loaded, [ramp])
    body = tirx.SeqStmt([tirx.DeclBuffer(view, data=pointer), store])
    func = tirx.PrimFunc([start, stop, pointer], body)
    assert work_of(func, 1, [64]) == Work(32, 64)
