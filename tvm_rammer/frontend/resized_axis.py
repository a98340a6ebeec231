"""An axis that is made longer or shorter, of sizes that each run decides.

Along an axis an output is a weighted sum of one input (nearest), of two (linear) or of four
(cubic), whose places are computed from the sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from tvm_rammer.frontend.sizes import as_size

#: Inputs of an output, along an axis.
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True)
class ResizeRule:
    """Which inputs an output is made of.

    Attributes
    ----------
    mode : str
        ``nearest``, ``linear`` or ``cubic``.
    coordinate : callable
        Where an output lies in the input, given its place, and the sizes before and after it; all
        of float32.
    nearest : callable
        The place of the nearest input to a coordinate.
    steepness : float
        Keys' parameter ("Cubic convolution interpolation for digital image processing", 1981).
    """

    mode: str
    coordinate: Callable[[Any, Any, Any], Any]
    nearest: Callable[[Any], Any] = tirx.floor
    steepness: float = -0.75

    def at(self, place: tirx.Var, before: Any, after: Any) -> Any:
        """Where an output lies."""
        floats = (tirx.Cast("float32", tirx.convert(each)) for each in (place, before, after))
        return self.coordinate(*floats)

    def first(self, at: Any) -> Any:
        """The first input that is read."""
        if self.mode == "nearest":
            return self.nearest(at)
        return tirx.floor(at) - (TAPS[self.mode] // 2 - 1)

    def weight(self, distance: Any) -> Any:
        """What an input weighs that is so far from the coordinate."""
        if self.mode == "linear":
            return 1.0 - distance
        a = self.steepness
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1.0
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        beyond = tirx.Select(distance < 2.0, far, distance * 0.0)
        return tirx.Select(distance <= 1.0, near, beyond)


def resized_axis(
    builder: relax.BlockBuilder, data: relax.Expr, axis: int, result: Any, rule: ResizeRule
) -> relax.Expr:
    """A tensor, an axis of which is as long as it shall be.

    Which inputs an output reads, and how much they weigh, is computed once for all its lines.

    Parameters
    ----------
    builder : relax.BlockBuilder
    data : relax.Expr
        Of floats, if the rule weighs them; its shape has formulas for sizes.
    axis : int
    result : int or PrimExpr
        The size.
    rule : ResizeRule
    """
    taps, extent = TAPS[rule.mode], data.ty.shape.values[axis]
    may_be_empty = not isinstance(extent, tirx.IntImm)

    def places(after: Any, before: Any) -> te.Tensor:
        def place(number: tirx.Var, tap: tirx.Var) -> Any:
            found = tirx.Cast("int64", rule.first(rule.at(number, before, after))) + tap
            return tirx.Cast("int32", tirx.max(tirx.min(found, before - 1), 0))

        return te.compute((after, as_size(taps)), place, "places")

    def weights(after: Any, before: Any) -> te.Tensor:
        def weight(number: tirx.Var, tap: tirx.Var) -> Any:
            at = rule.at(number, before, after)
            distance = tirx.abs(at - rule.first(at) - tirx.Cast("float32", tap))
            return tirx.Cast(str(data.ty.dtype), rule.weight(distance))

        return te.compute((after, as_size(taps)), weight, "weights")

    def resized(x: te.Tensor, places: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def element(*own: tirx.Var) -> Any:
            total: Any = None
            for tap in range(taps):
                read = x(*own[:axis], places[own[axis], tap], *own[axis + 1 :])
                if may_be_empty:
                    # Of nothing there is nothing to read.
                    read = tirx.if_then_else(x.shape[axis] > 0, read, tirx.const(0, str(x.dtype)))
                part = read * weights[0][own[axis], tap] if weights else read
                total = part if total is None else total + part
            return total

        shape = [*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :]]
        return te.compute(shape, element, "resized")

    tables = (places, weights) if taps > 1 else (places,)
    made = [builder.emit_te(table, as_size(result), as_size(extent)) for table in tables]
    return builder.emit_te(resized, data, *made)
