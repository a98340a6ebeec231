"""The stores of a block as what they compute: a map, or a reduction with a known combination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from tvm_rammer.backend.cpu.templates.rows.row_program import Store
from tvm_rammer.kernel.blocks import loads
from tvm_rammer.kernel.nodes import statements

_COMBINE = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
#: Types that a vector accumulates in.
_DTYPES = frozenset({"float32", "float64", "int32", "int64"})


def stores_of(block: Any) -> tuple[Store, ...]:
    """The stores of a block; none when it is neither a map nor a known reduction."""
    found = statements(block.body)
    bound = {s.var: s.value for s in found if isinstance(s, tirx.Bind)}
    stores = [s for s in found if isinstance(s, tirx.BufferStore)]
    if len(bound) + len(stores) != len(found):
        return ()
    if block.init is None:
        return tuple(Store(s.buffer, tuple(s.indices), s.value) for s in stores if not bound)
    init = [s for s in statements(block.init) if isinstance(s, tirx.BufferStore)]
    starts = {s.buffer: s.value for s in init}
    reductions = [_reduction(s, bound.get(s.value, s.value), starts) for s in stores]
    return tuple(r for r in reductions if r is not None) if all(reductions) else ()


def _reduction(store: Any, value: Any, starts: Mapping[Any, Any]) -> Store | None:
    """``c[i] = c[i] + operand`` and the like, started from the neutral element."""
    combine = next((kind for kind in _COMBINE if isinstance(value, kind)), None)
    dtype = str(store.buffer.dtype)
    if combine is None or dtype not in _DTYPES or store.buffer not in starts:
        return None
    if not _neutral(combine, starts[store.buffer], dtype):
        return None
    own, operand = (value.a, value.b) if _reads_back(value.a, store) else (value.b, value.a)
    # The accumulators may appear nowhere else, as they do in an arg-max.
    if not _reads_back(own, store) or any(load.source in starts for load in loads(operand)):
        return None
    return Store(store.buffer, tuple(store.indices), operand, combine)


def _reads_back(value: Any, store: Any) -> bool:
    return (
        isinstance(value, TensorLoad)
        and bool(value.source.same_as(store.buffer))
        and bool(tvm_ffi.structural_equal(value.indices, store.indices))
    )


def _neutral(combine: Any, start: Any, dtype: str) -> bool:
    if not isinstance(start, tirx.IntImm | tirx.FloatImm):
        return False
    if combine is tirx.Add or combine is tirx.Mul:
        return bool(start.value == (0 if combine is tirx.Add else 1))
    if combine is tirx.Max:
        return bool(start.value <= tirx.min_value(dtype).value)
    return bool(start.value >= tirx.max_value(dtype).value)
