"""What a run must fulfil: sizes that do not fit end it."""

from __future__ import annotations

from typing import Any

from tvm import relax


def end_unless_zero(builder: relax.BlockBuilder, excess: Any) -> None:
    """End the run where a formula of sizes is not 0."""
    if isinstance(excess, int) and excess == 0:
        return
    vector = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([excess])))
    shape = builder.emit(relax.op.tensor_to_shape(vector))
    builder.match_cast(shape, relax.ShapeType([0]))
