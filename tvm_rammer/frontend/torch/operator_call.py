"""One call of a PyTorch operator: its arguments by their schema, its result's shape and type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.ratios import SizeRatio
from tvm_rammer.frontend.sizes import as_number, as_size, end_unless_zero
from tvm_rammer.frontend.torch.size_symbols import (
    Size,
    SizeSymbols,
    bind_size,
    excess_of,
    missing,
    size_as_tensor,
)

#: A converter takes the call and the arguments in the order of the operator's schema, defaults
#: filled in; tensors are Relax expressions. It gives the result, or a list of results.
Converter = Callable[..., Any]

_ADVICE = "rewrite this operation with others, or compute it outside of the model"
_THROUGH_ONNX = "export the model with torch.onnx.export instead"
_ADVICE_FOR = dict.fromkeys(("pow.Tensor_Tensor", "pow.Scalar"), _THROUGH_ONNX)


class OperatorCall:
    """A node of an exported graph that is being converted.

    Attributes
    ----------
    node : torch.fx.Node
    builder : relax.BlockBuilder
    sizes : SizeSymbols
        Names of the sizes that only the run tells.
    """

    def __init__(self, node: Any, builder: relax.BlockBuilder, sizes: SizeSymbols) -> None:
        self.node, self.builder, self.sizes = node, builder, sizes

    def emit(self, value: Any) -> Any:
        """Put a Relax expression into the function that is built; gives its variable."""
        return self.builder.emit(value)

    def compute(self, function: Callable[..., Any], *tensors: Any) -> Any:
        """What a function of ``te`` tensors computes, for what no Relax operator does."""
        return self.builder.emit_te(function, *tensors)

    @property
    def dtype(self) -> str:
        """TVM's name of the (first) result's type; sizes are int64."""
        return tvm_dtype(getattr(self._result, "dtype", "int64"))

    @property
    def shape(self) -> tuple[Size, ...]:
        """Shape of the (first) result."""
        return self.sizes.shape(self._result.shape)

    @cached_property
    def _result(self) -> Any:
        value = self.node.meta["val"]
        return value[0] if isinstance(value, tuple | list) else value

    def cast(self, value: Any, dtype: str | None = None) -> Any:
        """A tensor or a number in a type, the result's if not given.

        Of an integer that the type does not hold, its lower bits are left, as in PyTorch, which
        takes ``x > -1`` of bytes for ``x > 255``.
        """
        dtype = dtype or self.dtype
        if isinstance(value, SizeRatio):
            above = self.cast(as_size(value.numerator), dtype)
            return self.emit(relax.op.divide(above, relax.const(value.denominator, dtype)))
        if tvm.ir.is_prim_expr(value):
            value = size_as_tensor(self.builder, value)
        if isinstance(value, int) and "int" in dtype:
            value = np.array(value).astype(dtype)
        if not isinstance(value, relax.Expr):
            return relax.const(value, dtype)
        return value if dtype_of(value) == dtype else self.emit(relax.op.astype(value, dtype))

    def wide(self, value: Any) -> Any:
        """A tensor in the type that PyTorch adds up in: float32 for floats of 16 bits."""
        return self.cast(value, wide_dtype(dtype_of(value)))

    def sized(self, value: Any, shape: Sequence[Size] | None = None) -> Any:
        """A tensor with names for its sizes, the result's if not given: the run checks them."""
        shape = self.shape if shape is None else shape
        own = shape_of(value)
        if self.sizes.are_equal(shape, own):
            return value
        formulas = [
            (size, one)
            for size, one in zip(shape, own, strict=True)
            if self._is_known_name(size) and one is not None and not isinstance(one, tirx.Var)
        ]
        if not formulas:
            return self.builder.match_cast(value, relax.TensorType(shape, dtype_of(value)))
        # TVM 0.27 never ends with a name that a cast says is a formula of itself.
        for size, one in formulas:
            self.require_equal(size, one)
        return self.reshape(value, shape)

    def _is_known_name(self, size: Size) -> bool:
        return isinstance(size, tirx.Var) and not self.names(size)

    def fitted(self, value: Any, axis: int | None = None) -> Any:
        """An operand with the sizes of the result where it has others than 1, but for one axis.

        PyTorch takes sizes for equal that are not the same formula; the run checks them.
        """
        result = self.shape[len(self.shape) - value.ty.ndim :]
        pairs = enumerate(zip(shape_of(value), result, strict=True))
        kept = [own if own == 1 or place == axis else size for place, (own, size) in pairs]
        return self.sized(value, kept)

    def names(self, size: Any) -> bool:
        """Whether a size is first known where this call's result is."""
        named = self.node.meta.get("unbacked_bindings") or {}
        return any(size == self.sizes.of_symbol(symbol) for symbol in named)

    def name_size(self, value: Any, size: Any) -> None:
        """Let a tensor of one integer say what a size is."""
        if not isinstance(size, tirx.Var):
            self.refuse(f"its number of results is {size}, and no name")
        bind_size(self.builder, value, size)

    def require(self, size: Size, least: Size) -> None:
        """End the run where a size is less than another one."""
        excess = missing(as_size(least), as_size(size))
        end_unless_zero(self.builder, self.sizes.simplified(excess))

    def require_equal(self, size: Size, other: Size) -> None:
        """End the run where two sizes differ."""
        excess = excess_of("Equality", size, other)
        end_unless_zero(self.builder, self.sizes.simplified(excess))

    def counted(self, count: Size, start: Any = 0, step: Any = 1) -> Any:
        """Numbers of int64, one after the other; as many as only the run may tell."""
        if all(isinstance(each, int) for each in (count, start, step)):
            return relax.const(start + step * np.arange(count), "int64")
        return self.builder.emit_te(_counted, *map(as_size, (count, start, step)))

    def reshape(self, value: Any, shape: Sequence[Size]) -> Any:
        """A tensor in another shape; 0 is a size (Relax takes it for "as before")."""
        if tuple(shape) == shape_of(value):
            return value
        if 0 in shape:
            return self.emit(relax.op.zeros(tuple(shape), dtype_of(value)))
        return self.emit(relax.op.reshape(value, tuple(shape)))

    def permute(self, value: Any, axes: Sequence[int]) -> Any:
        """A tensor with its axes in another order."""
        if list(axes) == list(range(len(axes))):
            return value
        return self.emit(relax.op.permute_dims(value, list(axes)))

    def broadcast(self, value: Any, shape: Sequence[Size]) -> Any:
        """A tensor repeated to a shape."""
        if tuple(shape) == shape_of(value):
            return value
        return self.emit(relax.op.broadcast_to(value, tuple(shape)))

    def filled(self, shape: Sequence[Size], value: Any) -> Any:
        """A tensor of one value, which is a number or a tensor with one element."""
        # relax.op.full cannot be built with an infinite value.
        return self.emit(relax.op.broadcast_to(self.cast(value), tuple(shape)))

    def take(self, value: Any, positions: Any, axis: int) -> Any:
        """Slices of a tensor; a position beyond the end gives the last, and not a crash."""
        return self.emit(relax.op.take(value, positions, axis, "clip"))

    def only(self, *values: Any) -> list[Any]:
        """The first of several results, where the program uses no others.

        Raises
        ------
        ModelError
            It does.
        """
        for user in self.node.users:
            index = user.args[1] if getattr(user.target, "__name__", "") == "getitem" else 0
            if user.op == "output" or (index >= len(values) and user.users):
                many = "result" if len(values) == 1 else f"{len(values)} results"
                self.refuse(f"only its first {many} can be computed")
        return list(values)

    def refuse(self, why: str, advice: str | None = None) -> Any:
        """Say that this call cannot be converted, and what to do."""
        raise ModelError(refusal(self.node, why, advice))


def _counted(count: Any, start: Any, step: Any) -> te.Tensor:
    return te.compute((count,), lambda k: start + step * k, "counted")


def refusal(node: Any, why: str, advice: str | None = None) -> str:
    """One line: which operator, where in the user's code, why, and what to do."""
    advice = advice or _ADVICE_FOR.get(getattr(node.target, "__name__", ""), _ADVICE)
    return f"PyTorch's {node.target} ({place(node)}): {why}; {advice}"


def place(node: Any) -> str:
    """A node's name, the line of code that made it and its layer, as far as the program tells."""
    parts = [f"node {node.name!r}"]
    trace = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [line for line in trace if line.startswith("File ")]
    users = [line for line in files if "/torch/" not in line] or files
    if users:
        parts.append(f"at {users[-1].removeprefix('File ')}")
    layers = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    if layers:
        parts.append(f"layer {layers[-1]!r}")
    return ", ".join(parts)


def tvm_dtype(dtype: Any) -> str:
    """TVM's name of a ``torch.dtype``; of complex numbers, that of their parts."""
    name = str(dtype).removeprefix("torch.")
    return f"float{int(name[7:]) // 2}" if name.startswith("complex") else name


def dtype_of(value: Any) -> str:
    """The type of a tensor's elements."""
    return str(value.ty.dtype)


def shape_of(value: Any) -> tuple[Size, ...]:
    """The shape of a tensor; ``None`` for what is not known of its sizes."""
    if not isinstance(value.ty.shape, relax.ShapeExpr):
        return (None,) * value.ty.ndim
    return tuple(map(as_number, value.ty.shape.values))


def table(values: Any) -> Any:
    """Positions that are known now."""
    return relax.const(np.asarray(values), "int64")


def are_numbers(*bounds: Any) -> bool:
    """Whether bounds and sizes are known before the run."""
    return all(bound is None or isinstance(bound, int) for bound in bounds)


def double(value: float) -> Any:
    """A number as a constant in float64."""
    return relax.const(value, "float64")


def wide_dtype(dtype: str) -> str:
    """The type that PyTorch adds up elements of a type in."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def is_float(dtype: str) -> bool:
    return "float" in dtype
