"""Recurrent operators of which the run decides how many steps or sequences there are.

TVM's importer leaves them to us: one product of all inputs, then a loop over the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, sym
from tvm.relax import op

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.onnx.recurrent.activations import activations
from tvm_rammer.frontend.onnx.recurrent.expressions import Expressions
from tvm_rammer.frontend.onnx.recurrent.node import (
    GATES,
    QUANTIZED,
    RecurrentOperator,
    directions_of,
)
from tvm_rammer.frontend.onnx.recurrent.steps_kernel import StepsKernel
from tvm_rammer.frontend.sizes import distance, end_unless_zero

#: Operands of a node, in order.
_OPERANDS = ("x", "w", "r", "b", "lengths", "state", "memory", "peepholes")


def refuse_open(node: RecurrentOperator) -> None:
    """Raise a ModelError for what cannot be computed unless its sizes are known, or is undefined.

    Parameters
    ----------
    node : RecurrentOperator
        How many steps or sequences it has is not known.
    """
    if QUANTIZED in node.attributes:
        raise ModelError(
            f"{node.where} cannot be compiled: it rounds its state in each step, and how many "
            "steps and sequences it has is not known; give the shapes of the model's inputs"
        )
    activations(Expressions(1, node.dtype), node)


def _converted(
    kind: str, bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """The results of a node: of all steps, and states after the last one."""
    named = zip(_OPERANDS, [*inputs, *[None] * len(_OPERANDS)], strict=False)
    given = {name: value for name, value in named if value is not None}
    recurrence = _Recurrence(bb, _operator(kind, given, attributes), given)
    found = bb.emit_te(
        recurrence.kernel.computed,
        *recurrence.operands.values(),
        primfunc_name_hint=f"{kind.lower()}_steps",
    )
    return relax.Tuple(
        [bb.emit(relax.TupleGetItem(found, place)) for place in range(len(found.ty.fields))]
    )


def _operator(
    kind: str, given: Mapping[str, Any], attributes: Mapping[str, Any]
) -> RecurrentOperator:
    x, hidden = given["x"], int(given["r"].ty.shape.values[-1])
    directions, dtype = directions_of(attributes, kind), np.dtype(str(x.ty.dtype))
    batch_first = bool(attributes.get("layout", 0))
    return RecurrentOperator(kind, kind, kind, dtype, hidden, directions, batch_first, attributes)


class _Recurrence:
    """A kernel, and what it is given: weights as it reads them, what all steps can share.

    Parameters
    ----------
    bb : relax.BlockBuilder
    operator : RecurrentOperator
    given : mapping of str to relax.Expr
        The node's operands that are there.
    """

    def __init__(
        self, bb: relax.BlockBuilder, operator: RecurrentOperator, given: Mapping[str, Any]
    ) -> None:
        self.bb, self.operator, self.given = bb, operator, given
        self.sizes = StepsKernel(operator)
        self.directions = len(operator.directions)
        self.biases = self._by_gate(given["b"], 2 * operator.gates) if "b" in given else None
        found = {
            "products": self._products(),
            **dict(zip(("weights", "late weights"), self._weights(), strict=False)),
            "bias": self._hidden_bias(),
            "lengths": self._of_batch("lengths", 0),
            "state": self._of_batch("state", 1 - int(operator.batch_first)),
            "memory": self._of_batch("memory", 1 - int(operator.batch_first)),
            "peepholes": self._peepholes(),
        }
        self.operands = {name: value for name, value in found.items() if value is not None}
        self.kernel = StepsKernel(operator, tuple(self.operands))

    def _products(self) -> relax.Expr:
        """Of all inputs with the weights of all gates and directions, and their biases."""
        x, gates = self.given["x"], self.operator.gates
        first, second, features = x.ty.shape.values
        flat = self._reshaped(self._by_gate(self.given["w"], gates), -1, features)
        # Of one axis: products are computed in blocks of it.
        rows = self._reshaped(x, first * second, features)
        products = self._emit(op.matmul(rows, self._emit(op.permute_dims(flat))))
        if self.biases is not None:
            products = self._emit(op.add(products, self._input_bias(self.biases)))
        return self._reshaped(products, first, second, -1)

    def _input_bias(self, biases: relax.Expr) -> relax.Expr:
        """What is the same in all steps."""
        own, hidden = self._emit_parts(op.split(biases, 2, axis=1))
        if self.operator.resets_after_product:
            # The last gate's is added to a product with the state alone.
            shared = self._parts_of(hidden, 0, self.operator.gates - 1)
            hidden = self._padded(shared, axis=1, size=self.operator.gates)
        return self._reshaped(self._emit(op.add(own, hidden)), -1)

    def _hidden_bias(self) -> relax.Expr | None:
        if self.biases is None or not self.operator.resets_after_product:
            return None
        last = self._parts_of(self.biases, 2 * self.operator.gates - 1, 2 * self.operator.gates)
        return self._reshaped(last, self.directions, self.sizes.width)

    def _weights(self) -> list[relax.Expr]:
        """Of each phase, [directions, blocks, hidden, gates, lanes]."""
        gates, sizes = self.operator.gates, self.sizes
        whole = self._by_gate(self.given["r"], gates)
        blocks = (self.directions, gates, sizes.blocks, sizes.lanes, self.operator.hidden)
        whole = self._emit(op.permute_dims(self._reshaped(whole, *blocks), [0, 2, 4, 1, 3]))
        if len(sizes.phases) == 1:
            return [whole]
        return self._emit_parts(op.split(whole, [len(sizes.phases[0])], axis=3))

    def _peepholes(self) -> relax.Expr | None:
        if "peepholes" not in self.given:
            return None
        whole = self._by_gate(self.given["peepholes"], 3)
        return self._reshaped(whole, self.directions, 3 * self.sizes.width)

    def _of_batch(self, name: str, axis: int) -> relax.Expr | None:
        """An operand that has as many sequences as the input, or the run ends."""
        value = self.given.get(name)
        if value is None:
            return None
        batch = self.given["x"].ty.shape.values[1 - int(self.operator.batch_first)]
        sizes = list(value.ty.shape.values)
        if sym.Analyzer().can_prove_equal(sizes[axis], batch):
            return value
        end_unless_zero(self.bb, distance(sizes[axis], batch))
        sizes[axis] = batch
        return self._emit(op.reshape(value, relax.ShapeExpr(sizes)))

    def _by_gate(self, value: Any, gates: int) -> relax.Expr:
        """[directions, gates, width] and what there is behind, of [directions, gates * hidden]."""
        behind = value.ty.shape.values[2:]
        parts = self._reshaped(value, self.directions, gates, self.operator.hidden, *behind)
        return self._padded(parts, axis=2, size=self.sizes.width)

    def _padded(self, value: Any, axis: int, size: int) -> relax.Expr:
        """A tensor whose axis is longer, with zeros behind."""
        shape = [int(each) for each in value.ty.shape.values]
        if shape[axis] == size:
            return value
        shape[axis] = size - shape[axis]
        zeros = relax.const(np.zeros(shape, self.operator.dtype), str(self.operator.dtype))
        return self._emit(op.concat([value, zeros], axis))

    def _parts_of(self, value: Any, first: int, last: int) -> relax.Expr:
        """Some of the gates."""
        return self._emit(op.strided_slice(value, [1], [first], [last]))

    def _reshaped(self, value: Any, *shape: Any) -> relax.Expr:
        return self._emit(op.reshape(value, shape))

    def _emit(self, value: Any) -> relax.Expr:
        return self.bb.emit(value)

    def _emit_parts(self, value: Any) -> list[relax.Expr]:
        whole = self.bb.emit(value)
        count = len(whole.ty.fields)
        return [self.bb.emit(relax.TupleGetItem(whole, place)) for place in range(count)]


#: By the operator's name.
CONVERTERS = {kind: partial(_converted, kind) for kind in GATES}
