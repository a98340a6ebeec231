"""Which rule takes a PrimFunc, and what is shared between equal ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from close import assert_close
from kernel_runs import HOST, TARGET, legalize, legalized_func, numbers, run_prim_func
from tvm import relax, te, tirx, topi
from tvm.s_tir import ScheduleError

from tvm_rammer.backend.cpu.templates import select
from tvm_rammer.backend.cpu.templates.select import schedule
from tvm_rammer.kernel.code_size import code_size
from tvm_rammer.kernel.scheduled import Scheduled
from tvm_rammer.region.eligibility import reason_to_leave_out
from tvm_rammer.region.kernel_library import KernelLibrary

OP = relax.op
X, W = numbers((4, 16)), numbers((16, 32))


def test_equal_operators_share_their_bodies():
    """Two PrimFuncs of one structure compile to one body."""
    library = KernelLibrary(HOST)
    first = library.get(legalized_func(OP.matmul, X, W), frozenset())
    second = library.get(legalized_func(OP.matmul, X, W), frozenset())
    other = library.get(legalized_func(OP.matmul, numbers((5, 16)), W), frozenset())
    names, again, others = (
        [candidate.name for candidate in kernel.stages[0].candidates]
        for kernel in (first, second, other)
    )
    assert names == again
    assert list(library.bodies) == [*names, *others]


def test_a_kernel_is_made_once():
    library = KernelLibrary(HOST)
    func = legalized_func(OP.matmul, X, W)
    assert library.get(func, frozenset()) is library.get(func, frozenset())
    assert library.get(func, frozenset([1])).packings
    assert not library.get(func, frozenset()).packings


@pytest.mark.parametrize(
    "build",
    [
        OP.matmul,
        lambda x, w: OP.nn.softmax(x, 1),
        lambda x, w: OP.cumsum(x, 1),
        lambda x, w: OP.concat([x, x], 0),
        lambda x, w: OP.argmax(x, 1),
    ],
    ids=["matmul", "softmax", "cumsum", "concat", "argmax"],
)
@pytest.mark.parametrize("constants", [(), (1,)])
def test_the_function_stays_as_it_was(build, constants):
    """Rules schedule a copy: the function may be a user's, and have other constants elsewhere."""
    func = _prim_func(build)
    before = func.script()
    first = schedule(func, frozenset(constants), HOST)
    assert func.script() == before
    again = schedule(func, frozenset(constants), HOST)
    tvm.ir.assert_structural_equal(first.func, again.func)
    KernelLibrary(HOST).get(func, frozenset(constants))
    assert func.script() == before


def _prim_func(build):
    funcs = legalize(build, X, W).functions_items()
    return next(f for _, f in funcs if isinstance(f, tvm.tirx.PrimFunc))


def test_a_scheduled_function_is_taken_as_it_is():
    func = schedule(legalized_func(OP.matmul, X, W), frozenset(), HOST).func
    given_schedule = func.with_attr("tirx.is_scheduled", True)
    taken = schedule(given_schedule, frozenset(), HOST)
    assert taken.origin == "as given"
    assert taken.func.same_as(given_schedule)
    run = run_prim_func(given_schedule, [X, W])
    assert_close(run.outputs[0], X @ W)


class _Refused:
    """A rule whose primitives refuse every function."""

    def apply(self, func, constants, vdevice):
        raise ScheduleError("refused")


def test_a_refused_schedule_is_left_to_the_next_rule(monkeypatch):
    monkeypatch.setattr(select, "RULES", (_Refused(), *select.RULES))
    assert schedule(legalized_func(OP.matmul, X, W), frozenset(), HOST).origin == "matmul"


def test_without_any_rule_a_function_is_one_tile(monkeypatch):
    """The last resort runs the untouched loop nest."""
    monkeypatch.setattr(select, "RULES", (_Refused(),))
    run = run_prim_func(legalized_func(OP.matmul, X, W), [X, W])
    assert (run.origin, run.tiles) == ("untouched", [1])
    assert_close(run.outputs[0], X @ W)


class _Unrolled:
    """A rule that writes out all of its steps, as a loop that is unrolled or as statements."""

    def __init__(self, steps, statements):
        self.steps, self.statements = steps, statements

    def apply(self, func, constants, vdevice):
        x, y = func.params
        number = tirx.Var("number", "int64")

        def step(place):
            return tirx.BufferStore(
                y, tirx.BufferLoad(x, [place]) + tirx.FloatImm("float32", 1), [place]
            )

        if self.statements:
            body = tirx.SeqStmt([step(tirx.const(k, "int64")) for k in range(self.steps)])
        else:
            bounds = (tirx.const(0, "int64"), tirx.const(self.steps, "int64"))
            body = tirx.For(number, *bounds, tirx.ForKind.UNROLLED, step(number))
        tile = tirx.Var("tile", "int64")
        one = (tirx.const(0, "int64"), tirx.const(1, "int64"))
        loop = tirx.For(tile, *one, tirx.ForKind.PARALLEL, body)
        return Scheduled(func.with_body(loop).with_attr("global_symbol", "main"), "unrolled", "")


@pytest.mark.parametrize(
    ("steps", "statements", "origin", "most"),
    [
        (500, False, "unrolled", 500),
        (500, True, "unrolled", 500),
        # Beyond the budget a loop is left a loop, and of what has none the next rule makes less.
        (5000, False, "unrolled", 1),
        (5000, True, "elementwise", 8),
    ],
)
def test_no_body_is_larger_than_the_budget(monkeypatch, steps, statements, origin, most):
    monkeypatch.setattr(select, "RULES", (_Unrolled(steps, statements), *select.RULES))
    x = numbers((steps,))
    one = relax.const(1.0, "float32")
    run = run_prim_func(legalized_func(lambda x: OP.add(x, one), x), [x])
    assert_close(run.outputs[0], x + 1)
    assert run.origin == origin
    assert code_size(run.kernel.scheduled.func.body).statements <= most


def test_a_function_too_large_to_be_inlined_keeps_results():
    """Only rules that keep results are asked; a sum stays one, with an epilogue in parts."""
    x, w = te.placeholder((5, 16), name="x"), te.placeholder((16, 32), name="w")
    y = topi.matmul(x, w)
    for _ in range(16):
        y = topi.add(topi.divide(topi.multiply(y, y), 2.0), y)
    # From -1 to 0 the chain comes to rest and does not magnify what rounding leaves.
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0, 0.25, shape).astype("float32") for shape in ((5, 16), (16, 32)))
    a = -a
    run = run_prim_func(te.create_prim_func([x, w, y]), [a, b], (1,))
    want = a.astype("float64") @ b
    for _ in range(16):
        want = want * want / 2 + want
    assert_close(run.outputs[0], want)
    assert run.origin == "generic"
    assert code_size(run.kernel.scheduled.func.body).nodes < 50_000


@pytest.mark.parametrize("build", [OP.sort, OP.argsort, lambda x: OP.topk(x, 3, ret_type="values")])
def test_calls_into_libraries_are_left_out(build):
    """Sorting is a call of a packed function: no rKernel, but a reason."""
    mod = legalize(build, X)
    (binding,) = [
        binding
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call)
    ]
    assert reason_to_leave_out(binding.value, mod) == "packed call"


def test_costs_grow_with_the_work():
    """More work in all takes longer, transcendental functions more than additions."""

    def seconds(build, *inputs):
        with TARGET:
            kernel = KernelLibrary(HOST).get(legalized_func(build, *inputs), frozenset())
        return sum(s.kernel.tile_time * s.kernel.num_tiles for s in kernel.stages)

    small, large = numbers((16, 64)), numbers((64, 64))
    assert 0 < seconds(OP.add, small, small) < seconds(OP.add, large, large)
    assert seconds(OP.add, large, large) < seconds(OP.tanh, large) < 1e-3
    assert seconds(OP.matmul, small, large) < seconds(OP.matmul, large, large)


def test_the_tile_is_told():
    """The kernel says which rule made it, and its tile in words."""
    wide = replace(HOST, vector_bytes=64, vector_registers=32)
    kernel = KernelLibrary(wide).get(legalized_func(OP.matmul, X, W), frozenset())
    told = kernel.stages[0].kernel
    assert (told.origin, told.tiling) == ("matmul", "4 x 2 vectors of 16")
