"""A compiler pass that makes one multiplication and one addition of a chain of them.

A batch norm behind a concatenation, or the scale and the shift that some exporters write behind
every convolution, are chains of additions, subtractions, multiplications and divisions by
constants. They are ``x * factor + shift`` with constants that are computed here in double
precision; the factor moves on into the weights of a convolution or a product whose only use is the
chain.

A chain stays as it is where a constant is not finite, where the folded ones overflow or vanish in
the chain's own precision, or where digits would be lost: ``(x - m) * s`` is exact for an ``x`` near
``m``, and ``x * s - m * s`` has the rounding errors of two large numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from tvm_rammer.relax_util import dataflow_blocks, operator_name, rewrite, static_shape, used_once
from tvm_rammer.transform.remove_dead_code import clean_up

_DTYPES = frozenset({"float32", "float64"})
#: Shifts that are multiplied may become as large as this: of a normalised result, whose scale is 1,
#: that costs the last digit or two.
_MOST_SHIFTED = 256.0
_CONVOLUTIONS = frozenset(f"relax.nn.conv{rank}d" for rank in (1, 2, 3))


@tvm.transform.module_pass(opt_level=0, name="FoldAffine")
class FoldAffine:
    """Fold chains of affine operators with constants, and their factors into weights."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold every Relax function of a module."""
        return rewrite(mod, _Folder(mod), clean_up)


@dataclass(frozen=True)
class _Affine:
    """``operand * factor + shift``, the result of ``steps`` operators.

    ``shifted`` is the largest shift that a later factor was multiplied with, as it is then.
    """

    operand: Any
    factor: np.ndarray
    shift: np.ndarray
    steps: int
    shifted: float = 0.0

    def after(self, inner: _Affine) -> _Affine:
        """This one on the result of ``inner``."""
        moved = self.factor * inner.shift
        largest = float(np.abs(moved).max(initial=0.0)) if np.any(self.factor != 1) else 0.0
        return _Affine(
            inner.operand,
            self.factor * inner.factor,
            moved + self.shift,
            self.steps + inner.steps,
            max(self.shifted, inner.shifted, largest),
        )


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.values = {
            binding.var: binding.value
            for block in dataflow_blocks(mod)
            for binding in block.bindings[:]
        }
        self.used_once = used_once(mod)
        with np.errstate(all="ignore"):
            self.chains = self._chains()

    def visit_call_(self, call: Any) -> Any:
        with np.errstate(all="ignore"):
            folded = self._folded(call)
        return super().visit_call_(call) if folded is None else folded

    def _folded(self, call: Any) -> Any:
        chain = self.chains.get(call)
        if chain is None:
            return None
        weighted = self._inner(chain.operand)
        scaled = _with_scaled_weights(weighted, chain.factor) if weighted is not None else None
        if scaled is not None:
            operand, weight = scaled.args
            arguments = [self.visit_expr(operand), weight]
            # To find out the type of a convolution, which stays, takes a millisecond.
            typed = Call(scaled.op, arguments, scaled.attrs, scaled.ty_args, ret_ty=weighted.ty)
            base = self.builder_.emit(typed)
            return self._affine(base, np.ones(()), chain.shift)
        if chain.steps < 2:
            return None
        return self._affine(self.visit_expr(chain.operand), chain.factor, chain.shift)

    def _chains(self) -> dict[Any, _Affine]:
        """The chains that can be folded, by their last call."""
        chains: dict[Any, _Affine] = {}
        inside: set[Any] = set()
        for call in reversed(self.values.values()):
            if call in inside:
                continue
            chain, before = self._chain(call)
            if chain is not None and _representable(chain, str(call.ty.dtype)):
                chains[call] = chain
                inside.update(before)
        return chains

    def _chain(self, call: Any) -> tuple[_Affine | None, list[Any]]:
        """The longest chain of affine operators that ends in a call, and its other calls."""
        chain, before = _step(call), []
        while chain is not None:
            inner = self._inner(chain.operand)
            step = _step(inner) if inner is not None else None
            if step is None:
                break
            chain = chain.after(step)
            before.append(inner)
        return chain, before

    def _inner(self, operand: Any) -> Any:
        """What computes an operand that has no other use."""
        return self.values.get(operand) if operand in self.used_once else None

    def _affine(self, base: Any, factor: np.ndarray, shift: np.ndarray) -> Any:
        dtype, rank = str(base.ty.dtype), len(static_shape(base) or ())
        for operator, values, neutral in (
            (relax.op.multiply, factor, 1),
            (relax.op.add, shift, 0),
        ):
            if not np.all(values == neutral):
                base = self.builder_.emit(operator(base, _constant(values, rank, dtype)))
        return base


def _step(call: Any) -> _Affine | None:
    """An operator on a tensor and a constant that keeps the tensor's shape, as an affine map."""
    name = operator_name(call).removeprefix("relax.")
    if name not in ("add", "subtract", "multiply", "divide"):
        return None
    left, right = call.args[:]
    operand, other = (right, left) if isinstance(left, GenericConst) else (left, right)
    shape = static_shape(call)
    if isinstance(operand, GenericConst) or not isinstance(other, GenericConst) or shape is None:
        return None
    if static_shape(operand) != shape or str(call.ty.dtype) not in _DTYPES:
        return None
    value, one = other.value.numpy().astype(np.float64), np.ones(())
    if not np.all(np.isfinite(value)):
        return None
    if name == "add":
        return _Affine(operand, one, value, 1)
    if name == "subtract":
        return _Affine(operand, *((-one, value) if other.same_as(left) else (one, -value)), 1)
    if name == "multiply":
        return _Affine(operand, value, np.zeros(()), 1)
    return None if other.same_as(left) else _Affine(operand, 1 / value, np.zeros(()), 1)


def _representable(chain: _Affine, dtype: str) -> bool:
    """Whether the constants are finite, no factor vanishes, and no digits do, in a precision."""
    if chain.shifted > _MOST_SHIFTED and dtype == "float32":
        return False
    factor, shift = chain.factor.astype(dtype), chain.shift.astype(dtype)
    finite = np.all(np.isfinite(factor)) and np.all(np.isfinite(shift))
    return bool(finite and np.all((factor == 0) == (chain.factor == 0)))


def _with_scaled_weights(call: Any, factor: np.ndarray) -> Any:
    """A convolution or product whose constant weights take a factor in, ``None`` if they cannot."""
    shape, name = static_shape(call), operator_name(call)
    if name != "relax.matmul" and name not in _CONVOLUTIONS:
        return None
    if shape is None or np.all(factor == 1) or len(call.args) != 2:
        return None
    weight = call.args[1]
    if not isinstance(weight, GenericConst) or str(weight.value.dtype) != str(call.ty.dtype):
        return None
    values = weight.value.numpy()
    if name in _CONVOLUTIONS:
        out_axis = (call.attrs.out_layout or call.attrs.data_layout).index("C")
        weight_axis = call.attrs.kernel_layout.index("O")
    elif values.ndim == 2:
        out_axis, weight_axis = len(shape) - 1, 1
    else:
        return None
    aligned = factor.reshape((1,) * (len(shape) - factor.ndim) + factor.shape)
    if any(extent > 1 and axis != out_axis for axis, extent in enumerate(aligned.shape)):
        return None
    along = [-1 if axis == weight_axis else 1 for axis in range(values.ndim)]
    scaled = (values.astype(np.float64) * aligned.reshape(along)).astype(values.dtype)
    if not np.all(np.isfinite(scaled)):
        return None
    arguments = [call.args[0], relax.const(scaled, str(scaled.dtype))]
    return Call(call.op, arguments, call.attrs, call.ty_args)


def _constant(values: np.ndarray, rank: int, dtype: str) -> Any:
    shape = (1,) * (rank - values.ndim) + values.shape if values.ndim else ()
    return relax.const(values.reshape(shape).astype(dtype), dtype)
