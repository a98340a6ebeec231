"""All that counts or estimates refuses what it has not heard of, by name."""

from __future__ import annotations

import pytest
from tvm import te, tirx
from tvm.tirx.operator.tile_primitive import ops

from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.errors import ModelError
from tvm_rammer.kernel.code_size import code_size
from tvm_rammer.kernel.constraints import constraint_of
from tvm_rammer.kernel.footprint import footprints
from tvm_rammer.kernel.nodes import collect, expressions, parts_of, statements
from tvm_rammer.kernel.work import work_of
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS

X = tirx.decl_buffer((4,), "float32", "x")
START, STOP, INDEX = (tirx.Var(name, "int32") for name in ("start", "stop", "i"))
STORE = tirx.BufferStore(X, X[INDEX] + 1.0, [INDEX])
UNKNOWN_STATEMENT = ops.Zero(X[0:4], X[0:4])
UNKNOWN_VALUE = te.sum(tirx.const(1.0, "float32"), axis=te.reduce_axis((0, 4), "k"))

WALKS = {
    "estimate": lambda statement: tile_seconds(DEFAULT_SPEEDS, statement, 1, 0),
    "code size": code_size,
    "constraints": lambda statement: constraint_of(_body(statement)),
    "work": lambda statement: work_of(_body(statement), 1, [16]),
    "footprint": lambda statement: footprints(statement, {X: 0}, {}),
}


def _body(statement):
    return tirx.PrimFunc([START, STOP, X], statement)


def _inside(statement):
    """Somewhere in a statement."""
    loop = tirx.For(INDEX, 0, 4, tirx.ForKind.SERIAL, tirx.SeqStmt([tirx.Evaluate(0), statement]))
    return tirx.AttrStmt(0, "mark", 0, tirx.IfThenElse(START < 1, tirx.Evaluate(0), loop))


@pytest.mark.parametrize("walk", WALKS)
def test_a_statement_that_is_not_known_is_an_error(walk):
    with pytest.raises(ModelError) as error:
        WALKS[walk](_inside(UNKNOWN_STATEMENT))
    assert str(error.value) == (
        "a kernel has the statement tvm.tirx.tile_primitive.TilePrimitiveCall, and what it costs "
        "is not known: leave it out of the kernel, or report it with the model"
    )


@pytest.mark.parametrize("walk", ["estimate", "work"])
def test_an_expression_that_is_not_known_is_an_error(walk):
    with pytest.raises(ModelError) as error:
        WALKS[walk](_inside(tirx.BufferStore(X, UNKNOWN_VALUE, [INDEX])))
    assert str(error.value) == (
        "a kernel has the expression tvm.tirx.expr.Reduce, and what it costs is not known: "
        "leave it out of the kernel, or report it with the model"
    )


@pytest.mark.parametrize("statement", [tirx.Break(), tirx.Continue(), tirx.Return(tirx.const(0))])
def test_what_costs_nothing_is_known(statement):
    assert parts_of(statement) == ()


def test_parts_are_in_order():
    first, second = tirx.Evaluate(1), tirx.Evaluate(2)
    nested = tirx.SeqStmt([first, second])
    assert list(parts_of(nested)) == [first, second] == statements(nested)
    assert parts_of(tirx.IfThenElse(START < 1, first, second)) == [first, second]
    assert parts_of(tirx.IfThenElse(START < 1, first, None)) == [first]
    assert list(parts_of(tirx.For(INDEX, 0, 4, tirx.ForKind.SERIAL, STORE))) == [STORE]


def test_operands_come_before_what_is_made_of_them():
    value = STORE.value
    assert expressions(value)[-1].same_as(value)
    assert [type(node) for node in collect(value, tirx.Add, type(X[INDEX]))] == [
        type(X[INDEX]),
        tirx.Add,
    ]
